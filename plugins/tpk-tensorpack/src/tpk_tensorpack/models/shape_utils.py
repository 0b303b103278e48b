"""Partly known shapes, now replaced by TensorFlow's own."""

from __future__ import annotations

from tpk_tensorpack.missing import not_here

__all__: list[str] = []

_INSTEAD = "tensor.shape, and tf.shape(tensor) for unknown dimensions"

_NAMES = ("DynamicLazyAxis", "StaticDynamicAxis", "StaticDynamicShape", "StaticLazyAxis")

__getattr__ = not_here(__name__, dict.fromkeys(_NAMES, _INSTEAD))
