"""Layers without weights, and embeddings. Others, such as `softmax` and `stack`, come from tf_slim."""

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
    inputs: Any, keep_prob: Any = 0.5, noise_shape: Any = None, is_training: Any = True, *, seed: int | None = None
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
        inputs: Any, kernel_size: Shape, stride: Shape = 2, padding: str = "VALID", data_format: str | None = None
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
