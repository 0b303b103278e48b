"""Gradients are not gated, and are the same bits as if they were."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.graph.gradients import compute_gradients, gradient_ops_by_cost, recorded_gradients

v1 = tf.compat.v1


class Gated(v1.train.MomentumOptimizer):
    """An optimizer that gates gradients as it does by default, whatever it is told."""

    def compute_gradients(self, *args, gate_gradients=None, **options):
        return super().compute_gradients(*args, **options)


def model(image, label):
    x = image
    for number in range(2):
        x = layers.conv2d(x, 4, 3, padding="same", use_bias=False, name=f"conv{number}")
        x = tf.nn.relu(layers.batch_normalization(x, training=True, name=f"norm{number}"))
    table = v1.get_variable("table", [3, 4])
    x = tf.reduce_mean(x, [1, 2]) + tf.gather(table, label)
    x = tf.cond(tf.reduce_sum(x) > 0, lambda: layers.dense(x, 4, name="positive"), lambda: x * 2)
    x = tf.recompute_grad(lambda x: tf.tanh(x) * tf.reduce_mean(table, 0))(x)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=x))


def bits_after_training(make_optimizer, strategy):
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(4, 6, 6, 2)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(10)]
    signature = [tf.TensorSpec([4, 6, 6, 2], tf.float32, "image"), tf.TensorSpec([4], tf.int64, "label")]
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        trainer = tpk.SingleCostTrainer(strategy)
        trainer.setup_graph(signature, tpk.FeedInput(data), model, make_optimizer)
        config = v1.ConfigProto(intra_op_parallelism_threads=1)
        values = {}

        class Values(tpk.Callback):
            def trigger_epoch(self, trainer):
                variables = [*v1.global_variables(), *v1.local_variables()]
                values.update(trainer.sess.run({variable.op.name: variable for variable in variables}))

        trainer.train(callbacks=[Values()], steps_per_epoch=5, max_epoch=1, session_config=config)
    return {name: value.tobytes() for name, value in values.items()}


@pytest.mark.usefixtures("resource_variables")
@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
def test_the_gates_make_no_difference_of_a_bit(strategy):
    def make(kind):
        name = strategy if strategy == "single" else tpk.use(strategy, devices=["/cpu:0", "/cpu:1"])
        return bits_after_training(lambda: kind(0.1, 0.9), name)

    expected, found = make(Gated), make(v1.train.MomentumOptimizer)
    assert expected == found
    assert len({name for name in found if name.startswith(("conv", "norm", "table", "positive"))}) >= 9


def gates(use_resource):
    with tf.Graph().as_default() as graph:
        weights = [v1.get_variable(name, [2, 2], use_resource=use_resource) for name in ("first", "second")]
        cost = tf.reduce_sum(tf.matmul(weights[0], weights[1]))
        pairs = compute_gradients(v1.train.GradientDescentOptimizer(0.1), cost, weights)
        assert [variable for _, variable in pairs] == weights
        return [op.name for op in graph.get_operations() if "control_dependency" in op.name]


def test_gradients_of_resource_variables_do_not_wait_for_each_other():
    assert gates(use_resource=True) == []


def test_gradients_of_reference_variables_do():
    assert len(gates(use_resource=False)) == 2


def test_costs_and_gradients_are_found_in_the_graph():
    with tf.Graph().as_default() as graph:
        dense = v1.get_variable("dense", [2], initializer=v1.ones_initializer())
        table = v1.get_variable("table", [5, 2], initializer=v1.ones_initializer())
        cost = tf.reduce_sum(dense * tf.gather(table, [1, 1]), name="cost")
        pairs = compute_gradients(v1.train.AdamOptimizer(0.1), cost, [dense, table])
        recorded = recorded_gradients(graph)
        assert [each.variable for each in recorded] == ["dense", "table"]
        assert recorded[0].gradient is pairs[0][0]
        assert recorded[1].gradient is pairs[1][0].values
        assert all(each.cost is cost for each in recorded)


def test_the_ops_of_gradients_belong_to_their_cost():
    with tf.Graph().as_default() as graph:
        variables = [v1.get_variable(name, [2]) for name in ("first", "second")]
        costs = [tf.reduce_sum(variables[0]), tf.add_n([tf.reduce_sum(each**2) for each in variables])]
        expected = {
            cost.ref(): [
                gradient.op for gradient, _ in compute_gradients(v1.train.MomentumOptimizer(0.1, 0.9), cost, variables)
            ]
            for cost in costs
        }
        assert gradient_ops_by_cost(graph) == expected
        assert list(map(len, expected.values())) == [1, 2]
