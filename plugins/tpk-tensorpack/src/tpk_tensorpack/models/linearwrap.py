"""Chains of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tpk_tensorflow1 as tensorflow1

from tpk_tensorpack.models.registry import get_registered_layer

__all__ = ["LinearWrap"]


class LinearWrap:
    """A tensor with layers as methods that return the next `LinearWrap`.

    Args:
        tensor: the tensor.

    Example:
        ```python
        logits = (
            LinearWrap(image)
            .Conv2D("conv0", 32, 3, activation=tf.nn.relu)
            .MaxPooling("pool0", 2)
            .tf.nn.dropout(0.5)
            .FullyConnected("fc", 10)()
        )
        ```
    """

    def __init__(self, tensor: Any) -> None:
        self._t = tensor

    def __getattr__(self, name: str) -> Any:
        layer = get_registered_layer(name)
        if layer is not None:
            use_scope: bool | None = layer.use_scope  # type: ignore[attr-defined]

            def apply(*args: Any, **kwargs: Any) -> LinearWrap:
                has_name = use_scope is not False and bool(args) and isinstance(args[0], str)
                place = 1 if has_name else 0
                return LinearWrap(layer(*args[:place], self._t, *args[place:], **kwargs))

            return apply
        if name == "tf":
            return _FunctionsOf(tensorflow1, self._t)
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"LinearWrap has no layer {name!r}: it supports layers of layer_register, .tf.… for TensorFlow's "
            "functions, and .apply(function, …) for others"
        )

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> LinearWrap:
        """Return ``func(tensor, *args, **kwargs)``, wrapped."""
        return LinearWrap(func(self._t, *args, **kwargs))

    def apply2(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> LinearWrap:
        """Return ``func(args[0], tensor, *args[1:], **kwargs)``, wrapped: for layers with a name."""
        return LinearWrap(func(args[0], self._t, *args[1:], **kwargs))

    def __call__(self) -> Any:
        """Return the tensor."""
        return self._t

    def tensor(self) -> Any:
        """Return the tensor."""
        return self._t

    def print_tensor(self) -> LinearWrap:
        """Print the tensor and return self."""
        print(self._t)
        return self


class _FunctionsOf:
    """The functions of TensorFlow or of one of its modules, as methods."""

    def __init__(self, module: Any, tensor: Any) -> None:
        self._module = module
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if not callable(found):  # a module
            return _FunctionsOf(found, self._tensor)
        return lambda *args, **kwargs: LinearWrap(found(self._tensor, *args, **kwargs))
