"""The layers and `tf.compat.v1.layers` build the same graph, op by op: names, attributes, order, collections.

Equal graphs have equal outputs, gradients and seeds, so this covers a wide range of arguments at little cost.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers as tpk_layers

v1 = tf.compat.v1
Model = Callable[[Any], Any]


def images(size: Any = (9, 8), channels: int = 3, data_format: str = "channels_last", dtype: Any = tf.float32):
    shape = [None, *size, channels] if data_format == "channels_last" else [None, channels, *size]
    return v1.placeholder(dtype, shape, name="images")


KEYS = v1.GraphKeys
COLLECTIONS = (
    *(KEYS.GLOBAL_VARIABLES, KEYS.TRAINABLE_VARIABLES, KEYS.UPDATE_OPS, KEYS.REGULARIZATION_LOSSES),
    KEYS.MODEL_VARIABLES,
)


def built(layers: Any, model: Model) -> tuple[Any, dict[str, list[str]], str]:
    """The graph, what is in its collections by name, and the static shape of the outputs."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(11)
        outputs = model(layers)
    collections = {key: [item.name for item in graph.get_collection(key)] for key in COLLECTIONS}
    return graph.as_graph_def(), collections, str(outputs.shape)


def assert_same_graph(tf_layers: SimpleNamespace, model: Model) -> None:
    ours, theirs = built(tpk_layers, model), built(tf_layers, model)
    assert ours[1:] == theirs[1:]
    for node, expected in zip(ours[0].node, theirs[0].node, strict=False):
        assert node == expected
    assert ours[0] == theirs[0]


@contextmanager
def control_flow_v1() -> Iterator[None]:
    v1.disable_control_flow_v2()
    try:
        yield
    finally:
        v1.enable_control_flow_v2()


ADDED = {"batch_normalization": ["sync"]}


def test_signatures(tf_layers: SimpleNamespace) -> None:
    assert set(vars(tf_layers)) <= set(tpk_layers.__all__)
    for name, layer in vars(tf_layers).items():
        ours = inspect.signature(getattr(tpk_layers, name)).parameters
        theirs = inspect.signature(layer).parameters
        # Arguments that tpk adds come last.
        assert list(ours) == [*theirs, *ADDED.get(name, [])]
        for parameter, expected in zip(ours.values(), theirs.values(), strict=False):
            assert parameter.kind == expected.kind
            if parameter.name == "training":
                # Inside a tower, the tower decides; see the page about tf.layers.
                assert (parameter.default, expected.default) == (None, False)
            elif callable(expected.default) and expected.default is not inspect.Parameter.empty:
                assert type(parameter.default) is type(expected.default)
            else:
                assert sizes(parameter.default) == sizes(expected.default), (name, parameter)


def sizes(default: Any) -> Any:
    """Return one size if all axes have the same."""
    return default[0] if isinstance(default, tuple) and len(set(default)) == 1 else default


WINDOWS = [
    {"padding": padding, "strides": strides, "dilation_rate": dilation}
    for padding, (strides, dilation) in itertools.product(
        ("valid", "SAME"), [(1, 1), (2, 1), ((2, 1), 1), (1, 2), (1, (1, 2))]
    )
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_conv2d_windows(tf_layers: SimpleNamespace, window: dict, data_format: str) -> None:
    for size, kernel_size in [((9, 8), (1, 2)), ((9, 8), 3), ((None, 8), 3), ((None, None), 3)]:
        assert_same_graph(
            tf_layers,
            lambda layers, size=size, kernel_size=kernel_size: layers.conv2d(
                images(size, data_format=data_format), 4, kernel_size, data_format=data_format, **window
            ),
        )


@pytest.mark.parametrize("window", [it for it in WINDOWS if it["strides"] != (2, 1)], ids=str)
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_separable_conv2d_windows(tf_layers: SimpleNamespace, window: dict, data_format: str) -> None:
    for size, multiplier in itertools.product([(9, 8), (None, 8)], [1, 2]):
        assert_same_graph(
            tf_layers,
            lambda layers, size=size, multiplier=multiplier: layers.separable_conv2d(
                images(size, data_format=data_format),
                4,
                3,
                data_format=data_format,
                depth_multiplier=multiplier,
                **window,
            ),
        )


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [1, 2, (3, 1)])
def test_conv2d_transpose_windows(tf_layers: SimpleNamespace, padding: str, strides: Any) -> None:
    for size, kernel_size in [((9, 8), (1, 2)), ((9, 8), 3), ((None, 8), 3), ((None, None), 3)]:

        def model(layers: Any, size: Any = size, kernel_size: Any = kernel_size) -> Any:
            x = layers.conv2d_transpose(images(size), 4, kernel_size, strides, padding)
            return layers.conv2d(x, 2, 1)  # starts from a value that depends on the ops before it

        assert_same_graph(tf_layers, model)


@pytest.mark.parametrize("pool", ["max_pooling2d", "average_pooling2d"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_pooling_windows(tf_layers: SimpleNamespace, pool: str, data_format: str) -> None:
    for padding, strides, size in itertools.product(["valid", "same"], [1, (2, 3)], [(9, 8), (None, 8)]):
        assert_same_graph(
            tf_layers,
            lambda layers, padding=padding, strides=strides, size=size: getattr(layers, pool)(
                images(size, data_format=data_format), (3, 2), strides, padding, data_format
            ),
        )


SEQUENCES = [{"strides": 1}, {"strides": (2,)}, {"dilation_rate": 2}]


@pytest.mark.parametrize("options", SEQUENCES, ids=str)
@pytest.mark.parametrize("kind", ["conv1d", "separable_conv1d"])
def test_convolutions_of_sequences(tf_layers: SimpleNamespace, kind: str, options: dict) -> None:
    paddings, formats = ["valid", "SAME", "causal"], ["channels_last", "channels_first"]
    for padding, data_format, use_bias in itertools.product(paddings, formats, [True, False]):

        def model(
            layers: Any, padding: str = padding, data_format: str = data_format, use_bias: bool = use_bias
        ) -> Any:
            x = images((9,), data_format=data_format)
            x = getattr(layers, kind)(
                x, 4, 3, padding=padding, data_format=data_format, use_bias=use_bias, activation=tf.nn.relu, **options
            )
            return layers.dense(x, 2)  # starts from a value that depends on the ops before it

        assert_same_graph(tf_layers, model)


VOLUMES = [{"strides": 2}, {"strides": (1, 2, 3), "padding": "same"}, {"dilation_rate": (1, 2, 1)}]


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_convolutions_of_volumes(tf_layers: SimpleNamespace, data_format: str) -> None:
    for options, size in itertools.product(VOLUMES, [(9, 8, 7), (None, None, 7)]):

        def model(layers: Any, options: dict = options, size: Any = size) -> Any:
            x = layers.conv3d(
                images(size, data_format=data_format), 4, (3, 2, 3), data_format=data_format, name="a", **options
            )
            options = {key: value for key, value in options.items() if key != "dilation_rate"}
            x = layers.conv3d_transpose(x, 4, (2, 1, 3), data_format=data_format, **options)
            return layers.conv3d(x, 2, 1, data_format=data_format, activation="relu")

        assert_same_graph(tf_layers, model)


@pytest.mark.parametrize("spatial_rank", [1, 3])
@pytest.mark.parametrize("pool", ["max", "average"])
def test_pooling_of_sequences_and_volumes(tf_layers: SimpleNamespace, pool: str, spatial_rank: int) -> None:
    formats = ["channels_last", "channels_first"]
    for padding, strides, data_format in itertools.product(["valid", "same"], [1, 2], formats):
        assert_same_graph(
            tf_layers,
            lambda layers, padding=padding, strides=strides, data_format=data_format: getattr(
                layers, f"{pool}_pooling{spatial_rank}d"
            )(images((9, 8, None)[-spatial_rank:], data_format=data_format), 3, strides, padding, data_format),
        )


def l1(weights: Any) -> Any:
    return 0.1 * tf.reduce_sum(tf.abs(weights))


def clip(weights: Any) -> Any:
    return tf.clip_by_value(weights, -1.0, 1.0)


WEIGHTS: list[dict[str, Any]] = [
    {},
    {"use_bias": False},
    {"activation": tf.nn.relu},
    {"activation": "tanh", "use_bias": False},
    {"activation": "linear"},
    {"kernel_regularizer": tf.nn.l2_loss},
    {"kernel_regularizer": l1, "bias_regularizer": tf.nn.l2_loss, "activity_regularizer": l1},
    {"kernel_regularizer": lambda weights: None},
    {"activity_regularizer": l1, "activation": tf.nn.elu},
    {"kernel_constraint": clip, "bias_constraint": clip},
    {"trainable": False, "kernel_regularizer": l1},
    {"kernel_initializer": v1.truncated_normal_initializer(stddev=0.1, seed=3)},
    {"kernel_initializer": v1.random_normal_initializer, "bias_initializer": v1.ones_initializer()},
    {"kernel_initializer": "he_normal", "bias_initializer": "ones"},
    {"kernel_initializer": tf.constant_initializer(0.5), "bias_initializer": None},
    {"name": "named"},
]


@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda it: "-".join(it) or "default")
def test_weights(tf_layers: SimpleNamespace, weights: dict) -> None:
    separable = {
        key.replace("kernel", kind): value
        for key, value in weights.items()
        for kind in (("depthwise", "pointwise") if "kernel" in key else ("",))
    }

    def model(layers: Any) -> Any:
        with v1.variable_scope("a"):
            x = layers.conv2d(images(), 4, 3, **weights)
        with v1.variable_scope("b"):
            x = layers.conv2d_transpose(x, 5, 2, **weights)
        with v1.variable_scope("c"):
            x = layers.separable_conv2d(x, 3, 2, **separable)
        with v1.variable_scope("d"):
            x = layers.dense(x, 2, **weights)
        with v1.variable_scope("e"):
            x = layers.conv3d(tf.expand_dims(x, 3), 2, 1, **weights)
        with v1.variable_scope("f"):
            x = layers.conv3d_transpose(x, 3, 1, **weights)
        with v1.variable_scope("g"):
            x = layers.conv1d(tf.reshape(x, [-1, 6, 3]), 2, 3, **weights)
        with v1.variable_scope("h"):
            return layers.separable_conv1d(x, 2, 3, **separable)

    assert_same_graph(tf_layers, model)


@pytest.mark.parametrize("shape", [(None, 4), (2, 4), (None, 3, 4), (2, None, 5, 4)], ids=str)
def test_dense_shapes(tf_layers: SimpleNamespace, shape: tuple) -> None:
    assert_same_graph(tf_layers, lambda layers: layers.dense(v1.placeholder(tf.float32, shape), 3))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_flatten_shapes(tf_layers: SimpleNamespace, data_format: str) -> None:
    for shape in [(None,), (3,), (None, 4), (2, None), (None, None, 3), (4, 2, 3, 5), (None, 2, None, 3)]:
        assert_same_graph(
            tf_layers,
            lambda layers, shape=shape: layers.flatten(v1.placeholder(tf.float32, shape), data_format=data_format),
        )


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64], ids=lambda it: it.name)
def test_dtypes(tf_layers: SimpleNamespace, dtype: Any) -> None:
    def model(layers: Any) -> Any:
        x = layers.conv2d(images(dtype=dtype), 4, 3)
        x = layers.batch_normalization(x, training=True)
        x = layers.batch_normalization(x, training=True, fused=False)
        return layers.dense(layers.flatten(layers.dropout(x, training=False)), 2)

    assert_same_graph(tf_layers, model)


FLAGS: dict[str, Callable[[], Any]] = {
    "true": lambda: True,
    "false": lambda: False,
    "1": lambda: 1,
    "constant": lambda: tf.constant(True),
    "tensor": lambda: v1.placeholder(tf.bool, [], name="is_training"),
}


@pytest.mark.parametrize(("rate", "training"), [(0, True), (0.5, False), (0.2, 0)])
def test_dropout_that_drops_nothing(tf_layers: SimpleNamespace, rate: float, training: Any) -> None:
    """The rest is not the same on purpose, as it keeps no state."""

    def model(layers: Any) -> Any:
        x = v1.placeholder(tf.float32, [None, 4])
        x = layers.dropout(x, rate, (None, 1), 4, training=training)
        return layers.dense(layers.dropout(x, rate, name="named", training=training), 2)

    with control_flow_v1():
        assert_same_graph(tf_layers, model)


BATCH_NORM_INPUTS = [
    *[((None, 4), axis) for axis in (-1, 1)],
    *[((None, 5, 4), axis) for axis in (-1, 1, [1, 2])],
    *[((2, 5, 6, 4), axis) for axis in (-1, 1, 2, [1, -1])],
    *[((None, 3, 4, 5, 4), axis) for axis in (-1, 1, 2)],
]
BATCH_NORM_OPTIONS: list[dict[str, Any]] = [
    {"center": False, "momentum": 0.5, "epsilon": 0.1},
    {"scale": False, "beta_regularizer": l1, "trainable": False},
    {"center": False, "scale": False, "name": "named"},
    {"gamma_initializer": v1.random_uniform_initializer(), "gamma_regularizer": tf.nn.l2_loss},
    {"moving_mean_initializer": v1.ones_initializer(), "beta_constraint": clip, "gamma_constraint": clip},
]


def batch_normalization_model(shape: tuple, use_resource: bool, flag: str, **options: Any) -> Model:
    def model(layers: Any) -> Any:
        with v1.variable_scope("scope", use_resource=use_resource):
            x = v1.placeholder(tf.float32, shape)
            x = layers.batch_normalization(x, training=FLAGS[flag](), **options)
            return layers.dense(x, 2)

    return model


@pytest.mark.parametrize("flag", ["true", "false", "tensor"])
@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "ref"])
def test_batch_normalization(tf_layers: SimpleNamespace, flag: str, fused: Any, use_resource: bool) -> None:
    with control_flow_v1():
        for shape, axis in BATCH_NORM_INPUTS if use_resource else BATCH_NORM_INPUTS[:6]:
            model = batch_normalization_model(shape, use_resource, flag, axis=axis, fused=fused)
            assert_same_graph(tf_layers, model)


@pytest.mark.parametrize("options", BATCH_NORM_OPTIONS, ids="-".join)
def test_batch_normalization_options(tf_layers: SimpleNamespace, options: dict) -> None:
    with control_flow_v1():
        for flag, fused in itertools.product(["1", "constant"], [True, False]):
            model = batch_normalization_model((2, 5, 6, 4), True, flag, fused=fused, **options)
            assert_same_graph(tf_layers, model)


def reused(layers: Any) -> Any:
    """Towers: the second one takes the variables of the first."""
    for reuse in (None, True):
        with v1.variable_scope("tower", reuse=reuse):
            x = layers.conv2d(images(), 4, 3, kernel_regularizer=l1)
            x = layers.conv2d(x, 4, 3, name="named", kernel_regularizer=l1)
            x = layers.batch_normalization(x, training=True)
            outputs = layers.dense(x, 2, activity_regularizer=l1)
    return outputs


def reused_root(layers: Any) -> Any:
    """Towers as tensorpack opens them: one variable scope, a name scope for each."""
    for reuse in (False, True):
        with v1.variable_scope(v1.get_variable_scope(), reuse=reuse), v1.name_scope(f"tower{int(reuse)}"):
            x = layers.conv2d(images(), 4, 3)
            x = layers.max_pooling2d(layers.conv2d(x, 4, 3), 2, 2)
            outputs = layers.dense(layers.batch_normalization(x, training=True), 2, name="named")
    return outputs


def reused_by_name(layers: Any) -> Any:
    x = v1.placeholder(tf.float32, [None, 4])
    layers.dense(x, 3, name="twice", kernel_regularizer=l1)
    layers.dense(x, 3, name="twice", reuse=True, kernel_regularizer=l1)
    layers.dense(x, 3, name="auto", reuse=v1.AUTO_REUSE)
    layers.dense(x, 3, name="auto", reuse=v1.AUTO_REUSE)
    layers.dense(x, 3, reuse=v1.AUTO_REUSE)
    layers.dense(x, 3, reuse=True)
    return layers.dense(x, 3, reuse=False)


def nested(layers: Any) -> Any:
    x = images()
    for _ in range(2):
        with v1.variable_scope(None, default_name="block"):
            for _ in range(2):
                x = layers.conv2d(x, 4, 1)
                x = layers.dropout(layers.max_pooling2d(x, 1, 1), name="drop")
            with v1.name_scope("only_names"):
                x = layers.conv2d(x, 4, 1)
                x = layers.conv2d(x, 4, 1, name="deep/er")
            with v1.variable_scope("conv2d_1"):
                x = layers.conv2d(x, 4, 1)
    x = layers.average_pooling2d(x, 1, 1)
    return layers.flatten(layers.flatten(x), name="flat")


def configured_scope(layers: Any) -> Any:
    with v1.variable_scope("scope", initializer=v1.random_normal_initializer(), regularizer=l1, use_resource=False):
        x = layers.conv2d(images(), 4, 3, kernel_regularizer=tf.nn.l2_loss)
        x = layers.batch_normalization(x, gamma_initializer=None, training=True)
        return layers.dense(x, 2)


def scope_object(layers: Any) -> Any:
    x = v1.placeholder(tf.float32, [None, 4])
    with v1.variable_scope("outer"), v1.variable_scope("inner") as scope:
        x = layers.dense(x, 4, name=scope)
    x = layers.dense(x, 4, name=scope, reuse=True)
    return layers.dense(x, 4, name="outer")


def partitioned(layers: Any) -> Any:
    with v1.variable_scope("scope", partitioner=v1.fixed_size_partitioner(2)):
        x = layers.conv2d(images(), 4, 3, kernel_regularizer=l1)
        return layers.batch_normalization(x, training=True, gamma_regularizer=l1)


def custom_getter(layers: Any) -> Any:
    def frozen(getter: Any, *args: Any, **options: Any) -> Any:
        return tf.stop_gradient(getter(*args, **{**options, "trainable": False}))

    with v1.variable_scope("scope", custom_getter=frozen):
        return layers.dense(v1.placeholder(tf.float32, [None, 4]), 2, kernel_regularizer=l1)


def numpy_inputs(layers: Any) -> Any:
    return layers.dense(np.ones([2, 4], np.float32), 3)


def on_devices(layers: Any) -> Any:
    with tf.device("/device:CPU:0"):
        return layers.batch_normalization(layers.conv2d(images(), 4, 3), training=True)


@pytest.mark.parametrize(
    "model",
    [
        *(reused, reused_root, reused_by_name, nested, configured_scope, scope_object, partitioned, custom_getter),
        *(numpy_inputs, on_devices),
    ],
    ids=lambda it: it.__name__,
)
def test_scopes(tf_layers: SimpleNamespace, model: Model) -> None:
    assert_same_graph(tf_layers, model)
