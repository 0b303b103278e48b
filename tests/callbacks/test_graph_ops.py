from __future__ import annotations

import logging

import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.factory import CallbackFactory
from tpk.callbacks.graph_ops import RunOp, RunUpdateOps
from tpk.callbacks.triggers import PeriodicTrigger
from tpk.errors import ConfigError

UPDATE_OPS = tf.compat.v1.GraphKeys.UPDATE_OPS


class Counting(tpk.Trainer):
    """Has a counter that callbacks can increment; its steps do nothing."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.counter = tf.compat.v1.get_variable("counter", initializer=0.0)
            self.train_op = tf.no_op()

    def increment(self):
        return self.counter.assign_add(1.0, read_value=False)

    def run(self, *callbacks):
        """Return the counter before the training, after each step and after each epoch."""
        seen = []

        def look(self):
            seen.append(float(self.trainer.sess.run(self.trainer.counter)))

        looking = CallbackFactory(before_train=look, trigger_step=look, trigger_epoch=look)
        self.train(callbacks=[*callbacks, looking], monitors=[], steps_per_epoch=2, max_epoch=2)
        return seen


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, [1, 1, 1, 2, 2, 2, 3]),
        ({"run_as_trigger": False}, [1, 1, 1, 1, 1, 1, 1]),
        ({"run_before": False}, [0, 0, 0, 1, 1, 1, 2]),
        ({"run_before": False, "run_as_trigger": False, "run_step": True}, [0, 1, 2, 2, 3, 4, 4]),
        ({"run_step": True}, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_run_op_runs_at_the_chosen_times(options, counts):
    trainer = Counting()
    assert trainer.run(RunOp(trainer.increment, **options)) == counts


def test_run_op_runs_when_a_periodic_trigger_says():
    trainer = Counting()
    assert trainer.run(PeriodicTrigger(RunOp(trainer.increment, run_before=False), every_k_steps=3)) == [
        0, 0, 0, 0, 1, 1, 1,
    ]  # fmt: skip


def test_run_op_takes_ops_tensors_assignments_and_lists():
    trainer = Counting()
    with trainer.graph.as_default():
        other = tf.compat.v1.get_variable("other", initializer=0.0)
        ops = [trainer.increment(), other.assign_add(2.0), tf.identity(tf.constant(1.0))]
        read_after = tf.compat.v1.assign(other, 5.0)
    seen = trainer.run(RunOp(ops), RunOp(read_after, run_before=False))
    assert seen[0] == 1 and seen[-1] == 3


def test_run_op_along_with_the_step_asks_for_an_operation_always_the_same():
    trainer = Counting()
    callback = RunOp(lambda: tf.constant(3.0), run_step=True)
    trainer.run(callback)
    assert isinstance(callback.before_run(None), tf.Operation)
    assert callback.before_run(None) is callback.before_run(None)


def test_run_op_implements_no_hook_of_a_time_that_was_not_chosen():
    callback = RunOp(lambda: None, run_before=False, run_as_trigger=False)
    assert set(callback.hook_implementations()) == {"setup_graph"}


def test_verbose_logs_each_run(caplog):
    trainer = Counting()
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer.run(RunOp(trainer.increment, verbose=True))
    name = next(op.name for op in trainer.graph.get_operations() if op.type in ("AssignAdd", "AssignAddVariableOp"))
    assert [record.getMessage() for record in caplog.records].count(f"running op {name}") == 3


@pytest.mark.parametrize("op", [None, 3, [], "counter", lambda: None])
def test_what_is_no_op_is_an_error(op):
    with pytest.raises(ConfigError, match="expected an op"):
        Counting().run(RunOp(op))


def test_run_update_ops_runs_the_collection_along_with_each_step():
    trainer = Counting()
    with trainer.graph.as_default():
        tf.compat.v1.add_to_collection(UPDATE_OPS, trainer.increment())
        tf.compat.v1.add_to_collection(UPDATE_OPS, trainer.counter.assign_add(10.0))
    callback = RunUpdateOps()
    assert trainer.run(callback) == [0, 11, 22, 22, 33, 44, 44]
    assert isinstance(callback.before_run(None), tf.Operation)
    assert callback.before_run(None) is callback.before_run(None)


def test_run_update_ops_of_another_collection():
    trainer = Counting()
    with trainer.graph.as_default():
        tf.compat.v1.add_to_collection("mine", trainer.increment())
        tf.compat.v1.add_to_collection(UPDATE_OPS, trainer.counter.assign_add(10.0))
    assert trainer.run(RunUpdateOps("mine"))[-1] == 4


def test_run_update_ops_asks_for_nothing_when_the_collection_is_empty():
    callback = RunUpdateOps()
    assert set(Counting().run(callback)) == {0.0}
    assert callback.before_run(None) is None
