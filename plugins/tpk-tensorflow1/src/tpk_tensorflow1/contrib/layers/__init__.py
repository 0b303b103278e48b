"""`tf.contrib.layers`: layers with a normalizer and an activation, initializers and regularizers.

Variables have their TensorFlow 1 names: ``fully_connected/weights``, ``Conv/biases``, ``BatchNorm/moving_mean``, ….
"""

from __future__ import annotations

from tpk_tensorflow1.contrib.layers.initializers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
    variance_scaling_initializer,
    xavier_initializer,
    xavier_initializer_conv2d,
)
from tpk_tensorflow1.contrib.layers.normalization import batch_norm, layer_norm, unit_norm
from tpk_tensorflow1.contrib.layers.plain import (
    avg_pool2d,
    dropout,
    flatten,
    max_pool2d,
    one_hot_encoding,
    repeat,
    softmax,
    stack,
)
from tpk_tensorflow1.contrib.layers.weights import (
    bias_add,
    conv2d,
    conv2d_transpose,
    convolution,
    convolution2d,
    convolution2d_transpose,
    fully_connected,
    linear,
    relu,
    separable_conv2d,
    separable_convolution2d,
)
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

__getattr__ = finder_in("tf.contrib.layers", __all__)
