"""Partly known shapes, now replaced by TensorFlow's own."""

from __future__ import annotations

from tpk_tensorpack.missing import not_here

__all__: list[str] = []

_INSTEAD = "tensor.shape, and tf.shape(tensor) for unknown dimensions"

__getattr__ = not_here(
    __name__,
    {
        "DynamicLazyAxis": _INSTEAD,
        "StaticDynamicAxis": _INSTEAD,
        "StaticDynamicShape": _INSTEAD,
        "StaticLazyAxis": _INSTEAD,
    },
)
