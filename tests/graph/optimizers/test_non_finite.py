"""Checks that fail a run, and updates that are skipped: nothing that is not finite gets into a variable."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.graph.objective import Objective
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.graph.optimizers.non_finite import (
    GATES_KEY,
    SkipNonFiniteOptimizer,
    all_finite,
    check_all_finite,
    check_each_finite,
    read_failure,
    skip_non_finite,
)

v1 = tf.compat.v1
BAD = [np.nan, np.inf, -np.inf]


def adam():
    return v1.train.AdamOptimizer(0.1)


class Session:
    """A model of one variable, whose gradient is fed, and its optimizer."""

    def __init__(self, make_optimizer):
        with tf.Graph().as_default() as self.graph:
            self.gradient = v1.placeholder(tf.float32, [2])
            w = v1.get_variable("w", [2], initializer=v1.ones_initializer())
            self.optimizer = make_optimizer()
            pairs = self.optimizer.compute_gradients(tf.reduce_sum(w * self.gradient))
            self.train_op = self.optimizer.apply_gradients(pairs)
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def step(self, *gradient):
        self.session.run(self.train_op, {self.gradient: np.float32(gradient)})
        return self

    def values(self):
        variables = self.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        return {each.op.name: self.session.run(each).tolist() for each in variables}


def without_counts(values):
    return {name: value for name, value in values.items() if not name.startswith("SkipNonFinite/")}


# Checks.


CHECKS = [check_all_finite, check_each_finite]


def run_check(values, make_check=check_all_finite):
    with tf.Graph().as_default():
        tensors = [(name, tf.constant(value, dtype)) for name, value, dtype in values]
        check = make_check(tensors, "Guard")
        assert isinstance(check, tf.Operation)
        v1.Session().run(check)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("make_check", CHECKS)
def test_a_check_reports_the_counts_of_each_tensor(dtype, make_check):
    values = [("fine", [1.0, 2.0], dtype), ("bad", [[np.nan, np.inf], [-np.inf, 1]], dtype), ("worse", np.nan, dtype)]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        run_check(values, make_check)
    assert read_failure(caught.value, "Guard") == {"bad": "1 NaN, 2 Inf of 4", "worse": "1 NaN, 0 Inf of 1"}
    assert read_failure(caught.value, "Guard#2") is None


@pytest.mark.parametrize("make_check", CHECKS)
def test_a_check_of_finite_tensors_does_nothing(make_check):
    values = [("large", 3e38, tf.float32), ("empty", np.zeros((0, 3)), tf.float32), ("zero", 0.0, tf.bfloat16)]
    run_check(values, make_check)


def test_a_check_names_ten_of_many_and_long_names_in_full():
    values = [(f"{'scope/' * 60}{index}", np.nan, tf.float32) for index in range(12)]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        run_check(values)
    assert list(read_failure(caught.value, "Guard")) == [name for name, _, _ in values[:10]]


def test_another_failure_is_not_that_of_a_check():
    with tf.Graph().as_default(), pytest.raises(tf.errors.InvalidArgumentError) as caught:
        v1.Session().run(tf.debugging.Assert(tf.constant(False), ["<Guard"]))
    assert read_failure(caught.value, "Guard") is None
    assert read_failure(ValueError("<Guard: x has 1 NaN>"), "Guard") is None


def test_all_finite_checks_the_values_of_sparse_gradients():
    with tf.Graph().as_default():
        slices = [tf.IndexedSlices(tf.constant([value, 1.0]), tf.constant([0, 2])) for value in (0.0, np.inf)]
        assert v1.Session().run([all_finite([each]) for each in slices]) == [True, False]


# Skipped updates.


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_update_changes_nothing_but_the_counts(bad):
    session = Session(lambda: SkipNonFiniteOptimizer(adam())).step(1, 2)
    before = session.values()
    session.step(1, bad).step(bad, 0)
    after = session.values()
    assert without_counts(after) == without_counts(before)
    assert (after["SkipNonFinite/skipped"], after["SkipNonFinite/skipped_in_a_row"]) == (2, 2)
    session.step(1, 2)
    after = session.values()
    assert after["w"] != before["w"]
    assert (after["SkipNonFinite/skipped"], after["SkipNonFinite/skipped_in_a_row"]) == (2, 0)


def test_it_trains_as_the_optimizer_alone_would_without_the_bad_steps():
    alone, skipping = Session(adam), Session(lambda: SkipNonFiniteOptimizer(adam()))
    for number, gradient in enumerate(np.random.default_rng(0).normal(size=(8, 2))):
        alone.step(*gradient)
        if number % 3 == 0:
            skipping.step(BAD[number % 3], 1)
        skipping.step(*gradient)
    assert without_counts(skipping.values()) == alone.values()


def test_around_accumulation_a_bad_step_is_left_out_and_inside_all_that_was_accumulated():
    around = Session(lambda: SkipNonFiniteOptimizer(AccumGradOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)))
    inside = Session(lambda: AccumGradOptimizer(SkipNonFiniteOptimizer(v1.train.GradientDescentOptimizer(1.0)), 2))
    for session in (around, inside):
        session.step(1, 1).step(np.nan, 0)
    assert around.values()["w"] == inside.values()["w"] == [1, 1]
    assert around.step(3, 3).values()["w"] == [-1, -1]
    assert inside.step(3, 3).step(1, 1).values()["w"] == [-1, -1]
    assert [session.values()["SkipNonFinite/skipped"] for session in (around, inside)] == [1, 1]


def test_its_variables_are_among_those_of_the_optimizer_and_two_of_one_name_are_an_error():
    with tf.Graph().as_default():
        optimizer = SkipNonFiniteOptimizer(adam(), name="generator/Skip")
        assert [each.op.name for each in optimizer.variables()] == [
            "generator/Skip/skipped",
            "generator/Skip/skipped_in_a_row",
        ]
        with pytest.raises(tpk.ConfigError, match=r"SkipNonFiniteOptimizer .*in this graph already"):
            SkipNonFiniteOptimizer(adam(), name="generator/Skip")
        assert tf.compat.v1.get_collection(GATES_KEY) == [optimizer]
    with pytest.raises(tpk.ConfigError, match="executes eagerly"):
        SkipNonFiniteOptimizer(adam())


BATCHES = [[np.float32([value])] for value in (1, 2, np.inf, 3, -1, 2)]


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
def test_all_replicates_skip_alike(strategy):
    """One of two towers gets a bad datapoint in the second step; all of them leave that step out."""
    towers = 1 if strategy == "single" else 2

    def cost(x):
        w = v1.get_variable("w", initializer=1.0)
        return tf.reduce_mean(x) * w

    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(strategy if towers == 1 else tpk.use(strategy, devices=towers))
        trainer.setup_graph(
            [tf.TensorSpec([None], tf.float32, "x")],
            tpk.FeedInput(BATCHES),
            cost,
            lambda: SkipNonFiniteOptimizer(v1.train.GradientDescentOptimizer(1.0)),
        )
        values = []

        class Values(tpk.Callback):
            def trigger_step(self, trainer):
                names = ["w", *(["tower1/w"] if strategy == "replicated" else []), "SkipNonFinite/skipped"]
                values.append(trainer.sess.run([f"{name}/Read/ReadVariableOp:0" for name in names]))

        trainer.train(callbacks=[Values], steps_per_epoch=6 // towers, max_epoch=1)
    if towers == 1:
        assert values == [[0, 0], [-2, 0], [-2, 1], [-5, 1], [-4, 1], [-6, 1]]
    else:
        expected = [(-0.5, 0), (-0.5, 1), (-1, 1)]
        assert [(row[0], row[-1]) for row in values] == expected
        assert all(row[0] == row[-2] for row in values)


def test_several_objectives_skip_each_for_itself():
    def costs(x):
        first, second = (v1.get_variable(name, initializer=0.0) for name in ("first", "second"))
        return {"first": tf.reduce_sum(first * x), "second": tf.reduce_sum(second * tf.minimum(x, 1.0))}

    def optimizer(name):
        return lambda: SkipNonFiniteOptimizer(v1.train.GradientDescentOptimizer(1.0), name=f"{name}/Skip")

    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update="together")
        objectives = [Objective(optimizer(name), name=name, variables=name) for name in ("first", "second")]
        trainer.setup_graph([tf.TensorSpec([None], tf.float32, "x")], tpk.FeedInput(BATCHES[:3]), costs, objectives)
        final = {}

        class Values(tpk.Callback):
            def after_train(self, trainer):
                for name in ("first", "second", "first/Skip/skipped", "second/Skip/skipped"):
                    final[name] = trainer.sess.run(f"{name}/Read/ReadVariableOp:0")

        trainer.train(callbacks=[Values], steps_per_epoch=3, max_epoch=1)
    assert final == {"first": -3, "second": -3, "first/Skip/skipped": 1, "second/Skip/skipped": 0}


# Moving averages.


def test_update_ops_skip_values_that_are_not_finite():
    with tf.Graph().as_default():
        value = v1.placeholder(tf.float32, [2])
        variables = [v1.get_variable(name, initializer=[1.0, 2.0]) for name in ("added", "subtracted", "assigned")]
        added, subtracted, assigned = variables
        updates = [added.assign_add(value), subtracted.assign_sub(value).op, assigned.assign(value)]
        with tf.control_dependencies([updates[0]]):
            after = added.read_value()
        counter = v1.get_variable("counter", initializer=0)
        skip_non_finite([*updates, counter.assign_add(1), tf.no_op()])
        session = v1.Session()
        session.run(v1.global_variables_initializer())

        def run(*numbers):
            session.run([updates, after], {value: numbers})
            return session.run(variables)

        for bad in BAD:
            np.testing.assert_array_equal(run(3, bad), [[1, 2]] * 3)
        np.testing.assert_array_equal(run(3, 4), [[4, 6], [-2, -2], [3, 4]])
