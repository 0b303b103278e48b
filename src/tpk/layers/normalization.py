"""Batch normalization and layer normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.arguments import Function, require_floating, static_size
from tpk.layers.layer_scope import ONES, ZEROS, LayerScope, open_layer
from tpk.layers.training_flag import TrainingFlag

_HALF_PRECISION = (tf.float16, tf.bfloat16)


def batch_normalization(
    inputs: Any,
    axis: int | Sequence[int] = -1,
    momentum: Any = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    moving_mean_initializer: Any = ZEROS,
    moving_variance_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    beta_constraint: Function | None = None,
    gamma_constraint: Function | None = None,
    training: Any = False,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_momentum: float = 0.99,
    fused: bool | None = None,
    virtual_batch_size: int | None = None,
    adjustment: Any = None,
) -> Any:
    """Normalize each feature over the batch (Ioffe and Szegedy, 2015, https://arxiv.org/abs/1502.03167).

    In training with the mean and variance of the batch, in inference with their moving averages:
    ``gamma * (inputs - mean) / sqrt(variance + epsilon) + beta``.

    In training the layer adds two ops to ``UPDATE_OPS``, which move the averages. They have to be run along with the
    training step: tpk's `RunUpdateOps` callback does, or control dependencies of the train op on them.

    Variables, each of shape [features]: ``gamma``, ``beta``, ``moving_mean``, ``moving_variance``; the last two are not
    trainable. They are float32 if the inputs are float16 or bfloat16.

    Args:
        inputs: a floating-point tensor of any known rank.
        axis: the axis of the features: -1 (channels last), 1 (channels first); or several axes, so that the variables
            have a shape that broadcasts to the inputs. The sizes must be known.
        momentum: how much of the moving averages stays in each step; a number or a scalar tensor.
        epsilon: added to the variance.
        center: whether there is a ``beta``.
        scale: whether there is a ``gamma``; the layer after a linear one can do without if it is linear itself.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        moving_mean_initializer: an initializer or its name.
        moving_variance_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        beta_constraint: maps ``beta`` to its projection after an optimizer's update.
        gamma_constraint: the same for ``gamma``.
        training: a boolean, or a scalar boolean tensor.
        trainable: whether ``gamma`` and ``beta`` belong to ``TRAINABLE_VARIABLES``, and the updates to ``UPDATE_OPS``.
        name: the variable scope of the layer; None means ``batch_normalization``, made unique.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.
        renorm: not supported; must be False.
        renorm_clipping: counts only with `renorm`.
        renorm_momentum: counts only with `renorm`.
        fused: None or True take TensorFlow's fused kernel where it applies (four or five axes, features in the second
            or the last, not float64); False never. The fused kernel feeds the moving average the unbiased variance of
            the batch, the other the biased one.
        virtual_batch_size: not supported; must be None.
        adjustment: not supported; must be None.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be used; it names the layer.
    """
    with open_layer("batch_normalization", inputs, name, reuse) as layer:
        _refuse(layer, "renorm", renorm, False)
        _refuse(layer, "virtual_batch_size", virtual_batch_size, None)
        _refuse(layer, "adjustment", adjustment, None)
        flag = TrainingFlag.of(layer, training)
        require_floating(layer)
        axes = _feature_axes(layer, axis)
        dtype = tf.float32 if layer.inputs.dtype in _HALF_PRECISION else layer.inputs.dtype
        sizes = {axis: static_size(layer, axis, "features") for axis in axes}
        shape = (
            list(sizes.values())
            if len(axes) == 1
            else [sizes.get(axis, 1) for axis in range(layer.inputs.shape.rank)]
        )
        gamma = beta = None
        if scale:
            gamma = layer.variable(
                "gamma",
                shape,
                dtype=dtype,
                initializer=gamma_initializer,
                regularizer=gamma_regularizer,
                constraint=gamma_constraint,
                trainable=trainable,
            )
        if center:
            beta = layer.variable(
                "beta",
                shape,
                dtype=dtype,
                initializer=beta_initializer,
                regularizer=beta_regularizer,
                constraint=beta_constraint,
                trainable=trainable,
            )
        batch_norm = _BatchNorm(
            flag=flag,
            axes=axes,
            epsilon=epsilon,
            momentum=momentum,
            gamma=gamma,
            beta=beta,
            moving_mean=layer.statistic(
                "moving_mean", shape, dtype=dtype, initializer=moving_mean_initializer
            ),
            moving_variance=layer.statistic(
                "moving_variance", shape, dtype=dtype, initializer=moving_variance_initializer
            ),
        )
        if fused is not False and batch_norm.has_fused_kernel(layer.inputs):
            outputs, updates = batch_norm.fused(layer.inputs)
        else:
            outputs, updates = batch_norm.composed(layer.inputs)
        # The updates of a frozen layer stay in the graph, where they count for the seeds of what comes later.
        if trainable:
            for update in updates:
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        return outputs


def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation: Function | str | None = None,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float | None = None,
    beta_initializer: Any = ZEROS,
    gamma_initializer: Any = ONES,
    beta_regularizer: Function | None = None,
    gamma_regularizer: Function | None = None,
    trainable: bool = True,
    name: Any = None,
    reuse: Any = None,
) -> Any:
    """Normalize each example over its features (Ba et al., 2016, https://arxiv.org/abs/1607.06450).

    It computes what `tf.contrib.layers.layer_norm` of TensorFlow 1 did, with the same variables in the same order,
    ``beta`` and ``gamma``, and the same default scope, ``LayerNorm``, so its checkpoints load. Arguments have the names
    that the other layers give them: `activation` was ``activation_fn``, `name` was ``scope``.

    Args:
        inputs: a floating-point tensor of known rank, of at least 2.
        center: whether there is a ``beta``, which is added.
        scale: whether there is a ``gamma``, by which is multiplied.
        activation: a function, or its name in `tf.nn`; None is linear.
        begin_norm_axis: mean and variance are over this axis and all after it.
        begin_params_axis: ``beta`` and ``gamma`` have the shape of this axis and all after it, which must be known.
        epsilon: added to the variance; None means 1e-12, and 1e-3 for float16 and bfloat16 inputs.
        beta_initializer: an initializer or its name.
        gamma_initializer: an initializer or its name.
        beta_regularizer: maps ``beta`` to a scalar loss, which is added to ``REGULARIZATION_LOSSES``.
        gamma_regularizer: the same for ``gamma``.
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope of the layer; None means ``LayerNorm``, made unique.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Returns:
        A tensor like the inputs.

    Raises:
        ConfigError: if an argument, or the shape or dtype of the inputs, cannot be used; it names the layer.
    """
    with open_layer("layer_norm", inputs, name, reuse, default_name="LayerNorm") as layer:
        require_floating(layer)
        norm_axis = _axis(layer, "begin_norm_axis", begin_norm_axis)
        params_axis = _axis(layer, "begin_params_axis", begin_params_axis)
        rank = layer.inputs.shape.rank
        shape = [static_size(layer, axis, "parameters") for axis in range(params_axis, rank)]
        beta = gamma = None
        if center:
            beta = layer.variable(
                "beta", shape, initializer=beta_initializer, regularizer=beta_regularizer, trainable=trainable
            )
        if scale:
            gamma = layer.variable(
                "gamma",
                shape,
                initializer=gamma_initializer,
                regularizer=gamma_regularizer,
                trainable=trainable,
            )
        if epsilon is None:
            epsilon = 1e-3 if layer.inputs.dtype in _HALF_PRECISION else 1e-12
        mean, variance = tf.nn.moments(layer.inputs, list(range(norm_axis, rank)), keepdims=True)
        outputs = tf.nn.batch_normalization(layer.inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(layer.inputs.shape)
        return layer.activate(outputs, activation)


@attrs.frozen
class _BatchNorm:
    """The variables of a batch normalization, and the two ways to compute it.

    Each returns the outputs, and the ops that update the moving averages.
    """

    flag: TrainingFlag
    axes: list[int]
    epsilon: float
    momentum: Any
    gamma: Any
    beta: Any
    moving_mean: Any
    moving_variance: Any

    def has_fused_kernel(self, inputs: Any) -> bool:
        """Whether TensorFlow's kernel can do it: images or volumes, channels first or last."""
        rank = inputs.shape.rank
        return (
            rank in (4, 5)
            and self.axes in ([1], [rank - 1])
            and inputs.dtype in (*_HALF_PRECISION, tf.float32)
        )

    def fused(self, inputs: Any) -> tuple[Any, list[Any]]:
        """Compute it in one kernel."""
        moving_mean, moving_variance = self.moving_mean, self.moving_variance
        shape, dtype = moving_mean.shape, moving_mean.dtype.base_dtype
        beta = tf.constant(0.0, dtype, shape) if self.beta is None else self.beta
        gamma = tf.constant(1.0, dtype, shape) if self.gamma is None else self.gamma

        def kernel(is_training: bool) -> Any:
            return tf.compat.v1.nn.fused_batch_norm(
                inputs,
                gamma,
                beta,
                mean=moving_mean,
                variance=moving_variance,
                epsilon=self.epsilon,
                data_format=_tensor_format(inputs.shape.rank, self.axes[0]),
                is_training=is_training,
            )

        outputs, mean, variance = self.flag.choose(lambda: kernel(True), lambda: kernel(False))
        if self.flag.static is False:
            return outputs, []
        # In inference the averages stay what they are: all of them is kept.
        if self.flag.static is None:
            momentum = self.flag.choose(lambda: self.momentum, lambda: 1.0)
        else:
            momentum = tf.convert_to_tensor(self.momentum)
        updates = [
            _move_average(moving_mean, mean, momentum),
            _move_average(moving_variance, variance, momentum),
        ]
        return outputs, [update.op for update in updates]

    def composed(self, inputs: Any) -> tuple[Any, list[Any]]:
        """Compute it from elementary ops."""
        dtype = self.moving_mean.dtype.base_dtype
        values = tf.cast(inputs, dtype)
        gamma, beta = self._broadcast(self.gamma, values), self._broadcast(self.beta, values)
        mean, variance, updates = self.moving_mean, self.moving_variance, []
        if self.flag.static is not False:
            others = [axis for axis in range(values.shape.rank) if axis not in self.axes]
            batch_mean, batch_variance = tf.nn.moments(values, others, keepdims=len(self.axes) > 1)
            mean = self.flag.choose(lambda: batch_mean, lambda: tf.convert_to_tensor(self.moving_mean))
            variance = self.flag.choose(
                lambda: batch_variance, lambda: tf.convert_to_tensor(self.moving_variance)
            )
            updates = [self._update(self.moving_mean, mean), self._update(self.moving_variance, variance)]
        # A custom getter may have given the variables another dtype.
        mean, variance = tf.cast(mean, dtype), tf.cast(variance, dtype)
        beta = None if beta is None else tf.cast(beta, dtype)
        gamma = None if gamma is None else tf.cast(gamma, dtype)
        mean, variance = self._broadcast(mean, values), self._broadcast(variance, values)
        outputs = tf.nn.batch_normalization(values, mean, variance, beta, gamma, self.epsilon)
        outputs = tf.cast(outputs, inputs.dtype)
        outputs.set_shape(inputs.shape)
        return outputs, updates

    def _update(self, variable: Any, value: Any) -> Any:
        return self.flag.choose(lambda: _move_average(variable, value, self.momentum), lambda: variable).op

    def _broadcast(self, parameter: Any, values: Any) -> Any:
        """Reshape a vector of features so that it broadcasts to `values`, if they are not their last axis."""
        rank = values.shape.rank
        if parameter is None or self.axes == [rank - 1] or len(self.axes) > 1:
            return parameter
        shape = [1] * rank
        shape[self.axes[0]] = values.shape[self.axes[0]]
        return tf.reshape(parameter, shape)


def _move_average(variable: Any, value: Any, momentum: Any) -> Any:
    """Move `variable` towards `value`, so that the share `momentum` of it stays."""
    graph = tf.compat.v1.get_default_graph()
    with tf.name_scope("AssignMovingAvg") as scope, graph.colocate_with(variable):
        decay = tf.cast(tf.convert_to_tensor(1.0 - momentum, name="decay"), variable.dtype.base_dtype)
        change = (variable - tf.cast(value, variable.dtype.base_dtype)) * decay
        return tf.compat.v1.assign_sub(variable, change, name=scope)


def _tensor_format(rank: int, feature_axis: int) -> str:
    spatial = "HW" if rank == 4 else "DHW"
    return f"NC{spatial}" if feature_axis == 1 else f"N{spatial}C"


def _feature_axes(layer: LayerScope, axis: int | Sequence[int]) -> list[int]:
    """The axes of the features, from the first axis on, in the order given."""
    axes = [_axis(layer, "axis", one) for one in (axis if isinstance(axis, list | tuple) else [axis])]
    if not axes or len(set(axes)) < len(axes):
        raise layer.error("axis", axis, "an axis or several different ones", "Pass e.g. axis=-1.")
    return axes


def _axis(layer: LayerScope, what: str, axis: int) -> int:
    """Return `axis`, which may count from the end, as counted from the start."""
    shape = layer.inputs.shape
    if shape.rank is None:
        remedy = "Set it with set_shape or in the placeholder."
        raise layer.error("the shape of the inputs", shape, "one of known rank", remedy)
    if not isinstance(axis, int) or not -shape.rank <= axis < shape.rank:
        expected = f"an axis of the inputs, an integer in [{-shape.rank}, {shape.rank})"
        raise layer.error(what, axis, expected, f"The shape of the inputs is {shape}.")
    return axis % shape.rank


def _refuse(layer: LayerScope, what: str, got: object, only: object) -> None:
    if got != only:
        raise layer.error(
            what, got, f"{only}, as tpk does not support it", "Leave it out, or build it from tf.nn ops."
        )
