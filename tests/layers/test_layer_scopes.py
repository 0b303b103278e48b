"""Names, collections and errors that all layers have in common."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import ConfigError

v1 = tf.compat.v1


def of_sequences(layer: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    return lambda x, **options: layer(x[:, 0], *arguments, **options)


def of_volumes(layer: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    return lambda x, **options: layer(tf.stack([x] * 4, 1), *arguments, **options)


def of_images(layer: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    return lambda x, **options: layer(x, *arguments, **options)


APPLY: dict[str, Callable[..., Any]] = {
    "average_pooling1d": of_sequences(layers.average_pooling1d, 2, 2),
    "average_pooling2d": of_images(layers.average_pooling2d, 2, 2),
    "average_pooling3d": of_volumes(layers.average_pooling3d, 2, 2),
    "batch_normalization": layers.batch_normalization,
    "conv1d": of_sequences(layers.conv1d, 4, 3),
    "conv1d_transpose": of_sequences(layers.conv1d_transpose, 4, 3),
    "conv2d": of_images(layers.conv2d, 4, 3),
    "conv2d_transpose": of_images(layers.conv2d_transpose, 4, 3),
    "conv3d": of_volumes(layers.conv3d, 4, 3),
    "conv3d_transpose": of_volumes(layers.conv3d_transpose, 4, 3),
    "dense": of_images(layers.dense, 4),
    "depthwise_conv2d": of_images(layers.depthwise_conv2d, 3),
    "dropout": layers.dropout,
    "flatten": layers.flatten,
    "global_average_pooling": layers.global_average_pooling,
    "global_max_pooling": layers.global_max_pooling,
    "group_normalization": of_images(layers.group_normalization, 3),
    "instance_normalization": layers.instance_normalization,
    "layer_normalization": layers.layer_normalization,
    "max_pooling1d": of_sequences(layers.max_pooling1d, 2, 2),
    "max_pooling2d": of_images(layers.max_pooling2d, 2, 2),
    "max_pooling3d": of_volumes(layers.max_pooling3d, 2, 2),
    "maxout": of_images(layers.maxout, 1),
    "prelu": layers.prelu,
    "separable_conv1d": of_sequences(layers.separable_conv1d, 4, 3),
    "separable_conv2d": of_images(layers.separable_conv2d, 4, 3),
}
WITH_VARIABLES = [
    *("batch_normalization", "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose"),
    *("dense", "depthwise_conv2d", "group_normalization", "instance_normalization"),
    *("layer_normalization", "prelu", "separable_conv1d", "separable_conv2d"),
]


@pytest.fixture
def images() -> Iterator[Any]:
    with tf.Graph().as_default():
        yield v1.placeholder(tf.float32, [None, 8, 8, 3])


def names() -> list[str]:
    return [variable.op.name for variable in v1.global_variables()]


def test_every_layer_is_covered() -> None:
    assert list(APPLY) == [name for name in layers.__all__ if name != "rnn_cell"]


@pytest.mark.parametrize("kind", APPLY)
def test_default_names_are_made_unique(images: Any, kind: str) -> None:
    assert APPLY[kind](images).op.name.startswith(f"{kind}/")
    assert APPLY[kind](images).op.name.startswith(f"{kind}_1/")
    with v1.variable_scope("block"):
        assert APPLY[kind](images).op.name.startswith(f"block/{kind}/")


@pytest.mark.parametrize("kind", WITH_VARIABLES)
def test_named_layers_share_variables_only_on_request(images: Any, kind: str) -> None:
    APPLY[kind](images, name="mine")
    created = names()
    assert created and all(name.startswith("mine/") for name in created)
    APPLY[kind](images, name="mine", reuse=True)
    APPLY[kind](images, name="mine", reuse=v1.AUTO_REUSE)
    assert names() == created
    with pytest.raises(ValueError, match="already exists"):
        APPLY[kind](images, name="mine")


@pytest.mark.parametrize("kind", WITH_VARIABLES)
def test_a_second_tower_reuses(images: Any, kind: str) -> None:
    for reuse in (False, True):
        scope = v1.variable_scope(v1.get_variable_scope(), reuse=reuse)
        with scope, v1.name_scope(f"tower{int(reuse)}"):
            outputs = [APPLY[kind](images), APPLY[kind](images)]
            assert all(it.op.name.startswith(f"tower{int(reuse)}/") for it in outputs)
    assert len(names()) == len(set(names()))
    assert not any("tower" in name for name in names())


@pytest.mark.parametrize("kind", WITH_VARIABLES)
def test_a_layer_that_is_not_trainable(images: Any, kind: str) -> None:
    APPLY[kind](images, trainable=False)
    assert names() and not v1.trainable_variables()


@pytest.mark.parametrize("use_resource", [True, False])
def test_both_kinds_of_variables(images: Any, use_resource: bool) -> None:
    with v1.variable_scope("scope", use_resource=use_resource):
        outputs = layers.conv2d(layers.batch_normalization(images, training=True), 2, 3)
    assert {type(it).__name__ for it in v1.global_variables()} == {
        "ResourceVariable" if use_resource else "RefVariable"
    }
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        moving_mean = v1.global_variables()[2]
        sess.run(v1.get_collection(v1.GraphKeys.UPDATE_OPS), {images: [[[[1.0, 2.0, 3.0]] * 8] * 8]})
        assert sess.run(moving_mean) == pytest.approx([0.01, 0.02, 0.03], rel=1e-5)
        assert sess.run(outputs, {images: [[[[1.0, 2.0, 3.0]] * 8] * 8]}).shape == (1, 6, 6, 2)


def test_regularizers_count_once_for_a_shared_variable(images: Any) -> None:
    for reuse in (None, True):
        layers.conv2d(
            images, 2, 3, name="shared", reuse=reuse, kernel_regularizer=tf.nn.l2_loss, bias_regularizer=tf.nn.l2_loss
        )
    assert [loss.op.name for loss in v1.losses.get_regularization_losses()] == [
        "shared/kernel/Regularizer/L2Loss",
        "shared/bias/Regularizer/L2Loss",
    ]


def test_activity_loss_is_per_example(images: Any) -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    layers.dense(x, 2, kernel_initializer="identity", activity_regularizer=tf.reduce_sum, use_bias=False)
    (loss,) = v1.losses.get_regularization_losses()
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        assert sess.run(loss) == pytest.approx((1 + 2 + 3 + 4) / 2)


def within_scope_of_regularizer(x: Any, **options: Any) -> Any:
    with v1.variable_scope("scope", regularizer=tf.nn.l2_loss):
        return layers.dense(x, 3, **options)


COLLECTING: dict[str, tuple[Callable[..., Any], str]] = {
    "updates": (
        lambda x, **options: layers.batch_normalization(x, training=True, **options),
        "the update of its moving averages",
    ),
    "updates that a tensor decides on": (
        lambda x, **options: layers.batch_normalization(x, training=v1.placeholder(tf.bool, []), **options),
        "the update of its moving averages",
    ),
    "regularizer": (
        lambda x, **options: layers.conv2d(x, 3, 3, padding="same", kernel_regularizer=tf.nn.l2_loss, **options),
        "the loss of the regularizer of kernel",
    ),
    "regularizer of gamma": (
        lambda x, **options: layers.batch_normalization(x, gamma_regularizer=tf.nn.l2_loss, **options),
        "the loss of the regularizer of gamma",
    ),
    "regularizer of the scope": (within_scope_of_regularizer, "the loss of the regularizer of kernel"),
    "activity": (
        lambda x, **options: layers.dense(x, 3, activity_regularizer=tf.nn.l2_loss, **options),
        "the loss of activity_regularizer",
    ),
}


@pytest.mark.parametrize(("apply", "what"), COLLECTING.values(), ids=COLLECTING)
def test_in_a_branch_nothing_can_be_collected(control_flow: None, images: Any, apply: Any, what: str) -> None:
    message = f"layer '(scope/)?mine': {what} is created inside a tf.cond.*Build the layer outside"
    with pytest.raises(ConfigError, match=message):
        tf.cond(v1.placeholder(tf.bool, []), lambda: apply(images, name="mine"), lambda: images)


@pytest.mark.parametrize("kind", WITH_VARIABLES)
def test_in_a_branch_a_layer_works_that_collects_nothing(control_flow: None, images: Any, kind: str) -> None:
    flag = v1.placeholder_with_default(True, [])
    outputs = tf.cond(flag, lambda: APPLY[kind](images, name="mine"), lambda: tf.zeros([]))
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        assert sess.run(outputs, {images: [[[[1.0, 2.0, 3.0]] * 8] * 8]}).shape
    assert v1.trainable_variables()
    assert not v1.get_collection(v1.GraphKeys.UPDATE_OPS)


def test_in_a_branch_a_layer_takes_regularized_variables_from_outside(control_flow: None, images: Any) -> None:
    options = {"name": "shared", "kernel_regularizer": tf.nn.l2_loss}
    outputs = layers.conv2d(images, 2, 3, **options)
    flag = v1.placeholder_with_default(True, [])
    tf.cond(flag, lambda: layers.conv2d(images, 2, 3, reuse=True, **options), lambda: outputs)
    assert len(v1.losses.get_regularization_losses()) == 1


def test_constraints_stay_with_the_variable(images: Any) -> None:
    layers.dense(images, 2, kernel_constraint=tf.nn.relu)
    kernel, bias = v1.global_variables()
    assert kernel.constraint is tf.nn.relu
    assert bias.constraint is None


def test_initial_values_follow_the_seed_of_the_graph() -> None:
    def kernels(seed: int) -> list[Any]:
        with tf.Graph().as_default(), v1.Session() as sess:
            v1.set_random_seed(seed)
            x = tf.zeros([1, 4])
            layers.dense(layers.dense(x, 4), 4)
            sess.run(v1.global_variables_initializer())
            return [value.tolist() for value in sess.run(v1.trainable_variables()[::2])]

    assert kernels(1) == kernels(1)
    assert kernels(1) != kernels(2)
    assert kernels(1)[0] != kernels(1)[1]


@pytest.mark.parametrize("kind", APPLY)
def test_eager_execution_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"^{kind} adds to a graph, but TensorFlow executes eagerly"):
        APPLY[kind](tf.zeros([1, 8, 8, 3]))


@pytest.mark.parametrize("kind", ["dense", "flatten"])
def test_sparse_inputs_are_refused(kind: str) -> None:
    match = rf"^{kind}: the inputs are of type SparseTensor.*tf\.sparse\.to_dense"
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=match):
        APPLY[kind](v1.sparse_placeholder(tf.float32, [2, 3]))


@pytest.mark.parametrize("kind", [*WITH_VARIABLES, "dropout"])
def test_integers_are_refused(images: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"the dtype of the inputs is 'int32', expected a floating-point type"):
        APPLY[kind](tf.cast(images, tf.int32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kernel_initializer": "glorot"},
            "the initializer of kernel is 'glorot', expected a function, or the name of one in tf.compat.v1.ini",
        ),
        ({"bias_initializer": 0.0}, r"the initializer of bias is 0\.0, expected a function or None"),
        ({"kernel_regularizer": "l2"}, "the regularizer of kernel is 'l2', expected a function or None"),
        ({"bias_constraint": 1}, "the constraint of bias is 1, expected a function or None"),
        ({"activity_regularizer": 0.1}, r"activity_regularizer is 0\.1, expected a function or None"),
        ({"activation": "rellu"}, "activation is 'rellu', expected a function, or .*in tf.nn.*'relu'"),
        ({"activation": 3}, "activation is 3, expected a function or None"),
    ],
    ids=lambda it: "-".join(it) if isinstance(it, dict) else "",
)
def test_what_is_no_function_is_refused(images: Any, options: dict[str, Any], message: str) -> None:
    with v1.variable_scope("block"), pytest.raises(ConfigError, match=f"^dense layer 'block/dense': {message}"):
        layers.dense(images, 4, **options)


ALONE = """
import sys
sys.modules["keras"] = sys.modules["tf_keras"] = None  # importing it is an error

import tensorflow as tf
from tpk import layers

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.set_random_seed(0)
x = v1.placeholder_with_default(tf.ones([2, 8, 8, 3]), [None, 8, 8, 3])
x = layers.separable_conv2d(layers.conv2d_transpose(layers.conv2d(x, 2, 3), 2, 3), 2, 3)
x = layers.average_pooling2d(layers.max_pooling2d(x, 2, 1), 2, 1)
x = layers.prelu(layers.group_normalization(layers.instance_normalization(layers.depthwise_conv2d(x, 1)), 2))
x = layers.conv1d(layers.separable_conv1d(tf.reshape(x, [-1, 16, 2]), 2, 3), 2, 3)
training = v1.placeholder_with_default(True, [])
x = layers.dropout(layers.layer_normalization(layers.batch_normalization(x, training=training)), training=training)
cost = tf.reduce_sum(layers.dense(layers.flatten(x), 2))
with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(cost)
with v1.Session() as sess:
    sess.run(v1.global_variables_initializer())
    sess.run(step)
    moved = sess.run(v1.global_variables("batch_normalization/moving_mean")[0])
print(type(v1.global_variables()[0]).__name__, moved.any())
"""


def test_all_layers_train_in_tf1_behaviour_and_without_keras() -> None:
    """In a separate process, because neither can be undone."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "RefVariable True"
