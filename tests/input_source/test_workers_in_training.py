"""Worker processes behind an input source, in a real training: what they deliver, how they end, and how they fail."""

from __future__ import annotations

import os
import signal

import numpy as np
import psutil
import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import BatchData, DataFromList, MapData, MultiProcessMapData, MultiProcessRunner
from tpk.errors import InputError

v1 = tf.compat.v1


class Trainer(tpk.SimpleTrainer):
    """Sums up what it is given."""

    def __init__(self, source):
        super().__init__()
        self.setup_graph([tf.TensorSpec([None, 3], tf.float32, "x")], source, self.cost, self.sgd)

    @staticmethod
    def cost(x):
        weight = v1.get_variable("weight", [])
        total = v1.get_variable("total", [], initializer=tf.zeros_initializer(), trainable=False)
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, total.assign_add(tf.reduce_sum(x)))
        return weight * 0.0

    @staticmethod
    def sgd():
        return v1.train.GradientDescentOptimizer(0.1)


class Total(tpk.Callback):
    def after_train(self, trainer):
        if trainer.loop.failure is None:
            (total,) = [each for each in v1.global_variables() if each.op.name == "total"]
            self.value = float(trainer.sess.run(total))


def rows():
    return MapData(DataFromList(list(range(24)), shuffle=True), lambda number: [np.full(3, number, np.float32)])


_BEFORE = set()


@pytest.fixture(autouse=True)
def know_who_was_there():
    """Other tests of the same session may keep a process."""
    _BEFORE.clear()
    _BEFORE.update(children())


def children():
    return [child.pid for child in psutil.Process().children(recursive=True) if child.pid not in _BEFORE]


@pytest.mark.parametrize("source", [tpk.FeedInput, tpk.QueueInput, tpk.TFDatasetInput])
@pytest.mark.parametrize(
    "parallel",
    [
        lambda: MultiProcessRunner(BatchData(rows(), 4), 2),
        lambda: BatchData(MultiProcessMapData(rows(), 2, lambda row: row), 4),
    ],
    ids=["runner", "map"],
)
def test_each_datapoint_is_trained_on_once_an_epoch_and_no_process_is_left(source, parallel):
    total = Total()
    trainer = Trainer(source(parallel()))
    trainer.train(callbacks=[total, "RunUpdateOps"], steps_per_epoch=6, max_epoch=3)
    assert total.value == 3 * 3 * sum(range(24))
    assert children() == []


@pytest.mark.parametrize("source", [tpk.FeedInput, tpk.QueueInput, tpk.TFDatasetInput])
def test_a_worker_that_is_killed_ends_the_training_with_an_error_that_names_it(source):
    class Kill(tpk.Callback):
        def trigger_step(self, trainer):
            if trainer.global_step == 5:
                for pid in children():
                    os.kill(pid, signal.SIGKILL)

    trainer = Trainer(source(MultiProcessRunner(BatchData(rows(), 4), 2, num_prefetch=2)))
    with pytest.raises(InputError, match=r"worker \d of 2 of MultiProcessRunner .* died: killed by signal 9"):
        trainer.train(callbacks=[Kill(), "RunUpdateOps"], steps_per_epoch=1000, max_epoch=1)
    assert children() == []


@pytest.mark.parametrize("source", [tpk.FeedInput, tpk.QueueInput])
def test_an_error_in_a_worker_ends_the_training_as_what_it_is(source):
    def fails_at_ten(number):
        if number == 10:
            raise ZeroDivisionError("in the user's data code")
        return [np.full(3, number, np.float32)]

    flow = MultiProcessRunner(BatchData(MapData(DataFromList(list(range(24))), fails_at_ten), 4), 2)
    with pytest.raises(ZeroDivisionError, match="in the user's data code") as caught:
        Trainer(source(flow)).train(callbacks=["RunUpdateOps"], steps_per_epoch=6, max_epoch=1)
    assert "fails_at_ten" in str(caught.value.__cause__)
    assert children() == []


def test_a_training_that_is_stopped_early_leaves_no_process():
    class Stop(tpk.Callback):
        def trigger_step(self, trainer):
            if trainer.global_step == 3:
                raise tpk.StopTraining

    Trainer(tpk.QueueInput(MultiProcessRunner(BatchData(rows(), 4), 2))).train(
        callbacks=[Stop(), "RunUpdateOps"], steps_per_epoch=100, max_epoch=1
    )
    assert children() == []


def test_evaluations_keep_their_workers_from_pass_to_pass():
    pids = []

    class Note(tpk.Callback):
        def trigger_epoch(self, trainer):
            pids.append(sorted(children()))

    validation = MultiProcessRunner(BatchData(rows(), 4), 2)
    trainer = Trainer(tpk.FeedInput([[np.zeros([4, 3], np.float32)]]))
    runner = tpk.InferenceRunner(tpk.FeedInput(validation, infinite=False), [tpk.ScalarStats("mul:0")])
    trainer.train(callbacks=[runner, Note()], steps_per_epoch=2, max_epoch=3)
    assert len(pids[0]) == 2
    assert pids[0] == pids[1] == pids[2]
    assert children() == []
