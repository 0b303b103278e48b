"""Idioms from public scripts of the years 2016 to 2020, with one test for each."""

from __future__ import annotations

import argparse
import io
import logging
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack as tp
from tpk_tensorpack import dataflow
from tpk_tensorpack.callbacks.monitor import ScalarPrinter
from tpk_tensorpack.dataflow import dftools, imgaug
from tpk_tensorpack.graph_builder.model_desc import InputDesc
from tpk_tensorpack.tfutils import symbolic_functions as symbf
from tpk_tensorpack.tfutils.scope_utils import under_name_scope
from tpk_tensorpack.utils import argtools, globvars, logger, viz
from tpk_tensorpack.utils.serialize import MsgpackSerializer
from tpk_tensorpack.utils.stats import StatCounter

from tpk.errors import InputError

POINTS = [[np.full([4], n, np.float32)] for n in (1.0, 2.0)]


class Model(tp.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None], tf.float32, "x")]

    def build_graph(self, x):
        w = tf.compat.v1.get_variable("w", initializer=1.0)
        tf.identity(tf.reshape(x > 1.5, [-1, 2]), name="prediction")
        tf.identity(tf.reshape(x > 0, [-1, 2]), name="truth")
        return tf.reduce_mean(tf.square(w * x), name="cost")

    def optimizer(self):
        rate = tf.compat.v1.get_variable("learning_rate", initializer=0.1, trainable=False)
        return tf.compat.v1.train.GradientDescentOptimizer(rate)


def train(callbacks, **options):
    trainer = tp.SimpleTrainer()
    data = tp.QueueInput(tp.DataFromList(POINTS, shuffle=False))
    options = {"max_epoch": 1, "steps_per_epoch": 2, "extra_callbacks": [], "monitors": [], **options}
    tp.launch_train_with_config(tp.TrainConfig(data=data, model=Model(), callbacks=callbacks, **options), trainer)
    return trainer


def test_a_call_chooses_its_name_scope():
    @under_name_scope()
    def double(x):
        return tf.multiply(x, 2.0, name="out")

    with tf.Graph().as_default():
        names = [double(1.0).op.name, double(1.0, name_scope="mine").op.name, double(1.0, name_scope="mine").op.name]
    assert names == ["double/out", "mine/out", "mine/out_1"]


def test_the_size_of_an_input_is_also_a_method():
    source = tp.QueueInput(tp.DataFromList(POINTS))
    assert source.size() == source.size == 2


def test_decisions_may_have_any_shape():
    stats = tp.BinaryClassificationStats("prediction", "truth")
    monitors = train([tp.InferenceRunner(tp.DataFromList(POINTS, shuffle=False), stats)]).monitors
    assert (monitors.get_latest("val_precision"), monitors.get_latest("val_recall")) == (1.0, 0.5)


def test_the_answer_about_a_log_directory_may_be_piped_in(log_dir, monkeypatch):
    (log_dir / "kept").touch()
    monkeypatch.setattr("sys.stdin", io.StringIO("what\nk\n"))
    logger.set_logger_dir(str(log_dir))
    assert (log_dir / "kept").exists()


@pytest.mark.parametrize(("key", "ends"), [("q", False), ("x", True)])
def test_a_key_closes_a_window_or_ends_the_process(monkeypatch, key, ends):
    cv2 = pytest.importorskip("cv2")
    closed = []
    for name, function in {
        "imshow": lambda *_: None,
        "setMouseCallback": lambda *_: None,
        "waitKey": lambda _: ord(key),
        "destroyWindow": closed.append,
    }.items():
        monkeypatch.setattr(cv2, name, function)
    image = np.zeros([2, 2, 3], np.uint8)
    if ends:
        with pytest.raises(SystemExit):
            viz.interactive_imshow(image)
    else:
        viz.interactive_imshow(image)
    assert len(closed) == (not ends)


class Old(tp.DataFlow):
    """A data flow in the style before 2019."""

    def size(self):
        return 8

    def get_data(self):
        for number in range(8):
            yield [number]


class OldProxy(tp.ProxyDataFlow):
    def size(self):
        return 3

    def get_data(self):
        for number, point in enumerate(self.ds.get_data()):
            if number < 3:
                yield point


def test_a_flow_may_define_size_instead_of_a_length():
    assert len(Old()) == tp.BatchData(Old(), 4).size() * 4 == tp.PrefetchDataZMQ(Old(), nr_proc=1).size() == 8
    assert tp.MapData(OldProxy(Old()), lambda point: point).size() == len(list(OldProxy(Old()))) == 3


def test_shapes_may_be_those_of_tensorflow():
    (image, label) = next(iter(tp.FakeData([tf.TensorShape([2, 3]), tf.TensorShape([])], 1)))
    assert image.shape == (2, 3)
    assert np.ndim(label) == 0


def test_shapes_may_have_dimensions():
    (image,) = next(iter(tp.FakeData([[tf.compat.v1.Dimension(4), tf.compat.v1.Dimension(5)]], 1)))
    assert image.shape == (4, 5)


def test_an_evaluation_for_a_gpu_that_the_host_lacks_is_placed_by_tensorflow(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # as `--gpu 0` sets it
    data = tp.DataFromList(POINTS, shuffle=False)
    stats = [tp.ScalarStats("cost", prefix=str(number)) for number in range(2)]
    one = tp.InferenceRunner(data, stats[0], tower_name="one", device=0)
    monitors = train([one, tp.InferenceRunner(data, stats[1], tower_name="two", device="/gpu:0")]).monitors
    assert monitors.get_latest("0_cost") == monitors.get_latest("1_cost")


def test_a_model_may_set_training():
    class Sets(Model):
        def build_graph(self, *inputs):
            self.training = tp.get_current_tower_context().is_training
            assert self.training
            return super().build_graph(*inputs)

    data = tp.QueueInput(tp.DataFromList(POINTS, shuffle=False))
    config = tp.TrainConfig(data=data, model=Sets(), max_epoch=1, steps_per_epoch=1, extra_callbacks=[], monitors=[])
    tp.launch_train_with_config(config, tp.SimpleTrainer())


def test_older_modules():
    assert InputDesc is tp.InputDesc
    globvars.use_global_argument(argparse.Namespace(gpu="0"))
    assert globvars.globalns.gpu == "0"


def test_all_reduce_may_be_collective():
    tp.SyncMultiGPUTrainerReplicated(2, mode="collective")


def test_older_names_of_flows(tmp_path):
    dftools.dump_dataflow_to_lmdb(tp.DataFromList(POINTS, shuffle=False), str(tmp_path / "data.lmdb"))
    for flow in (
        tp.LMDBDataPoint(str(tmp_path / "data.lmdb"), shuffle=False),
        tp.LMDBDataPoint(tp.LMDBData(str(tmp_path / "data.lmdb"), shuffle=False)),
    ):
        flow.reset_state()
        assert [point[0].tolist() for point in flow] == [point[0].tolist() for point in POINTS]
    flow = tp.ThreadedMapData(tp.DataFromList([[1], [2]], shuffle=False), nr_thread=1, map_func=lambda point: point)
    flow.reset_state()
    datapoints = iter(flow)
    assert [next(datapoints), next(datapoints)] == [[1], [2]]
    datapoints.close()
    assert tp.StatPrinter is ScalarPrinter
    assert tp.InputVar(tf.float32, [None], "x").name == "x"
    with pytest.raises(ImportError, match="Use MultiProcessRunnerZMQ"):
        dftools.dump_dataflow_to_process_queue  # noqa: B018


def test_each_worker_of_a_prefetcher_sees_one_gpu():
    class SeenGPU(tp.DataFlow):
        def __iter__(self):
            yield [os.environ.get("CUDA_VISIBLE_DEVICES")]

    flow = dataflow.PrefetchOnGPUs(SeenGPU(), [3, 5])
    flow.reset_state()
    datapoints = iter(flow)
    assert {next(datapoints)[0] for _ in range(2)} == {"3", "5"}
    flow.close()


def test_older_functions_of_predictions():
    with tf.compat.v1.Session(graph=tf.Graph()) as sess, sess.graph.as_default():
        logits, label = tf.constant([[0.1, 0.9, 0.0], [0.8, 0.1, 0.3]]), tf.constant([1, 2])
        wrong = sess.run([symbf.prediction_incorrect(logits, label, topk) for topk in (1, 2)])
        assert [each.tolist() for each in wrong] == [[0.0, 1.0], [0.0, 0.0]]
        assert sess.run(symbf.accuracy(logits, label)) == 0.5
        assert sess.run(symbf.flatten(logits)).shape == (6,)
        assert sess.run(symbf.huber_loss(tf.constant([0.5, -3.0]))).tolist() == [0.125, 2.5]


def test_one_number_is_the_size_of_a_blur():
    pytest.importorskip("cv2")
    augmentor = imgaug.GaussianBlur(3)
    assert augmentor.augment(np.zeros([5, 5, 3], np.uint8)).shape == (5, 5, 3)
    assert augmentor.size_range == (0, 3)


def test_a_plain_thread_is_started():
    started = threading.Event()
    train([tp.StartProcOrThread(threading.Thread(target=started.set))])
    assert started.is_set()


def test_bytes_by_msgpack():
    pytest.importorskip("msgpack")
    assert MsgpackSerializer.loads(MsgpackSerializer.dumps([1, "a", {"b": [2.5]}])) == [1, "a", {"b": [2.5]}]


def test_trackers_of_gpus_let_a_training_without_them_run(caplog):
    caplog.set_level("WARNING", "tpk")
    train([tp.GPUMemoryTracker(), tp.GPUUtilizationTracker(), tp.PeakMemoryTracker()])
    assert "NVML finds no GPU" in caplog.text


def test_two_savers_in_one_directory(log_dir):
    train([tp.ModelSaver(), tp.PeriodicTrigger(tp.ModelSaver(), every_k_steps=1)])
    assert {path.stem for path in log_dir.glob("model-*.index")} == {"model-1", "model-2"}


def test_a_schedule_that_begins_with_another_value_is_told(caplog):
    log = logging.getLogger("tpk_tensorpack")
    log.addHandler(caplog.handler)  # the logger does not propagate
    try:
        train([tp.ScheduledHyperParamSetter("learning_rate", [(0, 0.5)])])
    finally:
        log.removeHandler(caplog.handler)
    assert "should become 0.5 at the current point. However its current value is 0.1." in caplog.text


def test_in_place_operators_make_tensors(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tensorflow as tf\nb = tf.get_variable('b', [2], initializer=tf.zeros_initializer())\n"
        "b += tf.constant([1.0, 2.0])\nwith tf.Session() as s:\n"
        "    s.run(tf.global_variables_initializer())\n    print(s.run(b).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-m", "tpk_tensorpack", script], capture_output=True, text=True, timeout=200)
    assert done.stdout == "[1.0, 2.0]\n", done.stderr


def test_each_op_of_a_training_has_one_thread_unless_the_script_says_otherwise(monkeypatch):
    made = []

    class Session(tf.compat.v1.Session):
        def __init__(self, target="", graph=None, config=None):
            made.append(config)
            super().__init__(target, graph, config)

    monkeypatch.setattr(tf.compat.v1, "Session", Session)
    train([])
    train([], session_config=tf.compat.v1.ConfigProto(intra_op_parallelism_threads=2))
    assert [config.intra_op_parallelism_threads for config in made] == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tp.TrainConfig(dataflow=[], data=tp.QueueInput([])),
        lambda: imgaug.Brightness(0),
        lambda: imgaug.RandomCrop(9).augment(np.zeros([4, 4, 3], np.uint8)),
        lambda: argtools.shape2d([1, 2, 3]),
        lambda: dataflow.dataset.Mnist("validation", dir="/nowhere"),
        lambda: StatCounter().average,
    ],
)
def test_a_script_can_catch_assertion_errors_as_in_tensorpack(wrong):
    with pytest.raises(AssertionError):
        wrong()


@pytest.mark.parametrize("source", [tp.FeedInput, tp.QueueInput])
def test_components_without_an_input_are_dropped_and_whole_floats_are_integers(source):
    class Counts(tp.ModelDesc):
        def inputs(self):
            return [tf.TensorSpec([2], tf.int32, "n")]

        def build_graph(self, n):
            w = tf.compat.v1.get_variable("w", initializer=0.0)
            return tf.identity(w * tf.cast(tf.reduce_sum(n), tf.float32), name="cost")

        def optimizer(self):
            return tf.compat.v1.train.GradientDescentOptimizer(1.0)

    def trained(points):
        with tf.Graph().as_default():
            data, trainer = source(tp.DataFromList(points, shuffle=False)), tp.SimpleTrainer()
            options = {"max_epoch": 1, "steps_per_epoch": 2, "extra_callbacks": [], "monitors": []}
            taken = Weights()
            tp.launch_train_with_config(
                tp.TrainConfig(data=data, model=Counts(), callbacks=[taken], **options), trainer
            )
        return taken.w

    class Weights(tp.Callback):
        def _after_epoch(self):
            self.w = self.trainer.sess.run(tf.compat.v1.trainable_variables()[0])

    assert trained([[np.array([1.0, 2.0]), "dropped"]] * 2) == -6
    with pytest.raises(InputError, match="float64 cannot become int32 without loss"):
        trained([[np.array([1.5, 2.0])]] * 2)
