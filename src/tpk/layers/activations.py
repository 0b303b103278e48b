"""Activations that a plain function cannot be: PReLU, which has a variable, and maxout, which has fewer outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.layers.layer_scope import ZEROS, Function, open_layer


def prelu(
    inputs: Any,
    alpha_initializer: Any = ZEROS,
    alpha_regularizer: Function | None = None,
    alpha_constraint: Function | None = None,
    shared_axes: int | Sequence[int] | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Apply a parametric ReLU: x where it is positive, else ``alpha * x``.

    It is that of He et al., 2015 (https://arxiv.org/abs/1502.01852), who start from an alpha of 0.25, one for each
    channel. Arguments, defaults and results are those of `tf.keras.layers.PReLU`.

    Variables: ``alpha``, of the shape of the inputs without the batch, with 1 along `shared_axes`.

    Args:
        inputs: a floating-point tensor of known rank, 2 or more.
        alpha_initializer: an initializer or its name.
        alpha_regularizer: maps ``alpha`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        alpha_constraint: maps ``alpha`` to its projection after an optimizer's update.
        shared_axes: the axes along which one alpha serves all, e.g. (1, 2) for images with channels last. The sizes of
            all others but the batch must be known.
        trainable: whether ``alpha`` belongs to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``prelu``, made unique: ``prelu_1``, ...
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be; it names the layer.

    Example:
        ```python
        x = prelu(conv2d(image, 32, 3), tf.constant_initializer(0.25), shared_axes=(1, 2))
        ```
    """
    with open_layer("prelu", inputs, name, reuse) as layer:
        layer.require_floating()
        rank = layer.known_rank(2, "(batch, ..., features)")
        shared = [] if shared_axes is None else layer.axes_of("shared_axes", shared_axes)
        if 0 in shared:
            remedy = "It has no alpha of its own for each example anyway."
            raise layer.error("shared_axes", shared_axes, "axes other than that of the batch", remedy)
        alpha = layer.variable(
            "alpha",
            [1 if axis in shared else layer.known_size(axis, "features") for axis in range(1, rank)],
            initializer=alpha_initializer,
            regularizer=alpha_regularizer,
            constraint=alpha_constraint,
            trainable=trainable,
        )
        return tf.nn.relu(layer.inputs) - alpha * tf.nn.relu(-layer.inputs)


def maxout(inputs: Any, num_units: int, axis: int = -1, name: str | None = None) -> Any:
    """Take the maximum of each group of features next to each other.

    It is that of Goodfellow et al., 2013 (https://arxiv.org/abs/1302.4389). Arguments are those of
    `tf.contrib.layers.maxout` of TensorFlow 1. In tensorpack's ``Maxout`` the number is that of the features in a group
    instead.

    Args:
        inputs: a tensor of known rank.
        num_units: how many features are left, a divisor of how many there are.
        axis: the axis of the features, whose size must be known.
        name: the name scope of the ops; None means ``maxout``. It is made unique.

    Returns:
        A tensor like the inputs, but of size `num_units` along `axis`.

    Raises:
        ConfigError: if an argument, or the shape of the inputs, cannot be; it names the layer.

    Example:
        ```python
        hidden = maxout(dense(x, 4 * 64), 64)
        ```
    """
    with open_layer("maxout", inputs, default_name=name) as layer:
        feature_axis = layer.axis_of("axis", axis)
        features = layer.known_size(feature_axis, "features")
        num_units = layer.count_of("num_units", num_units)
        if features % num_units:
            remedy = "Pass another one, or give the layer before this one another number of features."
            raise layer.error("num_units", num_units, f"a divisor of the {features} features", remedy)
        shape, groups = tf.shape(layer.inputs), [num_units, features // num_units]
        grouped = tf.concat([shape[:feature_axis], groups, shape[feature_axis + 1 :]], 0)
        outputs = tf.reduce_max(tf.reshape(layer.inputs, grouped), feature_axis + 1)
        sizes = layer.inputs.shape.as_list()
        outputs.set_shape([*sizes[:feature_axis], num_units, *sizes[feature_axis + 1 :]])
        return outputs
