"""The order of reads and updates in a step, checked by values in many steps and by dependencies in the graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.graph.determinism import unordered_updates
from tpk.strategies.update_order import after_reads
from tpk.tf_internals import build_loop

v1 = tf.compat.v1

# The order of reads and updates of reference variables is undefined.
pytestmark = pytest.mark.usefixtures("resource_variables")

STEPS = 60
RATE = 0.25
SIGNATURE = [tf.TensorSpec([2], tf.float32, "x")]
STRATEGIES = {
    "single": "single",
    "replicated": tpk.use("replicated", devices=2),
    "parameter_server": tpk.use("parameter_server", devices=2),
    "one async tower": tpk.use("async", devices=1),
}


def weights():
    return [v1.get_variable(name, initializer=tf.constant([1.0, 2.0])) for name in ("first", "second")]


def update(op):
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, op)


# Models whose gradients leave open when variables are read; `seen` is fetched.


def linear(x):
    first, second = weights()
    tf.identity(2 * first, name="seen")
    return tf.reduce_sum(first * x + second)


def linear_in_each(x):
    first, second = weights()
    product = first * second
    tf.identity(product, name="seen")
    return tf.reduce_sum(product * x)


def copied(x):
    first, second = weights()
    copy = v1.get_variable("copy", [2], trainable=False)
    update(copy.assign(first).op)
    return tf.reduce_sum(first * x + second, name="seen")


def averaged(x):
    first, second = weights()
    update(v1.train.ExponentialMovingAverage(0.5).apply([first, second]))
    return tf.reduce_sum(first * x + second, name="seen")


def of_rows(x):
    first, second = weights()
    rows = tf.gather(first, [0, 0, 1])
    copy = v1.get_variable("copy", [2], trainable=False)
    update(copy.assign(first).op)
    tf.identity(rows, name="seen")
    return tf.reduce_sum(rows) * x[0] + tf.reduce_sum(second)


def in_a_branch(x):
    first, second = weights()
    chosen = tf.cond(x[0] > 0, lambda: first + second, lambda: first - second)
    tf.identity(chosen, name="seen")
    return tf.reduce_sum(chosen * x)


def in_a_loop(x):
    first, second = weights()
    total = tf.while_loop(lambda i, _: i < 3, lambda i, total: (i + 1, total + first * second), [0, tf.zeros([2])])[1]
    tf.identity(total, name="seen")
    return tf.reduce_sum(total * x)


def in_a_function(x):
    first, second = weights()
    product = tf.function(lambda: first * second)()
    tf.identity(product, name="seen")
    return tf.reduce_sum(product * x)


def after_something(x):
    first, second = weights()
    with tf.control_dependencies([x]):
        product = first * second
    tf.identity(product, name="seen")
    return tf.reduce_sum(product * x)


def recomputed(x):
    """The gradient of `second` is there before `first` is read again for its own, and it does not take `second`."""
    first, second = weights()
    sum_of_products = tf.recompute_grad(lambda x: tf.reduce_sum((x + second) * first))(x)
    tf.identity(first, name="seen")
    return sum_of_products


def product(first, second):
    return first * second


def of_product(first, second):
    return second, first


# For each model, what `seen` is, and the gradients of the two variables, where x is all ones.
MODELS = {
    linear: (lambda first, second: 2 * first, lambda first, second: (1, 1)),
    linear_in_each: (product, of_product),
    copied: (lambda first, second: sum(first + second), lambda first, second: (1, 1)),
    averaged: (lambda first, second: sum(first + second), lambda first, second: (1, 1)),
    of_rows: (lambda first, second: first[[0, 0, 1]], lambda first, second: (np.array([2, 1]), 1)),
    in_a_branch: (lambda first, second: first + second, lambda first, second: (1, 1)),
    in_a_loop: (lambda first, second: 3 * first * second, lambda first, second: (3 * second, 3 * first)),
    in_a_function: (product, of_product),
    after_something: (product, of_product),
    recomputed: (lambda first, second: first, lambda first, second: (1 + second, first)),
}


class Watch(tpk.Callback):
    """Fetches what the towers see, in each step; and the variables, between the steps."""

    def setup_graph(self, trainer):
        towers = trainer.towers.training()
        self.fetches = [tower.get_tensor("seen") for tower in towers]
        self.variables = {each.op.name: each for each in [*v1.global_variables(), *v1.local_variables()]}
        self.seen, self.values = [], []

    def before_train(self, trainer):
        self.values.append(trainer.sess.run(self.variables))

    def before_run(self, run_context):
        return self.fetches

    def after_run(self, run_context, run_values):
        self.seen.append(run_values.results)
        self.values.append(run_context.session.run(self.variables))


def set_up(strategy, model, rate=RATE):
    trainer = tpk.SingleCostTrainer(STRATEGIES[strategy])
    source = tpk.TensorInput(lambda: [tf.ones([2])])
    trainer.setup_graph(SIGNATURE, source, model, lambda: v1.train.GradientDescentOptimizer(rate))
    return trainer


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_graph_says_that_towers_read_before_the_update(strategy, model):
    trainer = set_up(strategy, model)
    with trainer.graph.as_default():
        seen = [tower.get_tensor("seen") for tower in trainer.towers.training()]
        assert unordered_updates([trainer.train_op, *seen, *v1.get_collection(v1.GraphKeys.UPDATE_OPS)]) == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_towers_see_the_variables_as_they_were_before_the_step(strategy, model):
    watch, rate = Watch(), 2.0**-10
    set_up(strategy, model, rate).train(callbacks=[watch, "RunUpdateOps"], steps_per_epoch=STEPS, max_epoch=1)
    average, (seen_of, gradients_of) = np.float32([1, 2]), MODELS[model]
    for before, seen, after in zip(watch.values, watch.seen, watch.values[1:], strict=False):
        first, second = before["first"], before["second"]
        for of_tower in seen:
            np.testing.assert_allclose(of_tower, seen_of(first, second), rtol=1e-6, atol=1e-6)
        for name, gradient in zip(("first", "second"), gradients_of(first, second), strict=True):
            np.testing.assert_allclose(after[name], before[name] - rate * gradient, rtol=1e-6, atol=1e-6)
        if "copy" in after:
            np.testing.assert_array_equal(after["copy"], first)
        if "first/ExponentialMovingAverage" in after:
            average = (average + first) / 2
            np.testing.assert_allclose(after["first/ExponentialMovingAverage"], average, rtol=1e-6, atol=1e-6)


def test_ops_of_other_fetches_do_not_run_with_the_update():
    """The order must not make an update op run that was not requested."""

    def conditional(x):
        first, _ = weights()
        copy = v1.get_variable("copy", initializer=tf.zeros([2]), trainable=False)
        update(tf.cond(x[0] > 0, lambda: copy.assign(first), lambda: copy.value()).op)
        with tf.control_dependencies([copy.assign_add([1.0, 1.0])]):
            tf.identity(first, name="seen")
        return tf.reduce_sum(first * x)

    trainer = set_up("single", conditional)
    with trainer.graph.as_default(), v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(trainer.train_op)
        assert sess.run(v1.global_variables()[-1]).tolist() == [0, 0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_value_from_before_and_the_one_from_after_can_be_fetched_with_the_step(strategy):
    def named(x):
        first, _ = weights()
        tf.identity(first, name="before")
        return tf.reduce_sum(first * x)

    class Fetch(tpk.Callback):
        def setup_graph(self, trainer):
            main = trainer.towers.training()[0]
            with tf.control_dependencies([trainer.train_op]):
                after = main.get_variable("first").read_value()
            self.fetches, self.fetched = [main.get_tensor("before"), after], []

        def before_run(self, run_context):
            return self.fetches

        def after_run(self, run_context, run_values):
            self.fetched.append(run_values.results)

    fetch = Fetch()
    set_up(strategy, named).train(callbacks=[fetch], steps_per_epoch=STEPS, max_epoch=1)
    expected = np.float32([1, 2])
    for before, after in fetch.fetched:
        np.testing.assert_array_equal(before, expected)
        np.testing.assert_array_equal(after, expected := expected - RATE)


@pytest.mark.parametrize(
    ("sparse", "expected"), [(True, {"ResourceGather"}), (False, {"ResourceGather", "ReadVariableOp"})]
)
def test_a_table_is_not_read_as_a_whole_for_the_sake_of_the_order(sparse, expected):
    with tf.Graph().as_default() as graph:
        table = v1.get_variable("table", [10, 3])
        tf.norm(table)  # It copies a table that is updated row by row.
        cost = tf.reduce_sum(tf.gather(table, [1, 2]))
        (gradient,) = tf.gradients(cost, table)
        gradient = gradient if sparse else tf.convert_to_tensor(gradient)
        with after_reads(graph.get_operations(), [cost], [(gradient, table)]):
            (reads,) = tf.no_op().control_inputs
        assert {op.type for op in reads.control_inputs} == expected


def test_updates_wait_for_the_end_of_a_loop_of_tensorflow_1():
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", [])
        cost = build_loop(lambda total: total < 3.0, lambda total: total + variable, tf.zeros([]))
        with after_reads(graph.get_operations(), [cost], [(tf.ones([]), variable)]):
            (reads,) = tf.no_op().control_inputs
        assert {op.type for op in reads.control_inputs} == {"Exit"}


def test_without_reads_nothing_waits():
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", [])
        with after_reads(graph.get_operations(), [tf.zeros([])], [(tf.zeros([]), variable)]):
            assert tf.no_op().control_inputs == []
