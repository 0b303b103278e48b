"""Histograms and norms of gradients: those that were computed, when it is time, and nothing at other times."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from guarded_trainings import REPLICATED, SIGNATURE, assert_same, data, momentum, train, two_costs

import tpk
from tpk.callbacks import GradientHistogram
from tpk.errors import ConfigError
from tpk.graph.objective import Objective

v1 = tf.compat.v1


class Histograms(tpk.Monitor):
    def __init__(self):
        self.taken = []

    def process_histogram(self, name, values):
        self.taken.append((self.trainer.global_step, name, values.tolist()))


def two_variables(x):
    """The gradient of ``a`` is x, that of ``scope/b`` twice the sum of x."""
    a = v1.get_variable("a", [2], initializer=v1.zeros_initializer())
    with v1.variable_scope("scope"):
        b = v1.get_variable("b", initializer=0.0)
    return tf.reduce_sum(a * x) + 2 * b * tf.reduce_sum(x)


def steps_of(trainer, name):
    return trainer.history.steps(name).tolist()


@pytest.mark.parametrize("strategy", ["single", REPLICATED, tpk.use("parameter_server", devices=2)], ids=str)
@pytest.mark.parametrize(("k", "steps"), [(None, [6, 12]), (5, [5, 10])])
def test_gradients_of_the_main_tower_are_reported_when_it_is_time(strategy, k, steps):
    histograms = Histograms()
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(strategy)
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data()), two_variables, momentum)
        callbacks = [GradientHistogram(k)]
        trainer.train(callbacks=callbacks, monitors=[histograms], steps_per_epoch=6, max_epoch=2)
    towers = 1 if strategy == "single" else 2
    rows = [data()[(step - 1) * towers % 12][0] for step in steps]
    assert histograms.taken == [
        item
        for step, row in zip(steps, rows, strict=True)
        for item in ((step, "gradients/a", row.tolist()), (step, "gradients/scope/b", [2 * float(row.sum())]))
    ]
    norms = {name: trainer.history[f"gradients/{name}"] for name in ("a/norm", "scope/b/norm", "global_norm")}
    np.testing.assert_allclose(norms["a/norm"], [np.linalg.norm(row) for row in rows], rtol=1e-6)
    np.testing.assert_allclose(norms["global_norm"], np.hypot(norms["a/norm"], norms["scope/b/norm"]), rtol=1e-6)
    assert steps_of(trainer, "gradients/global_norm") == steps


def test_the_training_is_the_same_and_other_steps_fetch_nothing():
    callback, requests = GradientHistogram(), []
    spy = tpk.CallbackFactory(before_run=lambda self, run_context: requests.append(callback.before_run(run_context)))
    looked_at = train(callback, callbacks=[spy], make_input=tpk.QueueInput, epochs=2)
    plain = train(tpk.CallbackFactory(before_train=lambda self: None), make_input=tpk.QueueInput, epochs=2)
    assert [step for step, request in enumerate(requests, 1) if request is not None] == [6, 12]
    assert_same(plain.final, looked_at.final)


def test_of_several_steps_in_a_run_the_last_one_counts():
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(steps_per_run=4)
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data()), two_variables, momentum)
        trainer.train(callbacks=[GradientHistogram(), GradientHistogram(5)], steps_per_epoch=6, max_epoch=2)
    assert steps_of(trainer, "gradients/a/norm") == [6, 6, 10, 12]
    rows = [data()[step - 1][0] for step in (6, 6, 10, 12)]
    np.testing.assert_allclose(trainer.history["gradients/a/norm"], [np.linalg.norm(row) for row in rows], rtol=1e-6)


@pytest.mark.parametrize("update", ["in_turn", "together"])
def test_each_objective_has_its_own_in_the_next_step_that_minimizes_it(update):
    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update=update)
        objectives = [
            Objective(lambda: v1.train.GradientDescentOptimizer(0.1), name=name, variables=name, every=every)
            for name, every in (("first", 1), ("second", 2))
        ]
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data(count=40)), two_costs, objectives)
        trainer.train(callbacks=[GradientHistogram(3)], steps_per_epoch=9, max_epoch=1)
    assert steps_of(trainer, "gradients/cost_of_first/first/norm") == [3, 6, 9]
    assert steps_of(trainer, "gradients/cost_of_second/second/norm") == [4, 6]
    assert steps_of(trainer, "gradients/cost_of_second/global_norm") == [4, 6]


def sparse(x):
    table = v1.get_variable("table", [5, 2], initializer=v1.ones_initializer())
    rows = tf.nn.embedding_lookup(table, tf.cast(x[:1], tf.int32))
    none = tf.nn.embedding_lookup(v1.get_variable("none", [5, 2]), tf.zeros([0], tf.int32))
    return 3 * tf.reduce_sum(rows) + tf.reduce_sum(none)


def test_a_sparse_gradient_is_taken_for_its_values_and_may_be_empty():
    histograms = Histograms()
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer()
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data()), sparse, lambda: v1.train.GradientDescentOptimizer(0.1))
        trainer.train(callbacks=[GradientHistogram()], monitors=[histograms], steps_per_epoch=2, max_epoch=1)
    assert histograms.taken == [(2, "gradients/table", [3.0, 3.0])]
    assert trainer.history["gradients/none/norm"].tolist() == [0.0]


@pytest.mark.parametrize("stop_at", [4, 7, 12])
def test_a_resumed_training_reports_the_same(tmp_path, stop_at):
    def run(run_dir, stop=None):
        with tf.Graph().as_default():
            trainer = tpk.MultiObjectiveTrainer()
            objectives = [
                Objective(lambda: v1.train.GradientDescentOptimizer(0.1), name=name, variables=name, every=every)
                for name, every in (("first", 1), ("second", 2))
            ]
            trainer.setup_graph(SIGNATURE, tpk.QueueInput(data(count=40)), two_costs, objectives)
            end = tpk.CallbackFactory(trigger_step=lambda self: self.global_step == stop and stop_training())
            callbacks = [GradientHistogram(7), end, tpk.ModelSaver()]
            trainer.train(callbacks=callbacks, steps_per_epoch=12, max_epoch=2, run_dir=run_dir, resume="auto")
        return trainer.history

    def stop_training():
        raise tpk.StopTraining("enough")

    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", stop_at)
    parts = run(tmp_path / "parts")
    # In step 7 the second objective has no turn; whoever stops there still owes it.
    assert whole.steps("gradients/cost_of_second/second/norm").tolist() == [8, 14, 22]
    for name in whole:
        assert (parts.of(name), name) == (whole.of(name), name)


def test_a_trainer_whose_gradients_nobody_knows_is_told(run_steps):
    with pytest.raises(ConfigError, match=r"does not know the gradients of a TinyTrainer\. Compute them by"):
        run_steps(GradientHistogram())


def test_a_wrong_period_is_told():
    with pytest.raises(ConfigError, match="GradientHistogram: every_k_steps must be an integer, 1 or more, not 0"):
        GradientHistogram(0)
