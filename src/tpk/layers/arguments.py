"""What a layer is called with: each function checks one argument, and returns its normal form or raises."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import tensorflow as tf

if TYPE_CHECKING:
    from tpk.layers.layer_scope import LayerScope

Pair = int | Sequence[int]
"""(height, width), or one integer for both."""

Function = Callable[[Any], Any]
"""An activation, a regularizer or a constraint."""

_ACTIVATIONS = (
    *("elu", "gelu", "leaky_relu", "log_softmax", "relu", "relu6", "selu", "sigmoid", "silu"),
    *("softmax", "softplus", "softsign", "swish", "tanh"),
)
_INITIALIZERS = (
    *("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity", "lecun_normal"),
    *("lecun_uniform", "ones", "orthogonal", "zeros"),
)


@attrs.frozen
class ImageLayout:
    """Where the channels stand in a batch of images."""

    channels_first: bool

    @classmethod
    def of(cls, layer: LayerScope, data_format: str) -> ImageLayout:
        """Return what `data_format` says: ``"channels_last"`` or ``"channels_first"``."""
        known = ("channels_last", "channels_first")
        return cls(_one_of(layer, "data_format", data_format, known) == "channels_first")

    @property
    def tensor_format(self) -> str:
        """TensorFlow's name of the layout."""
        return "NCHW" if self.channels_first else "NHWC"

    @property
    def channel_axis(self) -> int:
        """The axis of the channels."""
        return 1 if self.channels_first else 3

    @property
    def spatial_axes(self) -> tuple[int, int]:
        """The axes of height and width."""
        return (2, 3) if self.channels_first else (1, 2)

    def arrange(self, batch: Any, spatial: Sequence[Any], channels: Any) -> list[Any]:
        """Return the four values in the order of the axes."""
        return [batch, channels, *spatial] if self.channels_first else [batch, *spatial, channels]


def padding_of(layer: LayerScope, padding: str) -> str:
    """Return TensorFlow's name of `padding`: ``"VALID"`` or ``"SAME"``."""
    return _one_of(layer, "padding", padding, ("valid", "same")).upper()


def pair_of(layer: LayerScope, what: str, value: Pair) -> tuple[int, int]:
    """Return (height, width) from two positive integers, or from one for both."""
    try:
        pair = (value, value) if hasattr(value, "__index__") else tuple(value)
        height, width = (operator.index(size) for size in pair)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        expected = "a positive integer or a pair of them"
        raise layer.error(what, value, expected, f"Pass e.g. {what}=3 or {what}=(3, 3).")
    return height, width


def count_of(layer: LayerScope, what: str, value: float) -> int:
    """Return a positive integer; a float stands for it if nothing is lost, as 32.0 for 32."""
    try:
        count = int(value) if int(value) == value else 0
    except (TypeError, ValueError, OverflowError):
        count = 0
    if count < 1:
        raise layer.error(
            what, value, "a positive integer", f"Pass how many there should be, e.g. {what}=32."
        )
    return count


def require_rank(layer: LayerScope, rank: int, axes: str) -> None:
    """Refuse inputs that do not have `rank` axes; `axes` names them, such as ``"(batch, features)"``."""
    if layer.inputs.shape.rank != rank:
        raise layer.error(
            "the shape of the inputs",
            layer.inputs.shape,
            f"rank {rank}: {axes}",
            "Reshape the inputs; if their rank is unknown, set it with set_shape or in the placeholder.",
        )


def require_images(layer: LayerScope, layout: ImageLayout) -> None:
    """Refuse inputs that are not batches of images."""
    axes = layout.arrange("batch", ("height", "width"), "channels")
    require_rank(layer, 4, f"({', '.join(axes)})")


def require_floating(layer: LayerScope) -> None:
    """Refuse inputs that are no floating-point or complex numbers: weights have the dtype of the inputs."""
    dtype = layer.inputs.dtype.base_dtype
    if not (dtype.is_floating or dtype.is_complex):
        remedy = "Cast them, e.g. with tf.cast(x, tf.float32)."
        raise layer.error("the dtype of the inputs", dtype.name, "a floating-point type", remedy)


def static_size(layer: LayerScope, axis: int, what: str) -> int:
    """Return the size of the inputs along `axis`, which must be known: shapes of variables depend on it."""
    shape = layer.inputs.shape
    if shape[axis] is None:
        raise layer.error(
            "the shape of the inputs",
            shape,
            f"a known size along axis {axis}, the {what}, as the shape of a variable depends on it",
            "Set it with set_shape or in the placeholder.",
        )
    return int(shape[axis])


def require_window_fits(
    layer: LayerScope, layout: ImageLayout, window: tuple[int, int], padding: str
) -> None:
    """Refuse a window that is larger than the image if there is no padding: there would be no outputs."""
    image = tuple(layer.inputs.shape[axis] for axis in layout.spatial_axes)
    fits = (size is None or size >= extent for size, extent in zip(image, window, strict=True))
    if padding == "VALID" and not all(fits):
        raise layer.error(
            "(height, width) of the inputs",
            image,
            f"at least {window}, the extent of the window, as padding is 'valid'",
            "Use padding='same', a smaller window, or less downsampling before this layer.",
        )


def activation_of(layer: LayerScope, activation: Function | str | None) -> Function | None:
    """Return an activation function, which may be given by its name in `tf.nn`; None and "linear" mean none."""
    if isinstance(activation, str) and activation != "linear":
        return _named(layer, "activation", activation, _ACTIVATIONS, tf.nn)
    return None if activation == "linear" else function_of(layer, "activation", activation)


def initializer_of(layer: LayerScope, what: str, initializer: Any) -> Any:
    """Return an initializer, which may be given by its name in `tf.compat.v1.initializers`; None stays None."""
    if isinstance(initializer, str):
        return _named(layer, what, initializer, _INITIALIZERS, tf.compat.v1.initializers)()
    return function_of(layer, what, initializer)


def function_of(layer: LayerScope, what: str, function: Function | None) -> Function | None:
    """Return `function` if it can be called or is None."""
    if function is None or callable(function):
        return function
    raise layer.error(what, function, "a function or None", "Pass the function that computes it.")


def _named(layer: LayerScope, what: str, name: str, known: Sequence[str], module: Any) -> Any:
    if name not in known:
        expected = f"a function or one of {', '.join(known)}"
        raise layer.error(what, name, expected, "Pass the function itself.")
    return getattr(module, name)


def _one_of(layer: LayerScope, what: str, value: str, known: Sequence[str]) -> str:
    choice = value.lower() if isinstance(value, str) else value
    if choice not in known:
        raise layer.error(what, value, " or ".join(map(repr, known)), f"Pass e.g. {what}={known[0]!r}.")
    return choice
