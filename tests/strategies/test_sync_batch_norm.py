"""The truth that synchronized batch normalization owes: with it, N towers equal one on the concatenation."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.graph.objective import Objective
from tpk.strategies import ParameterServerStrategy, ReplicatedStrategy, SingleStrategy, get_post_init_ops
from tpk.tower.context import get_current_tower_context

v1 = tf.compat.v1

STEPS = 12
SYNCHRONOUS = ["replicated", "parameter_server"]
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
}


class Model(tpk.ModelDesc):
    """Two normalized layers, of vectors or of images; the second has the gradients of the first flow through it."""

    def __init__(self, sync=True, images=False, optimizer="sgd", dtype=tf.float32, **options):
        self.sync, self.images, self.make_optimizer, self.dtype = sync, images, OPTIMIZERS[optimizer], dtype
        self.options = {"momentum": 0.8, **options}

    def inputs(self):
        shape = [None, 4, 3, 2] if self.images else [None, 5]
        return [tf.TensorSpec(shape, self.dtype, "x"), tf.TensorSpec([None, 2], self.dtype, "y")]

    def build_graph(self, x, y):
        for index, units in enumerate((6, 2)):
            initializer = v1.glorot_uniform_initializer(seed=index)
            if self.images:
                x = layers.conv2d(x, units, 2, use_bias=False, kernel_initializer=initializer)
            else:
                x = layers.dense(x, units, use_bias=False, kernel_initializer=initializer)
            training = get_current_tower_context().is_training
            x = layers.batch_normalization(x, training=training, sync=self.sync, name=f"bn{index}", **self.options)
            x = tf.tanh(x)
        output = tf.reduce_mean(x, [1, 2]) if self.images else x
        return tf.reduce_mean((output - y) ** 2, name="cost")

    def optimizer(self):
        return self.make_optimizer()


def batches(sizes, images=False):
    # Far from zero, and with different scales, so that the statistics of the batches differ.
    rng = np.random.default_rng(3)
    shape = (4, 3, 2) if images else (5,)
    return [
        [
            rng.normal(3.0, 1 + index % 4, size=(size, *shape)).astype(np.float32),
            rng.normal(size=(size, 2)).astype(np.float32),
        ]
        for index, size in enumerate(sizes)
    ]


def concatenated(data, count):
    return [
        [np.concatenate(component) for component in zip(*data[start : start + count], strict=True)]
        for start in range(0, len(data), count)
    ]


class Variables(tpk.Callback):
    def after_train(self, trainer):
        variables = [*v1.global_variables(), *v1.local_variables()]
        self.values = dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


def train(strategy, data, model, steps=STEPS, callbacks=()):
    variables = Variables()
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    trainer.train(callbacks=["RunUpdateOps", *callbacks, variables], steps_per_epoch=steps, max_epoch=1)
    return variables.values


def differences(many, one):
    return {name: float(np.max(np.abs(many[name] - value))) for name, value in one.items()}


def assert_equal(many, one, tolerance=1e-4):
    assert "bn1/moving_variance" in one
    for name, value in one.items():
        # Sums in another order.
        np.testing.assert_allclose(many[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_n_towers_equal_one_on_the_concatenation(strategy, optimizer, count):
    data = batches([4] * STEPS * count)
    many = train(tpk.use(strategy, devices=count), data, Model(optimizer=optimizer, dtype=tf.float64))
    one = train("single", concatenated(data, count), Model(optimizer=optimizer, dtype=tf.float64))
    assert_equal(many, one, tolerance=1e-9)


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_they_do_in_float32(strategy):
    data = batches([4] * STEPS * 2)
    assert_equal(train(tpk.use(strategy, devices=2), data, Model()), train("single", concatenated(data, 2), Model()))


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_without_synchronization_they_do_not(strategy):
    data = batches([4] * STEPS * 2)
    many = train(tpk.use(strategy, devices=2), data, Model(sync=False))
    one = train("single", concatenated(data, 2), Model(sync=False))
    different = differences(many, one)
    for name in ("dense/kernel", "bn0/beta", "bn0/moving_mean", "bn0/moving_variance"):
        assert different[name] > 0.01, name


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"axis": 1}, {"axis": (1, -1)}], ids=str)
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_images_too_as_the_fused_kernel_does_it_for_one_tower(strategy, options):
    data = batches([3] * STEPS * 2, images=True)
    many = train(tpk.use(strategy, devices=2), data, Model(images=True, **options))
    one = train("single", concatenated(data, 2), Model(images=True, **options))
    assert_equal(many, one)


def test_replicates_stay_identical_bit_by_bit_with_their_averages():
    data = batches([4] * STEPS * 3)
    many = train(tpk.use("replicated", devices=3), data, Model(optimizer="adam"))
    copies = {name: value for name, value in many.items() if name.startswith("tower")}
    assert {"tower1/bn0/moving_mean", "tower2/bn1/moving_variance", "tower2/dense/kernel/Adam"} <= copies.keys()
    for name, value in copies.items():
        np.testing.assert_array_equal(value, many[name.split("/", 1)[1]], err_msg=name)


class SumCost(Model):
    """A cost that is a sum over examples, so the sum over towers equals the cost of the concatenation."""

    def build_graph(self, x, y):
        return super().build_graph(x, y) * tf.cast(tf.shape(x)[0], tf.float32)


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_batches_of_different_sizes_count_by_their_elements(strategy):
    data = batches([2, 7] * STEPS)

    class Halved(SumCost):
        """The mean over the two towers is half of the sum."""

        def build_graph(self, x, y):
            return super().build_graph(x, y) / 2

    many = train(tpk.use(strategy, devices=2), data, SumCost())
    one = train("single", concatenated(data, 2), Halved())
    assert_equal(many, one)


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_a_flag_that_only_the_step_knows(strategy):
    class Flagged(Model):
        def build_graph(self, x, y):
            flag = v1.placeholder_with_default(get_current_tower_context().is_training, [])
            x = layers.batch_normalization(layers.dense(x, 2, kernel_initializer="ones"), training=flag, sync=True)
            return tf.reduce_mean((tf.tanh(x) - y) ** 2)

    data = batches([4] * STEPS * 2)
    many = train(tpk.use(strategy, devices=2), data, Flagged())
    one = train("single", concatenated(data, 2), Flagged())
    assert "batch_normalization/moving_mean" in one
    np.testing.assert_allclose(many["dense/kernel"], one["dense/kernel"], rtol=3e-4)
    for name in ("moving_mean", "moving_variance", "gamma", "beta"):
        name = f"batch_normalization/{name}"
        np.testing.assert_allclose(many[name], one[name], rtol=3e-4, atol=3e-5, err_msg=name)


def test_the_variance_is_right_if_the_mean_is_large():
    """Sums of squares would lose it in float32."""

    class Shifted(Model):
        def build_graph(self, x, y):
            shifted = layers.batch_normalization(x + 3000.0, training=True, sync=True, momentum=0.0)
            return tf.reduce_mean(shifted * v1.get_variable("w", [5]))

    data = batches([50, 50])
    many = train(tpk.use("parameter_server", devices=2), data, Shifted(), steps=1)
    expected = np.var(np.concatenate([data[0][0], data[1][0]]).astype(np.float64), axis=0)
    np.testing.assert_allclose(many["batch_normalization/moving_variance"], expected, rtol=1e-3)


def test_half_precision_is_summed_in_float32():
    class Half(Model):
        def build_graph(self, x, y):
            x = layers.batch_normalization(tf.cast(x, tf.float16) * 100, training=True, sync=True, momentum=0.0)
            assert x.dtype == tf.float16
            return tf.reduce_mean(tf.cast(x, tf.float32) * v1.get_variable("w", [5]))

    data = batches([50, 50])
    many = train(tpk.use("parameter_server", devices=2), data, Half(), steps=1)
    expected = np.concatenate([data[0][0], data[1][0]]).mean(0) * 100
    np.testing.assert_allclose(many["batch_normalization/moving_mean"], expected, rtol=1e-2)
    assert np.all(np.isfinite(many["batch_normalization/moving_variance"]))


def sums_in(graph):
    return [op.name for op in graph.get_operations() if "needs_every_tower" in op.name]


@pytest.mark.parametrize("strategy", ["single", tpk.use("replicated", devices=1)], ids=["single", "one_replicate"])
def test_with_one_tower_it_has_no_effect(strategy):
    graphs = []
    for sync in (True, False):
        model = Model(sync=sync, images=True)
        trainer = tpk.SingleCostTrainer(strategy)
        source = tpk.DummyConstantInput([[2, 4, 3, 2], [2, 2]])
        trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
        graphs.append([(op.type, op.name) for op in trainer.graph.get_operations()])
    assert graphs[0] == graphs[1]


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_inference_uses_the_averages(strategy):
    data = batches([4] * 8)

    class Look(tpk.Callback):
        def setup_graph(self, trainer):
            before = sums_in(trainer.graph)
            trainer.get_predictor(["x", "y"], ["cost"])
            assert sums_in(trainer.graph) == before != []

        def trigger_epoch(self, trainer):
            self.cost = trainer.get_predictor(["x", "y"], ["cost"])(*data[0])[0]

    looks = []
    for used, feed in ((tpk.use(strategy, devices=2), data), ("single", concatenated(data, 2))):
        looks.append(Look())
        if used == "single":
            looks[-1].setup_graph = lambda trainer: trainer.get_predictor(["x", "y"], ["cost"])
        train(used, feed, Model(), steps=4, callbacks=[looks[-1]])
    assert looks[0].cost == pytest.approx(looks[1].cost, rel=1e-3)


class TwoCosts(Model):
    """Both costs depend on both normalizations; one has a second derivative in it."""

    def build_graph(self, x, y):
        cost = super().build_graph(x, y)
        # Of the sum over the examples, which adds up over the towers.
        (slope,) = tf.gradients(cost * tf.cast(tf.shape(x)[0], x.dtype), [x])
        return {"error": cost, "penalty": tf.reduce_mean(slope**2) + 0.1 * cost}


def train_by_turns(strategy, data, count):
    """Minimize two costs, in one group and each alone, without a trainer."""
    model = TwoCosts(dtype=tf.float64)
    objectives = [
        Objective(OPTIMIZERS["sgd"], "error"),
        Objective(OPTIMIZERS["sgd"], "penalty", ".*(gamma|beta)"),
    ]
    with tf.Graph().as_default():
        x, y = (v1.placeholder(spec.dtype, spec.shape) for spec in model.get_input_signature())
        parts = iter(zip(tf.split(x, count), tf.split(y, count), strict=True))
        ops = strategy.build(model.build_graph, lambda: next(parts), objectives, [(0, 1), (1,), (0,)])
        with v1.Session(config=strategy.session_config(tpk.default_session_config())) as sess:
            sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            sess.run(get_post_init_ops())
            for step, arrays in enumerate(data):
                sess.run(ops[step % 3], {x: arrays[0], y: arrays[1]})
            variables = v1.trainable_variables()
            return dict(zip([each.op.name for each in variables], sess.run(variables), strict=True))


@pytest.mark.parametrize("strategy", [ReplicatedStrategy, ParameterServerStrategy])
def test_several_objectives_and_second_derivatives(strategy):
    data = batches([6] * 6)
    many, one = train_by_turns(strategy(2), data, 2), train_by_turns(SingleStrategy(), data, 1)
    assert many.keys() == one.keys()
    for name, value in one.items():
        np.testing.assert_allclose(many[name], value, rtol=1e-9, atol=1e-9, err_msg=name)
