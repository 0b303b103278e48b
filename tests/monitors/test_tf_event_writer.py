from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from registered import RegisteredMonitors
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tpk.errors import ConfigError
from tpk.monitors import TFEventWriter


def start(trainer, **options):
    """Return monitors with one writer, as they are when training begins."""
    monitors = RegisteredMonitors(trainer, TFEventWriter(clock=lambda: 1000.0, **options))
    monitors.call("setup_graph")
    monitors.call("before_train")
    return monitors


def read(folder):
    """Return what TensorBoard reads; 0 means: without thinning it out."""
    guidance = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)
    return EventAccumulator(str(folder), size_guidance=guidance).Reload()


def test_tensorboard_shows_scalars_images_histograms_and_the_graph(trainer):
    with trainer.graph.as_default():
        tf.constant(3.0, name="three")
    monitors = start(trainer)
    image = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    for trainer.global_step in (10, 20):
        monitors.put_scalar("cost", 1 / trainer.global_step)
    monitors.put_image("sample", image)
    monitors.put_histogram("weights", np.arange(100.0))
    monitors.call("after_train")

    board = read(trainer.run_dir)
    assert [(each.step, each.wall_time) for each in board.Scalars("cost")] == [(10, 1000.0), (20, 1000.0)]
    assert [each.value for each in board.Scalars("cost")] == pytest.approx([0.1, 0.05])
    (shown,) = board.Images("sample")
    assert (shown.step, shown.width, shown.height) == (20, 6, 4)
    np.testing.assert_array_equal(tf.io.decode_png(shown.encoded_image_string).numpy(), image)
    (histogram,) = board.Histograms("weights")
    assert histogram.histogram_value.num == sum(histogram.histogram_value.bucket) == 100
    nodes = tf.compat.v1.GraphDef.FromString(board.Graph().SerializeToString()).node
    assert [node.name for node in nodes] == ["three"]


def test_summaries_of_the_graph_arrive_unchanged(trainer):
    with trainer.graph.as_default(), tf.compat.v1.Session() as sess:
        tf.compat.v1.summary.image("digits", tf.zeros([2, 8, 8, 1]))
        tf.compat.v1.summary.histogram("tower0/weights", tf.range(10.0))
        serialized = sess.run(tf.compat.v1.summary.merge_all())
    monitors = start(trainer, save_graph=False)
    monitors.put_summary(serialized)
    monitors.call("after_train")
    tags = read(trainer.run_dir).Tags()
    assert tags["images"] == ["digits/image/0", "digits/image/1"]
    assert tags["histograms"] == ["weights"]
    assert not tags["graph"]


def test_run_metadata_arrives(trainer):
    monitors = start(trainer)
    event = tf.compat.v1.Event()
    event.tagged_run_metadata.tag = "step5"
    event.tagged_run_metadata.run_metadata = tf.compat.v1.RunMetadata().SerializeToString()
    monitors.put_event(event)
    monitors.call("after_train")
    assert read(trainer.run_dir).Tags()["run_metadata"] == ["step5"]


def test_a_resumed_run_continues_the_curve(trainer):
    first = start(trainer)
    for trainer.global_step in (1, 2, 3, 4):
        first.put_scalar("cost", trainer.global_step)
    first.call("after_train")
    trainer.global_step = 2  # killed after step 4, resumed from the checkpoint of step 2
    second = start(trainer)
    for trainer.global_step in (3, 4, 5):
        second.put_scalar("cost", 10 * trainer.global_step)
    second.call("after_train")
    curve = [(each.step, each.value) for each in read(trainer.run_dir).Scalars("cost")]
    assert curve == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0)]


def test_a_flush_makes_events_visible(trainer):
    monitors = start(trainer)
    monitors.put_scalar("cost", 1)
    monitors.call("trigger_epoch")
    assert len(read(trainer.run_dir).Scalars("cost")) == 1
    monitors.call("after_train")


def test_an_own_folder_needs_no_run_dir(trainer_without_run_dir, tmp_path):
    monitors = start(trainer_without_run_dir, logdir=tmp_path / "events")
    monitors.put_scalar("cost", 1)
    monitors.call("after_train")
    assert read(tmp_path / "events").Tags()["scalars"] == ["cost"]


def test_without_a_folder_the_error_says_what_to_do(trainer_without_run_dir):
    with pytest.raises(ConfigError, match=r"TFEventWriter needs the directory of the run.*run_dir"):
        start(trainer_without_run_dir)
