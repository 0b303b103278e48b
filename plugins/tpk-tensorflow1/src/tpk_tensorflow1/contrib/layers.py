"""`tf.contrib.layers`: layers with a normalizer and an activation, initializers and regularizers.

Variables have their TensorFlow 1 names: ``fully_connected/weights``, ``Conv/biases``, ``BatchNorm/moving_mean``, ….
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk import graph, layers
from tpk_tensorflow1.contrib.framework import add_arg_scope
from tpk_tensorflow1.missing import finder_in

__all__ = [
    "apply_regularization",
    "avg_pool2d",
    "batch_norm",
    "bias_add",
    "conv2d",
    "conv2d_transpose",
    "convolution",
    "convolution2d",
    "convolution2d_transpose",
    "dropout",
    "flatten",
    "fully_connected",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "linear",
    "max_pool2d",
    "one_hot_encoding",
    "relu",
    "repeat",
    "separable_conv2d",
    "separable_convolution2d",
    "softmax",
    "stack",
    "sum_regularizer",
    "unit_norm",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]

v1 = tf.compat.v1

ZEROS = v1.zeros_initializer()

Function = Callable[..., Any]
Shape2D = int | Sequence[int]

# The standard deviation of a normal distribution truncated at two standard deviations: the initializers of
# `tf.contrib` and of `tf` correct for it by different factors.
_OF_TRUNCATED = 1.3 * 0.87962566103423978**2


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """Return an initializer whose variance is `factor` divided by the number of inputs or outputs.

    Args:
        factor: the default 2 is from He et al., https://arxiv.org/abs/1502.01852.
        mode: ``"FAN_IN"``, ``"FAN_OUT"`` or ``"FAN_AVG"``.
        uniform: whether the distribution is uniform; otherwise it is a truncated normal distribution.
        seed: the seed of the op.
        dtype: the dtype of the values.

    Raises:
        ValueError: `mode` is unknown.
    """
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise ValueError(f"variance_scaling_initializer(mode={mode!r}): expected 'FAN_IN', 'FAN_OUT' or 'FAN_AVG'")
    scale = factor if uniform else factor * _OF_TRUNCATED
    distribution = "uniform" if uniform else "truncated_normal"
    return v1.variance_scaling_initializer(scale, mode.lower(), distribution, seed=seed, dtype=dtype)


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32) -> Any:
    """Return the initializer of Glorot and Bengio, http://proceedings.mlr.press/v9/glorot10a.html."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def l1_regularizer(scale: float, scope: str | None = None) -> Function:
    """Return a function that maps weights to the sum of their absolute values, times `scale`."""
    return _regularizer(graph.l1_regularizer(scale), scale, scope or "l1_regularizer")


def l2_regularizer(scale: float, scope: str | None = None) -> Function:
    """Return a function that maps weights to half the sum of their squares, times `scale`."""
    return _regularizer(graph.l2_regularizer(scale), scale, scope or "l2_regularizer")


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None) -> Function:
    """Return the sum of `l1_regularizer` and `l2_regularizer`."""
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope or "l1_l2_regularizer")


def sum_regularizer(regularizer_list: Sequence[Function | None], scope: str | None = None) -> Function:
    """Return a function that maps weights to the sum of several regularizers."""
    regularizers = [each for each in regularizer_list if each is not None]

    def regularize(weights: Any) -> Any:
        with tf.name_scope(scope or "sum_regularizer"):
            losses = [loss for loss in (each(weights) for each in regularizers) if loss is not None]
            return tf.add_n(losses) if losses else None

    return regularize


def apply_regularization(regularizer: Function, weights_list: Sequence[Any] | None = None) -> Any:
    """Return the sum of a regularizer over weights, by default those in the collection ``WEIGHTS``."""
    weights = v1.get_collection(v1.GraphKeys.WEIGHTS) if weights_list is None else list(weights_list)
    losses = [loss for loss in map(regularizer, weights) if loss is not None]
    total = tf.add_n(losses) if losses else tf.constant(0.0)
    v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, total)
    return total


def _layer_with_weights(
    compute: Function,
    default_scope: str,
    activation_fn: Function | None = tf.nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Function | None = None,
    biases_initializer: Any = ZEROS,
    biases_regularizer: Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Apply a layer that has weights, given the arguments that all of these share.

    Args:
        compute: computes the outputs with a function of `tpk.layers`; it takes the options of that function.
        default_scope: the default of `scope`.
        activation_fn: see `fully_connected` for this argument and all others.
    """
    with _layer(scope, default_scope, reuse, variables_collections) as layer:
        outputs = compute(
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer or xavier_initializer(),
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=layer,
        )
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        return _finished(outputs, outputs_collections, activation_fn)


@add_arg_scope
def fully_connected(inputs: Any, num_outputs: int, *args: Any, **kwargs: Any) -> Any:
    """Connect every unit to all features, then apply the normalizer and the activation.

    Args:
        inputs: a tensor of shape [batch, …, features].
        num_outputs: the number of units.
        args: the following arguments, in this order.
        kwargs: the same by name.
        activation_fn: the activation; None for a linear layer.
        normalizer_fn: a normalizer that replaces the bias, such as `batch_norm`.
        normalizer_params: additional arguments for the normalizer.
        weights_initializer: the initializer of ``weights``; by default `xavier_initializer`.
        weights_regularizer: maps ``weights`` to a loss.
        biases_initializer: the initializer of ``biases``; None for no bias.
        biases_regularizer: maps ``biases`` to a loss.
        reuse: whether to reuse existing variables.
        variables_collections: additional collections for all variables, or a mapping from their names to collections.
        outputs_collections: one or more collections for the outputs.
        trainable: whether the variables are trained.
        scope: the variable scope; by default ``fully_connected``, numbered if the name is in use.
    """
    compute = functools.partial(layers.dense, inputs, num_outputs)
    return _layer_with_weights(compute, "fully_connected", *args, **kwargs)


def linear(*args: Any, **kwargs: Any) -> Any:
    """Return `fully_connected` without an activation."""
    return fully_connected(*args, **{"activation_fn": None, **kwargs})


def relu(*args: Any, **kwargs: Any) -> Any:
    """Return `fully_connected` with a ReLU activation."""
    return fully_connected(*args, **{"activation_fn": tf.nn.relu, **kwargs})


@add_arg_scope
def conv2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: Shape2D,
    stride: Shape2D = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Shape2D = 1,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Convolve images, then apply the normalizer and the activation.

    Args:
        inputs: a batch of images.
        num_outputs: the number of output channels.
        kernel_size: the height and width of the kernel.
        stride: the stride of the windows.
        padding: ``"SAME"`` or ``"VALID"``.
        data_format: ``"NHWC"`` or ``"NCHW"``.
        rate: the dilation rate of the kernel.
        args: the other arguments of `fully_connected`, in the same order; the default scope is ``Conv``.
        kwargs: the same by name.
    """
    layout = _data_format(data_format)
    compute = functools.partial(layers.conv2d, inputs, num_outputs, kernel_size, stride, padding, layout, rate)
    return _layer_with_weights(compute, "Conv", *args, **kwargs)


convolution = convolution2d = conv2d


@add_arg_scope
def conv2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Shape2D,
    stride: Shape2D = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Apply a transposed convolution; see `conv2d` for the arguments. The default scope is ``Conv2d_transpose``."""
    layout = _data_format(data_format)
    compute = functools.partial(layers.conv2d_transpose, inputs, num_outputs, kernel_size, stride, padding, layout)
    return _layer_with_weights(compute, "Conv2d_transpose", *args, **kwargs)


convolution2d_transpose = conv2d_transpose


@add_arg_scope
def separable_conv2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Shape2D,
    depth_multiplier: int = 1,
    stride: Shape2D = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Shape2D = 1,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Convolve each channel, then mix the channels unless `num_outputs` is None; see `conv2d`."""
    layout = _data_format(data_format)
    geometry = stride, padding, layout, rate, depth_multiplier

    def compute(kernel_initializer: Any, kernel_regularizer: Function | None, **options: Any) -> Any:
        options |= {"depthwise_initializer": kernel_initializer, "depthwise_regularizer": kernel_regularizer}
        if num_outputs is None:
            return layers.depthwise_conv2d(inputs, kernel_size, *geometry, **options)
        options |= {"pointwise_initializer": kernel_initializer, "pointwise_regularizer": kernel_regularizer}
        return layers.separable_conv2d(inputs, num_outputs, kernel_size, *geometry, **options)

    return _layer_with_weights(compute, "SeparableConv2d", *args, **kwargs)


separable_convolution2d = separable_conv2d


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: None = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
) -> Any:
    """Normalize each feature with the statistics of the batch in training, and with moving averages otherwise.

    Args:
        inputs: a tensor of shape [batch, …, features], or images with channels first.
        decay: the decay of the moving averages.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        epsilon: a small number that is added to the variance.
        activation_fn: the activation.
        param_initializers: initializers by the names ``beta``, ``gamma``, ``moving_mean`` and ``moving_variance``.
        param_regularizers: regularizers by the names ``beta`` and ``gamma``.
        updates_collections: the collections for the updates of the moving averages; None to update them whenever the
            outputs are computed.
        is_training: a boolean, or a boolean tensor.
        reuse: whether to reuse existing variables.
        variables_collections: see `fully_connected`.
        outputs_collections: see there.
        trainable: whether the variables are trained.
        batch_weights: must be None.
        fused: whether to use the fused op.
        data_format: ``"NHWC"`` or ``"NCHW"``.
        zero_debias_moving_mean: must be False.
        scope: the variable scope; by default ``BatchNorm``, numbered if the name is in use.
        renorm: see `tpk.layers.batch_normalization`.
        renorm_clipping: see there.
        renorm_decay: see there.

    Raises:
        ValueError: `batch_weights` or `zero_debias_moving_mean` is given.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise ValueError("tf.contrib.layers.batch_norm: batch_weights and zero_debias_moving_mean are not supported")
    parameters = {f"{name}_initializer": each for name, each in (param_initializers or {}).items()}
    parameters |= {f"{name}_regularizer": each for name, each in (param_regularizers or {}).items()}
    with _layer(scope, "BatchNorm", reuse, variables_collections) as layer:
        updates = v1.get_collection_ref(v1.GraphKeys.UPDATE_OPS)
        before = len(updates)
        outputs = layers.batch_normalization(
            inputs,
            axis=1 if _data_format(data_format) == "channels_first" else -1,
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            trainable=trainable,
            training=is_training,
            renorm=renorm,
            renorm_clipping=renorm_clipping,
            renorm_momentum=renorm_decay,
            fused=fused,
            name=layer,
            **parameters,
        )
        if updates_collections != v1.GraphKeys.UPDATE_OPS:
            made = updates[before:]
            del updates[before:]
            if updates_collections is None:
                with tf.control_dependencies(made):
                    outputs = tf.identity(outputs)
            else:
                for update in made:
                    v1.add_to_collections(updates_collections, update)
        return _finished(outputs, outputs_collections, activation_fn)


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalize each example over all its features (Ba et al., 2016, https://arxiv.org/abs/1607.06450).

    Args:
        inputs: a tensor of known rank, 2 or more.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
        activation_fn: the activation.
        reuse: see `fully_connected`.
        variables_collections: see there.
        outputs_collections: see there.
        trainable: see there.
        begin_norm_axis: the first axis of mean and variance, which include all later ones.
        begin_params_axis: the variables have the shape of the inputs from this axis on. They are float32 if the inputs
            are float16 or bfloat16.
        scope: the variable scope; by default ``LayerNorm``, numbered if the name is in use.

    Raises:
        ValueError: an axis or the shape of the inputs is invalid.
    """
    rank = inputs.shape.rank
    if rank is None or not all(-rank <= axis < rank for axis in (begin_norm_axis, begin_params_axis)):
        raise ValueError(
            f"tf.contrib.layers.layer_norm: the inputs of shape {inputs.shape} have no axis {begin_norm_axis} or "
            f"{begin_params_axis}"
        )
    is_half = inputs.dtype.base_dtype in (tf.float16, tf.bfloat16)
    values = tf.cast(inputs, tf.float32) if is_half else inputs

    def parameter(name: str, initializer: Any) -> Any:
        shape = inputs.shape[begin_params_axis:]
        return v1.get_variable(name, shape, values.dtype, initializer, trainable=trainable)

    with _layer(scope, "LayerNorm", reuse, variables_collections):
        beta = parameter("beta", ZEROS) if center else None
        gamma = parameter("gamma", v1.ones_initializer()) if scale else None
        mean, variance = tf.nn.moments(values, list(range(rank))[begin_norm_axis:], keepdims=True)
        epsilon = 1e-3 if is_half else 1e-12
        outputs = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
        return _finished(tf.cast(outputs, inputs.dtype), outputs_collections, activation_fn)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Function | None = None,
    initializer: Any = ZEROS,
    regularizer: Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Add a bias to each feature. The default scope is ``BiasAdd``."""
    channels = inputs.shape.as_list()[1 if _data_format(data_format) == "channels_first" else -1]
    with _layer(scope, "BiasAdd", reuse, variables_collections):
        biases = v1.get_variable(
            "biases", [channels], inputs.dtype, initializer, regularizer=regularizer, trainable=trainable
        )
        outputs = tf.nn.bias_add(inputs, biases, data_format=data_format)
        return _finished(outputs, outputs_collections, activation_fn)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: str | None = None,
    seed: int | None = None,
) -> Any:
    """Keep each input with probability `keep_prob` in training; see `tpk.layers.dropout`."""
    rate = 1 - keep_prob
    outputs = layers.dropout(inputs, rate, noise_shape, seed, is_training, name=scope or "Dropout")
    return _finished(outputs, outputs_collections)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> Any:
    """Flatten all axes except the batch axis."""
    return _finished(layers.flatten(inputs, name=scope or "Flatten"), outputs_collections)


@add_arg_scope
def max_pool2d(inputs: Any, kernel_size: Shape2D, *args: Any, **kwargs: Any) -> Any:
    """Take the maximum of each window; see `avg_pool2d` for the arguments. The default scope is ``MaxPool2D``."""
    return _pool2d(layers.max_pooling2d, "MaxPool2D", inputs, kernel_size, *args, **kwargs)


@add_arg_scope
def avg_pool2d(inputs: Any, kernel_size: Shape2D, *args: Any, **kwargs: Any) -> Any:
    """Take the average of each window.

    Args:
        inputs: a batch of images.
        kernel_size: the height and width of the windows.
        args: `stride` (2 by default), `padding` (``"VALID"``), `data_format` (``"NHWC"``), `outputs_collections`, and
            `scope` (``AvgPool2D``).
        kwargs: the same by name.
    """
    return _pool2d(layers.average_pooling2d, "AvgPool2D", inputs, kernel_size, *args, **kwargs)


def _pool2d(
    pooling: Function,
    default_scope: str,
    inputs: Any,
    kernel_size: Shape2D,
    stride: Shape2D = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    layout = _data_format(data_format)
    outputs = pooling(inputs, kernel_size, stride, padding, layout, name=scope or default_scope)
    return _finished(outputs, outputs_collections)


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    """Return the one-hot encoding of labels."""
    with tf.name_scope(scope or "OneHotEncoding"):
        outputs = tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value=on_value, off_value=off_value)
    return _finished(outputs, outputs_collections)


def softmax(logits: Any, scope: str | None = None) -> Any:
    """Return the softmax of the last axis."""
    return tf.nn.softmax(logits, name=scope or "softmax")


def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: str | None = None) -> Any:
    """Scale inputs to unit norm along an axis."""
    with tf.name_scope(scope or "UnitNorm"):
        return inputs / tf.sqrt(epsilon + tf.reduce_sum(tf.square(inputs), dim, keepdims=True))


def repeat(inputs: Any, repetitions: int, layer: Function, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer several times, in scopes ``<scope>/<scope>_1``, ``…_2``, …; `scope` defaults to its name."""
    scope = kwargs.pop("scope", None) or getattr(layer, "__name__", "repeat")
    with v1.variable_scope(scope, "Repeat"):
        for number in range(repetitions):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{scope}_{number + 1}"})
    return inputs


def stack(inputs: Any, layer: Function, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply a layer once for each element of `stack_args`, in scopes ``<scope>/<scope>_1``, ``…_2``, …."""
    scope = kwargs.pop("scope", None) or getattr(layer, "__name__", "stack")
    with v1.variable_scope(scope, "Stack"):
        for number, args in enumerate(stack_args):
            given = args if isinstance(args, list | tuple) else [args]
            inputs = layer(inputs, *given, **{**kwargs, "scope": f"{scope}_{number + 1}"})
    return inputs


__getattr__ = finder_in("tf.contrib.layers", __all__)

_NAMES = {
    "kernel": "weights",
    "bias": "biases",
    "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}


@contextmanager
def _layer(scope: Any, default_name: str, reuse: Any, collections: Any) -> Iterator[Any]:
    """Enter the variable scope of a layer, where variables get their old names and are added to collections."""
    model_variables = v1.GraphKeys.MODEL_VARIABLES

    def get_variable(getter: Function, name: str, *args: Any, **kwargs: Any) -> Any:
        prefix, _, last = name.rpartition("/")
        # A normalizer has a separate scope and renames its own variables.
        last = _NAMES.get(last, last)
        variable = getter(f"{prefix}/{last}" if prefix else last, *args, **kwargs)
        further = collections.get(last, ()) if isinstance(collections, Mapping) else collections or ()
        for key in [model_variables, *([further] if isinstance(further, str) else further)]:
            if not any(variable is each for each in v1.get_collection_ref(key)):
                v1.add_to_collection(key, variable)
        return variable

    with v1.variable_scope(scope, default_name, reuse=reuse, custom_getter=get_variable) as layer:
        yield layer


def _finished(outputs: Any, collections: Any, activation_fn: Function | None = None) -> Any:
    """Apply the activation, and add the outputs to collections."""
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    if collections:
        v1.add_to_collections(collections, outputs)
    return outputs


def _data_format(data_format: str | None) -> str:
    if data_format not in (None, "NHWC", "NCHW"):
        raise ValueError(f"data_format={data_format!r}: expected 'NHWC' or 'NCHW'")
    return "channels_first" if data_format == "NCHW" else "channels_last"


def _regularizer(regularizer: Function, scale: float, scope: str) -> Function:
    def regularize(weights: Any) -> Any:
        if scale == 0:
            return None
        with tf.name_scope(scope):
            return regularizer(weights)

    return regularize
