"""Activations that are layers: PReLU, which has a variable, and maxout, which has fewer outputs than inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.layers.layer_scope import ZEROS, Function, open_layer, split_axis


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
    """Apply a parametric ReLU: x where it is positive, otherwise ``alpha * x``.

    He et al., 2015 (https://arxiv.org/abs/1502.01852) use one alpha per channel, initially 0.25. Arguments, defaults
    and results are as in `tf.keras.layers.PReLU`.

    Variables: ``alpha``, with the shape of the inputs without the batch, and 1 along `shared_axes`.

    Args:
        inputs: a floating-point tensor of known rank, 2 or more.
        alpha_initializer: an initializer or its name.
        alpha_regularizer: maps ``alpha`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        alpha_constraint: maps ``alpha`` to its projection after an optimizer's update.
        shared_axes: the axes along which alpha is shared, e.g. (1, 2) for images with channels last. The sizes of all
            other axes except the batch must be known.
        trainable: whether ``alpha`` belongs to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None for ``prelu``, made unique: ``prelu_1``, ...
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.

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
            remedy = "All examples of a batch share alpha anyway."
            raise layer.error("shared_axes", shared_axes, "axes other than the axis of the batch", remedy)
        shape = [1 if axis in shared else layer.known_size(axis, "features") for axis in range(1, rank)]
        alpha = layer.variable("alpha", shape, alpha_initializer, alpha_regularizer, alpha_constraint, trainable)
        return tf.nn.relu(layer.inputs) - alpha * tf.nn.relu(-layer.inputs)


def maxout(inputs: Any, num_units: int, axis: int = -1, name: str | None = None) -> Any:
    """Return the maximum of each group of adjacent features (Goodfellow et al., 2013, https://arxiv.org/abs/1302.4389).

    The arguments are as in `tf.contrib.layers.maxout` of TensorFlow 1, which forms other groups unless the axis is the
    last one. In tensorpack's ``Maxout``, the number is the size of a group instead.

    Args:
        inputs: a tensor of known rank.
        num_units: the number of groups, a divisor of the number of features.
        axis: the axis of the features, whose size must be known.
        name: the name scope of the ops, made unique; None for ``maxout``.

    Returns:
        A tensor like the inputs, with size `num_units` along `axis`.

    Raises:
        ConfigError: if an argument, or the shape of the inputs, is invalid; it names the layer.

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
            remedy = "Pass another number, or give the previous layer another number of features."
            raise layer.error("num_units", num_units, f"a divisor of the {features} features", remedy)
        return tf.reduce_max(split_axis(layer.inputs, feature_axis, num_units), feature_axis + 1)
