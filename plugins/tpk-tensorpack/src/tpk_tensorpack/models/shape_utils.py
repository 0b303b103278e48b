"""Shapes of which a part is known, which TensorFlow itself has."""

from __future__ import annotations

from tpk_tensorpack.missing import not_here

__all__: list[str] = []

_INSTEAD = "tensor.shape, and tf.shape(tensor) for what is not known in it"

__getattr__ = not_here(
    __name__,
    {
        "DynamicLazyAxis": _INSTEAD,
        "StaticDynamicAxis": _INSTEAD,
        "StaticDynamicShape": _INSTEAD,
        "StaticLazyAxis": _INSTEAD,
    },
)
