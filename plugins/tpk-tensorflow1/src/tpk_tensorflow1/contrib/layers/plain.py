"""Layers without variables, and functions that apply layers several times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk import layers
from tpk_tensorflow1 import layers as tf_layers
from tpk_tensorflow1.contrib.layers.scopes import Function, layout_of, named, plain_layer
from tpk_tensorflow1.missing import own_names

v1 = tf.compat.v1

safe_embedding_lookup_sparse = v1.nn.safe_embedding_lookup_sparse

Shape = int | Sequence[int]


@plain_layer("Dropout")
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    *,
    seed: int | None = None,
) -> Any:
    """Keep each input with probability `keep_prob` in training; see `tf.layers.dropout`."""
    again = f"{tf.get_current_name_scope()}/"  # the scope of `plain_layer`
    return tf_layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training, again)


@plain_layer("Flatten")
def flatten(inputs: Any) -> Any:
    """Flatten all axes except the batch axis."""
    return layers.flatten(inputs)


def _pooling(layer: Function, name: str, default_scope: str) -> Function:
    def pool(
        inputs: Any,
        kernel_size: Shape,
        stride: Shape = 2,
        padding: str = "VALID",
        data_format: str | None = None,
    ) -> Any:
        """Take the maximum or the average of each window.

        Args:
            inputs: a batch of images or volumes.
            kernel_size: the sizes of the windows.
            stride: the stride of the windows.
            padding: ``"VALID"`` or ``"SAME"``.
            data_format: such as ``"NHWC"`` or ``"NCHW"``.
        """
        again = f"{tf.get_current_name_scope()}/"
        return layer(inputs, kernel_size, stride, padding, layout_of(data_format), name=again)

    return plain_layer(default_scope)(named(pool, name))


avg_pool2d = _pooling(layers.average_pooling2d, "avg_pool2d", "AvgPool2D")
avg_pool3d = _pooling(layers.average_pooling3d, "avg_pool3d", "AvgPool3D")
max_pool2d = _pooling(layers.max_pooling2d, "max_pool2d", "MaxPool2D")
max_pool3d = _pooling(layers.max_pooling3d, "max_pool3d", "MaxPool3D")


@plain_layer("OneHotEncoding")
def one_hot_encoding(labels: Any, num_classes: int, on_value: float = 1.0, off_value: float = 0.0) -> Any:
    """Return the one-hot encoding of labels."""
    return tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value, off_value)


def softmax(logits: Any, scope: str | None = None) -> Any:
    """Return the softmax of the last axis."""
    with v1.variable_scope(scope, "softmax"):
        values = tf.nn.softmax(tf.reshape(logits, [-1, logits.shape[-1]]))
        # Scripts know the name of this op, such as InceptionV3/Predictions/Reshape_1.
        return tf.reshape(values, tf.shape(logits))


def maxout(inputs: Any, num_units: int, axis: int = -1, scope: str | None = None) -> Any:
    """Return the maximum of each of `num_units` groups of features.

    As in TensorFlow 1, the elements of a group are adjacent in memory, even with another axis than the last one.
    """
    with tf.name_scope(scope or "MaxOut"):
        sizes = list(inputs.shape) if inputs.shape.is_fully_defined() else tf.unstack(tf.shape(inputs))
        in_group = inputs.shape[axis] // num_units
        sizes[axis] = num_units
        return tf.reduce_max(tf.reshape(inputs, [*sizes, in_group]), -1)


def repeat(inputs: Any, repetitions: int, layer: Function, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer several times, in scopes ``<scope>/<scope>_1``, ``…_2``, …; by default ``Repeat/<layer>_1``, …."""
    return stack(inputs, layer, [args] * repetitions, "Repeat", **kwargs)


def stack(inputs: Any, layer: Function, stack_args: Sequence[Any], default_scope: str = "Stack", **kwargs: Any) -> Any:
    """Apply a layer once for each element of `stack_args`, in scopes ``<scope>/<scope>_1``, ``…_2``, …."""
    scope = kwargs.pop("scope", None)
    name = scope or getattr(getattr(layer, "func", layer), "__name__", default_scope.lower())
    with v1.variable_scope(scope, default_scope):
        for number, args in enumerate(stack_args):
            given = args if isinstance(args, list | tuple) else [args]
            inputs = layer(inputs, *given, **kwargs, scope=f"{name}_{number + 1}")
    return inputs


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    *,
    unique: bool = False,
    scope: Any = None,
    reuse: Any = None,
    **options: Any,
) -> Any:
    """Return the embeddings of ids, of shape [batch, time, embed_dim]. The variable is ``EmbedSequence/embeddings``.

    Args:
        ids: an integer tensor of shape [batch, time].
        vocab_size: the number of ids; None if `reuse` is true.
        embed_dim: the size of an embedding; None if `reuse` is true.
        unique: ignored; it changed only the speed.
        scope: the variable scope.
        reuse: whether to reuse existing embeddings.
        options: the arguments `initializer`, `regularizer` and `trainable` of `tf.get_variable`.
    """
    if not reuse and (vocab_size is None or embed_dim is None):
        raise ValueError("tf.contrib.layers.embed_sequence needs vocab_size and embed_dim, unless reuse=True")
    shape = None if reuse and vocab_size is None else [vocab_size, embed_dim]
    with v1.variable_scope(scope, "EmbedSequence", reuse=reuse):
        embeddings = v1.get_variable("embeddings", shape, **options)
        if reuse is not True:
            v1.add_to_collection(v1.GraphKeys.MODEL_VARIABLES, embeddings)
        return v1.nn.embedding_lookup(embeddings, ids)


__all__ = own_names(__name__)
