"""tensorpack's `models`: layers, chains of layers, and regularization."""

from __future__ import annotations

from tpk_tensorpack.models.batch_norm import BatchNorm, BatchRenorm
from tpk_tensorpack.models.common import VariableHolder, rename_tflayer_get_variable
from tpk_tensorpack.models.conv2d import Conv2D, Conv2DTranspose, Deconv2D
from tpk_tensorpack.models.fc import FullyConnected
from tpk_tensorpack.models.layer_norm import InstanceNorm, LayerNorm
from tpk_tensorpack.models.linearwrap import LinearWrap
from tpk_tensorpack.models.nonlin import BNReLU, Maxout, PReLU
from tpk_tensorpack.models.pool import AvgPooling, FixedUnPooling, GlobalAvgPooling, MaxPooling
from tpk_tensorpack.models.registry import disable_layer_logging, layer_register
from tpk_tensorpack.models.regularize import (
    Dropout,
    l1_regularizer,
    l2_regularizer,
    regularize_cost,
    regularize_cost_from_collection,
)
from tpk_tensorpack.models.shapes import ConcatWith

__all__ = [
    "AvgPooling",
    "BNReLU",
    "BatchNorm",
    "BatchRenorm",
    "ConcatWith",
    "Conv2D",
    "Conv2DTranspose",
    "Deconv2D",
    "Dropout",
    "FixedUnPooling",
    "FullyConnected",
    "GlobalAvgPooling",
    "InstanceNorm",
    "LayerNorm",
    "LinearWrap",
    "MaxPooling",
    "Maxout",
    "PReLU",
    "VariableHolder",
    "disable_layer_logging",
    "l1_regularizer",
    "l2_regularizer",
    "layer_register",
    "regularize_cost",
    "regularize_cost_from_collection",
    "rename_tflayer_get_variable",
]
