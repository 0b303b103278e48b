from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks import ThroughputTracker
from tpk.errors import ConfigError

v1 = tf.compat.v1
REPLICATED = tpk.use("replicated", devices=2)


class Clock(tpk.Callback):
    """Each step takes a quarter of a second, and what comes between two epochs an hour."""

    now = 0.0

    def __call__(self):
        return self.now

    def trigger_step(self, trainer):
        self.now += 0.25

    def trigger_epoch(self, trainer):
        self.now += 3600


def cost(*inputs):
    w = v1.get_variable("w", initializer=0.5)
    return tf.add_n([tf.reduce_mean(each) for each in inputs]) * w


def speeds(shapes, make_tracker=ThroughputTracker, strategy="single", sizes=(6,), epochs=1, steps=4):
    clock = Clock()
    trainer = tpk.SingleCostTrainer(strategy)
    data = [[np.ones([*dims], np.float32) for dims in sizes]] * 100
    signature = [tf.TensorSpec(shape, tf.float32, f"x{index}") for index, shape in enumerate(shapes)]
    trainer.setup_graph(signature, tpk.FeedInput(data), cost, lambda: v1.train.GradientDescentOptimizer(0.1))
    trainer.train(callbacks=[clock, make_tracker(clock=clock)], steps_per_epoch=steps, max_epoch=epochs)
    assert trainer.input_source.consumed == steps * epochs * trainer.strategy.num_replicas
    return {name: [value for _, value in trainer.monitors.get_history(name)] for name in trainer.monitors.names}


@pytest.mark.parametrize(
    ("shapes", "sizes", "strategy", "examples"),
    [
        ([[6, 2]], [[6, 2]], "single", 24),
        ([[None, 2], [None]], [[6, 2], [6]], "single", 24),
        ([None, []], [[6, 2], []], "single", 24),
        ([[None, 2]], [[6, 2]], REPLICATED, 48),
    ],
)
def test_examples_are_the_batches_of_all_towers(shapes, sizes, strategy, examples):
    found = speeds(shapes, strategy=strategy, sizes=sizes, epochs=2)
    assert found == {"steps_per_second": [4, 4], "examples_per_second": [examples, examples]}


@pytest.mark.parametrize(("shapes", "sizes"), [([[]], [[]]), ([[None], [None]], [[6], [5]])])
def test_where_inputs_do_not_tell_there_are_only_steps(shapes, sizes):
    assert speeds(shapes, sizes=sizes) == {"steps_per_second": [4]}


@pytest.mark.parametrize("name", ["examples_per_step", "samples_per_step"])
def test_the_examples_of_a_step_can_be_given(name):
    found = speeds([[]], lambda clock: ThroughputTracker(**{name: 512}, clock=clock), sizes=[[]])
    assert found == {"steps_per_second": [4], "examples_per_second": [2048]}


@pytest.mark.parametrize("given", [0, -1])
def test_a_number_of_examples_that_makes_no_sense_is_an_error(given):
    with pytest.raises(ConfigError, match=rf"ThroughputTracker: examples_per_step must be positive, not {given}"):
        ThroughputTracker(given)


@pytest.mark.parametrize(
    ("periods", "batches"),
    [
        ({"own": 1, "of_data": 1}, 4),  # The first objective takes no data, and measuring takes none for it.
        ({"own": 1, "of_data": 2}, 2),
        ({"of_data": 1, "also_of_data": 1}, 8),
        ({"of_data": 1, "also_of_data": 2}, 6),
    ],
)
@pytest.mark.parametrize("make_source", [tpk.QueueInput, lambda data: tpk.TensorInput(lambda: [tf.ones([6])])])
def test_each_run_of_a_step_that_takes_data_counts(periods, batches, make_source):
    def costs(x):
        w = v1.get_variable("w", initializer=0.5)
        return {"own": w * 2.0, "of_data": tf.reduce_mean(x) * w, "also_of_data": tf.reduce_sum(x) * w}

    def sgd():
        return v1.train.GradientDescentOptimizer(0.1)

    clock, trainer = Clock(), tpk.MultiObjectiveTrainer()
    objectives = [tpk.Objective(sgd, name=name, every=every) for name, every in periods.items()]
    source = make_source([[np.ones([6], np.float32)]] * 50)
    trainer.setup_graph([tf.TensorSpec([None], tf.float32, "x")], source, costs, objectives)
    trainer.train(callbacks=[clock, ThroughputTracker(clock=clock)], steps_per_epoch=4, max_epoch=2)
    assert list(trainer.history["examples_per_second"]) == [batches * 6, batches * 6]
    assert trainer.input_source.consumed in (0, 2 * batches)  # A `TensorInput` does not count.


def test_the_steps_of_a_run_count():
    clock, trainer = Clock(), tpk.SingleCostTrainer(steps_per_run=2)
    data = tpk.QueueInput([[np.ones([6], np.float32)]] * 50)
    trainer.setup_graph([tf.TensorSpec([None], tf.float32, "x")], data, cost, lambda: v1.train.AdamOptimizer())
    trainer.train(callbacks=[clock, ThroughputTracker(clock=clock)], steps_per_epoch=4, max_epoch=1)
    assert list(trainer.history["examples_per_second"]) == [4 * 6 / 0.5]
