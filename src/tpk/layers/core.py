"""Fully connected layers, dropout, and flattening."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import tensorflow as tf

from tpk.graph import random
from tpk.layers.layer_scope import ZEROS, Function, TrainingFlag, open_layer


def dense(
    inputs: Any,
    units: int,
    activation: Function | str | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = ZEROS,
    kernel_regularizer: Function | None = None,
    bias_regularizer: Function | None = None,
    activity_regularizer: Function | None = None,
    kernel_constraint: Function | None = None,
    bias_constraint: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Return ``activation(inputs @ kernel + bias)``.

    Variables: ``kernel`` of shape [features, units], and ``bias`` of shape [units].

    Args:
        inputs: a floating-point tensor of shape [batch, ..., features]; the number of features must be known.
        units: the number of outputs.
        activation: a function, or its name in `tf.nn`; None for linear.
        use_bias: whether to add a bias.
        kernel_initializer: an initializer or its name; None for the one of the enclosing variable scope, or else
            Glorot-uniform.
        bias_initializer: an initializer or its name.
        kernel_regularizer: maps the kernel to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        bias_regularizer: the same for the bias.
        activity_regularizer: the same for the outputs; the loss is divided by the batch size.
        kernel_constraint: maps the kernel to its projection after an optimizer's update.
        bias_constraint: the same for the bias.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None for ``dense``, made unique: ``dense_1``, ...
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor of shape [batch, ..., units].

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, is invalid; it names the layer.

    Example:
        ```python
        hidden = dense(features, 64, activation=tf.nn.relu)
        logits = dense(hidden, 10, name="logits")
        ```
    """
    with open_layer("dense", inputs, name, reuse) as layer:
        units = layer.count_of("units", units)
        layer.require_floating()
        last_axis = layer.known_rank(2, "(batch, ..., features)") - 1
        shape = [layer.known_size(last_axis, "features"), units]
        kernel = layer.variable("kernel", shape, kernel_initializer, kernel_regularizer, kernel_constraint, trainable)
        bias = layer.bias(units, use_bias, (bias_initializer, bias_regularizer, bias_constraint), trainable)
        if last_axis == 1:
            outputs = tf.matmul(layer.inputs, kernel)
        else:
            outputs = tf.tensordot(layer.inputs, kernel, [[last_axis], [0]])
            outputs.set_shape(layer.inputs.shape[:-1].concatenate(units))
        return layer.finish(outputs, activation, activity_regularizer, bias)


def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Sequence[int | None] | None = None,
    seed: int | None = None,
    training: Any = None,
    name: str | None = None,
) -> Any:
    """In training, set a random fraction of the inputs to zero, and scale the rest by ``1 / (1 - rate)``.

    The mask depends on the seed of the graph, the name of the op with its tower, and the global step, so a resumed
    training drops the same elements; see `tpk.graph.random`. Trainers increment the global step. Without a trainer, do
    so yourself, e.g. by ``minimize(cost, global_step=tf.compat.v1.train.get_global_step())``.

    Args:
        inputs: a floating-point tensor.
        rate: the fraction to drop, in [0, 1); a number or a scalar tensor.
        noise_shape: the shape of the random mask, which is broadcast to the inputs; None for the shape of the inputs.
            Within the shape, None is the size of the inputs.
        seed: the op-level seed; another seed gives another mask.
        training: a boolean, or a scalar boolean tensor. None for whether the current tower is trained, and False
            outside of towers.
        name: the name scope of the ops, made unique; None for ``dropout``.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the dtype of the inputs, is invalid; it names the layer.
    """
    with open_layer("dropout", inputs, default_name=name) as layer:
        layer.require_floating()
        flag = TrainingFlag.of(layer, training)
        if isinstance(rate, Real) and not 0 <= float(rate) < 1:
            remedy = "It is the fraction to drop, not the one to keep."
            raise layer.error("rate", rate, "a number in [0, 1)", remedy)
        if isinstance(rate, Real) and rate == 0:
            return tf.identity(layer.inputs)

        def drop() -> Any:
            return random.dropout(layer.inputs, rate, noise_shape, seed)

        return flag.choose(drop, lambda: tf.identity(layer.inputs))


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Any:
    """Flatten all axes except the first, the batch.

    Args:
        inputs: a tensor with at least one axis; if it has only one, each element becomes a row.
        name: the name scope of the ops, made unique; None for ``flatten``.
        data_format: ``"channels_last"``, or ``"channels_first"`` to move the channels from axis 1 to the end first, so
            that the features have the same order.

    Returns:
        A tensor of shape [batch, features].

    Raises:
        ConfigError: if `data_format` or the rank of the inputs is invalid; it names the layer.
    """
    with open_layer("flatten", inputs, default_name=name) as layer:
        channels_first = layer.is_channels_first(data_format)
        rank = layer.known_rank(1, "(batch, ...)")
        inputs = layer.inputs
        if rank == 1:
            return tf.expand_dims(inputs, axis=1)
        if channels_first:
            inputs = tf.transpose(inputs, [0, *range(2, rank), 1])
        batch_size, features = inputs.shape.as_list()[0], inputs.shape[1:].num_elements()
        if features is not None:
            return tf.reshape(inputs, tf.constant([-1, features]))
        if batch_size is not None:
            return tf.reshape(inputs, tf.constant([batch_size, -1]))
        return tf.reshape(inputs, [tf.shape(inputs)[0], -1])
