"""Log directories with an earlier training run, whose files are kept."""

from __future__ import annotations

import json

import tensorflow as tf
import tpk_tensorpack as tp

import tpk

MONITORS = ["JSONWriter", "CSVWriter", "TFEventWriter"]


class Counting(tp.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.count = tf.compat.v1.get_variable("count", initializer=0)
            self.train_op = self.count.assign_add(1, read_value=False)


def train(run_dir, *callbacks, max_epoch=3, **options):
    with tf.Graph().as_default():
        Counting().train(list(callbacks), MONITORS, steps_per_epoch=2, max_epoch=max_epoch, run_dir=run_dir, **options)


def names(directory, pattern):
    return sorted(path.name for path in directory.glob(pattern))


class Named(tpk.Callback):
    """Report a statistic under a given name."""

    def __init__(self, name):
        self._name = name

    def trigger(self):
        self.trainer.monitors.put_scalar(self._name, self.global_step)


def steps_in_events(run_dir):
    files = sorted(run_dir.glob("events.out.tfevents.*"))
    events = [event for path in files for event in tf.compat.v1.train.summary_iterator(str(path))]
    starts = [event.step for event in events if event.HasField("session_log")]
    return starts, [event.step for event in events if event.summary.value]


def test_a_new_training_may_begin_beside_what_is_there(tmp_path):
    train(tmp_path, Named("old"), tpk.ModelSaver(), tpk.MinSaver("old"), max_epoch=3)
    log = (tmp_path / "log.txt").read_text()
    stats, table = (tmp_path / "stats.jsonl").read_text(), (tmp_path / "stats.csv").read_text()
    train(tmp_path, Named("new"), tpk.ModelSaver(), tpk.MinSaver("new"), max_epoch=2)
    assert (tmp_path / "log.txt").read_text().startswith(log)
    assert json.loads((tmp_path / "config.json").read_text())["max_epoch"] == 2
    lines = (tmp_path / "stats.jsonl").read_text()
    assert lines.startswith(stats)
    assert [json.loads(line)["new"] for line in lines.removeprefix(stats).splitlines()] == [2, 4]
    assert (tmp_path / "stats-1.csv").read_text() == table
    assert len((tmp_path / "stats.csv").read_text().splitlines()) == 1 + 2
    assert len(names(tmp_path, "events.out.*")) == 2
    # TensorBoard would drop events before a second start.
    assert steps_in_events(tmp_path) == ([1], [2, 4, 6, 2, 4])

    assert names(tmp_path, "*.index") == ["min-new-2.index", "model-2.index", "model-4.index"]
    assert tpk.newest_complete(tmp_path).step == 4
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-4")
    kept = tmp_path / "kept-1"
    assert names(kept, "*.index") == ["min-old-2.index", "model-2.index", "model-4.index", "model-6.index"]
    assert tpk.newest_complete(kept).step == 6
    assert tf.train.latest_checkpoint(str(kept)) == str(kept / "model-6")
    assert tf.train.latest_checkpoint(str(kept), "checkpoint-min-old") == str(kept / "min-old-2")


def test_the_new_training_is_the_one_that_goes_on(tmp_path):
    for _ in range(2):
        train(tmp_path, Named("a"), tpk.ModelSaver(max_to_keep=1), max_epoch=2)
    train(tmp_path, Named("a"), tpk.ModelSaver(max_to_keep=1), max_epoch=3, resume="must")
    lines = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert [line["global_step"] for line in lines] == [2, 4, 2, 4, 6]
    assert names(tmp_path, "model-*.index") == ["model-6.index"]
    assert names(tmp_path / "kept-1", "model-*.index") == ["model-4.index"]


def test_a_training_that_goes_on_from_what_is_there_leaves_the_checkpoints_where_they_are(tmp_path):
    train(tmp_path, tpk.ModelSaver(max_to_keep=1), max_epoch=2)
    for step in (6, 8):
        everything = tpk.SaverRestore(tmp_path)
        train(tmp_path, tpk.ModelSaver(max_to_keep=1), max_epoch=1, session_init=everything)
        assert tpk.newest_complete(tmp_path).step == step
    assert names(tmp_path, "model-*.index") == ["model-4.index", "model-6.index", "model-8.index"]
    assert not names(tmp_path, "kept-*")


def test_only_checkpoints_are_moved(tmp_path):
    for name in ("notes-7.txt", "checkpoint.txt", "model.index", "state-x.json"):
        (tmp_path / name).write_text(name)
    train(tmp_path, tpk.ModelSaver(), max_epoch=1)
    train(tmp_path, tpk.ModelSaver(), max_epoch=1)
    assert {path.name for path in (tmp_path / "kept-1").iterdir()} == {
        "checkpoint",
        "model-2.index",
        "model-2.data-00000-of-00001",
        "state-2.json",
    }
    assert (tmp_path / "notes-7.txt").read_text() == "notes-7.txt"
