from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks import LearningRateMonitor
from tpk.graph import SkipNonFiniteOptimizer

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([2], tf.float32, "x")]
REPLICATED = tpk.use("replicated", devices=2)


def cost(x):
    return tf.reduce_mean(x * v1.get_variable("w", initializer=0.5), name="cost")


def variable_rate():
    return v1.get_variable("learning_rate", initializer=0.5, trainable=False)


def train(optimizer, *callbacks, strategy="single", func=cost, epochs=2):
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2])]), func, optimizer)
    trainer.train(callbacks=[*callbacks, LearningRateMonitor()], steps_per_epoch=3, max_epoch=epochs)
    return reported(trainer)


def reported(trainer):
    return {name: [value for _, value in trainer.monitors.get_history(name)] for name in trainer.monitors.names}


def by_the_step():
    step = v1.train.get_or_create_global_step()
    return v1.train.AdamOptimizer(lambda: v1.train.polynomial_decay(1.0, step, 10, 0.0))


def by_the_data():
    return v1.train.AdamOptimizer(tf.reduce_mean(v1.placeholder_with_default([0.5], [None])))


def decayed():
    return v1.train.polynomial_decay(1.0, v1.train.get_or_create_global_step(), 10, 0.0)


@pytest.mark.parametrize("strategy", ["single", REPLICATED])
@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (lambda: v1.train.AdamOptimizer(0.25), [0.25, 0.25]),
        (lambda: v1.train.GradientDescentOptimizer(np.float32(0.25)), [0.25, 0.25]),
        (lambda: v1.train.RMSPropOptimizer(variable_rate()), [0.5, 0.5]),
        (lambda: v1.train.AdamOptimizer(lambda: 0.125), [0.125, 0.125]),
        # What it is after three or six steps.
        (lambda: v1.train.MomentumOptimizer(decayed(), 0.9), [0.7, 0.4]),
        (by_the_step, [0.7, 0.4]),
        (
            lambda: tpk.MovingAverageOptimizer(SkipNonFiniteOptimizer(v1.train.AdamOptimizer(0.25))),
            [0.25] * 2,
        ),
        (lambda: tpk.AccumGradOptimizer(v1.train.GradientDescentOptimizer(decayed()), 2), [0.7, 0.4]),
    ],
)
def test_the_learning_rate_is_that_of_the_optimizer_however_it_was_given(optimizer, expected, strategy):
    assert train(optimizer, strategy=strategy) == {"learning_rate": pytest.approx(expected, rel=1e-6)}


def test_a_rate_that_is_set_after_the_epoch_is_that_of_the_next_one():
    setter = tpk.ScheduledHyperParamSetter("learning_rate", [(0, 0.5), (1, 0.25), (2, 0.125)])
    assert train(lambda: v1.train.AdamOptimizer(variable_rate()), setter) == {"learning_rate": [0.5, 0.25]}


def test_each_objective_has_its_own():
    def costs(x):
        return {name: tf.reduce_mean(x * v1.get_variable(name, initializer=0.5)) for name in ("first", "second")}

    trainer = tpk.MultiObjectiveTrainer()
    rates = {"first": 0.5, "second": 0.25}
    objectives = [
        tpk.Objective(lambda rate=rate: v1.train.AdamOptimizer(rate), name=name, variables=name)
        for name, rate in rates.items()
    ]
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2])]), costs, objectives)
    trainer.train(callbacks=["LearningRateMonitor"], steps_per_epoch=2, max_epoch=1)
    assert reported(trainer) == {"first/learning_rate": [0.5], "second/learning_rate": [0.25]}


@pytest.mark.tf2_only("enters a variable scope outside a graph")
def test_what_the_model_reports_itself_is_reported_once():
    def func(x):
        v1.summary.scalar("learning_rate-summary", variable_rate())
        return cost(x)

    with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
        found = train(lambda: v1.train.AdamOptimizer(0.5), tpk.MergeAllSummaries(), func=func)
    assert found == {"learning_rate": [0.5, 0.5]}


class Mystery(v1.train.Optimizer):
    def __init__(self):
        super().__init__(False, "Mystery")

    def _resource_apply_dense(self, grad, var):
        return tf.raw_ops.AssignSubVariableOp(resource=var.handle, value=grad)

    def _apply_dense(self, grad, var):
        return var.assign_sub(grad, read_value=False)


@pytest.mark.parametrize("optimizer", [Mystery, by_the_data])
def test_an_optimizer_whose_learning_rate_cannot_be_told_has_none(optimizer):
    assert train(optimizer) == {}
