"""Batch normalization by the fused kernel where a tensor tells whether it is training, held against a known flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers

v1 = tf.compat.v1
IMAGES = np.random.default_rng(4).normal(0.2, 0.5, size=[6, 5, 4, 3]).astype(np.float32)
VOLUMES = np.random.default_rng(5).normal(0.2, 0.5, size=[3, 2, 3, 4, 5]).astype(np.float32)


def build(training: Any, values: Any = IMAGES, dtype: Any = tf.float32, order: int = 1, **options: Any) -> list[Any]:
    """Build a layer, and return its outputs and the gradients of up to this order."""
    x = tf.constant(values, dtype)
    outputs = layers.batch_normalization(
        x,
        training=training,
        gamma_initializer=v1.random_uniform_initializer(0.5, 2.0, seed=1),
        beta_initializer=v1.random_uniform_initializer(-1.0, 1.0, seed=2),
        moving_mean_initializer=v1.random_uniform_initializer(-1.0, 1.0, seed=3),
        moving_variance_initializer=v1.random_uniform_initializer(0.5, 2.0, seed=4),
        **options,
    )
    built = [outputs]
    cost = tf.reduce_mean(tf.cast(outputs, tf.float32) ** 3)
    for _ in range(order):
        gradients = tf.gradients(cost, [x, *v1.trainable_variables()])
        built += gradients
        cost = tf.add_n([tf.reduce_sum(tf.cast(each, tf.float32) ** 2) for each in gradients])
    return built


def by_flag(training: bool) -> Any:
    return v1.placeholder_with_default(training, [])


def results(make_flag: Any, training: bool, **options: Any) -> list[np.ndarray]:
    with tf.Graph().as_default(), v1.Session() as sess:
        fetches = build(make_flag(training), **options)
        sess.run(v1.global_variables_initializer())
        values = sess.run([tf.cast(each, tf.float32) for each in fetches])
        sess.run(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
        return [*values, *sess.run(v1.global_variables())]


def functions_of(graph: Any) -> Sequence[Any]:
    return graph.as_graph_def().library.function


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("values", "axis"), [(IMAGES, -1), (IMAGES, 1), (VOLUMES, -1), (VOLUMES, 1)], ids=["NHWC", "NCHW", "NDHWC", "NCDHW"]
)
def test_values_and_gradients_are_those_of_a_known_flag(values: Any, axis: int, dtype: Any, training: bool) -> None:
    found, expected = (results(flag, training, values=values, axis=axis, dtype=dtype) for flag in (by_flag, bool))
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("axis", [-1, 1])
def test_gradients_of_gradients_are_those_of_a_known_flag(axis: int, dtype: Any, training: bool) -> None:
    found, expected = (results(flag, training, axis=axis, dtype=dtype, order=2) for flag in (by_flag, bool))
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("parameters", [True, False])
def test_no_branch_holds_back_what_the_gradient_asks_for(axis: int, order: int, parameters: bool) -> None:
    """Else ``Optional`` ops carry it, which prefer the CPU, and the kernel of the gradient with them."""
    with tf.Graph().as_default() as graph:
        build(by_flag(True), axis=axis, order=order, center=parameters, scale=parameters)
        ops = [node.op for function in functions_of(graph) for node in function.node_def]
    assert "FusedBatchNormGradV3" in ops
    assert [op for op in ops if "Optional" in op] == []


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_kernel_of_the_gradient_is_placed_beside_nothing_else(order: int) -> None:
    with tf.Graph().as_default() as graph:
        build(by_flag(True), order=order)
        nodes = [node for function in functions_of(graph) for node in function.node_def]
    kernels = [node for node in nodes if node.op == "FusedBatchNormGradV3"]
    assert kernels
    assert [list(node.attr["_class"].list.s) for node in kernels] == [[]] * len(kernels)


def test_the_gradient_is_computed_where_the_layer_is() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.constant(IMAGES)
        with tf.device("/cpu:1"):
            outputs = layers.batch_normalization(x, training=by_flag(True))
        with tf.device("/cpu:2"):
            tf.gradients(outputs**2, x)
        conditionals = [op for op in graph.get_operations() if op.type in ("If", "StatelessIf")]
    assert [op.device for op in conditionals if "grad" in op.name] == ["/device:CPU:1"]


@pytest.mark.parametrize("training", [True, False])
def test_a_gradient_through_a_cond_around_the_layer(training: bool) -> None:
    def gradient(flag: Any) -> np.ndarray:
        with tf.Graph().as_default(), v1.Session() as sess:
            x = tf.constant(IMAGES)

            def normalized() -> Any:
                return layers.batch_normalization(x, training=flag(training), trainable=False)

            outputs = tf.cond(by_flag(True), normalized, lambda: x)
            gradients = tf.gradients(tf.reduce_sum(outputs**3), x)
            sess.run(v1.global_variables_initializer())
            return np.asarray(sess.run(gradients))

    np.testing.assert_array_equal(gradient(by_flag), gradient(bool))


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1.001e-5, 1e-3])
def test_epsilon_is_taken_as_tensorflow_takes_it(epsilon: float) -> None:
    values = IMAGES * 1e-3  # so that epsilon counts
    with tf.Graph().as_default(), v1.Session() as sess:
        expected, *_ = v1.nn.fused_batch_norm(values, [1.0] * 3, [0.0] * 3, epsilon=epsilon)
        outputs = layers.batch_normalization(values, training=by_flag(True), epsilon=epsilon)
        sess.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(*sess.run([outputs, expected]))
