"""The geometry of sequences, images and volumes: the order of their axes, and the sizes of windows and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.layer_scope import LayerScope, Sizes

_SPATIAL_AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


@attrs.frozen
class SpatialLayout:
    """The order of the axes in a batch of sequences, images or volumes.

    Attributes:
        channels_first: whether the channels come before the spatial axes, instead of after them.
        spatial_rank: the number of spatial axes: 1, 2 or 3.
    """

    channels_first: bool
    spatial_rank: int

    @classmethod
    def of_inputs(cls, layer: LayerScope, data_format: str, spatial_rank: int) -> SpatialLayout:
        """Check `data_format` and the rank of the inputs, and return the layout."""
        layout = cls(layer.is_channels_first(data_format), spatial_rank)
        layer.require_rank(layout.arrange("batch", _SPATIAL_AXES[spatial_rank], "channels"))
        return layout

    @property
    def tensor_format(self) -> str:
        """TensorFlow's name of the layout."""
        spatial = "DHW"[-self.spatial_rank :]
        return f"NC{spatial}" if self.channels_first else f"N{spatial}C"

    @property
    def channel_axis(self) -> int:
        """The axis of the channels."""
        return 1 if self.channels_first else self.spatial_rank + 1

    @property
    def spatial_axes(self) -> list[int]:
        """All axes except batch and channels."""
        first = 2 if self.channels_first else 1
        return list(range(first, first + self.spatial_rank))

    def arrange(self, batch: Any, spatial: Sequence[Any], channels: Any) -> list[Any]:
        """Return the values of the axes in the order of the layout."""
        return [batch, channels, *spatial] if self.channels_first else [batch, *spatial, channels]

    def spatial_sizes(self, inputs: Any) -> tuple[int | None, ...]:
        """Return the static spatial sizes of `inputs`."""
        shape = inputs.shape.as_list()
        return tuple(shape[axis] for axis in self.spatial_axes)

    def to_channels_last(self, values: Any) -> Any:
        """Move the channels from axis 1 to the end, if they come first."""
        return tf.transpose(values, [0, *self.spatial_axes, 1]) if self.channels_first else values

    def from_channels_last(self, values: Any) -> Any:
        """Move the channels from the end to axis 1, if they come first."""
        if not self.channels_first:
            return values
        return tf.transpose(values, [0, self.spatial_rank + 1, *range(1, self.spatial_rank + 1)])


def require_window_fits(layer: LayerScope, layout: SpatialLayout, window: tuple[int, ...], padding: str) -> None:
    """Raise if a window without padding is larger than the inputs, which would leave no outputs."""
    sizes = layout.spatial_sizes(layer.inputs)
    fits = (size is None or size >= extent for size, extent in zip(sizes, window, strict=True))
    if padding == "VALID" and not all(fits):
        axes = ", ".join(_SPATIAL_AXES[layout.spatial_rank])
        expected = f"at least {window}, the size of the window, because padding is 'valid'"
        remedy = "Use padding='same', a smaller window, or less downsampling before this layer."
        raise layer.error(f"({axes}) of the inputs", sizes, expected, remedy)


@attrs.frozen
class ConvolutionGeometry:
    """The sizes of a convolution, checked.

    Attributes:
        layout: the order of the axes.
        channels: the number of channels of the inputs.
        kernel_size: the size of the kernel along each spatial axis.
        strides: the distance of windows along each spatial axis.
        dilation_rate: the distance of the elements of the kernel along each spatial axis.
        padding: ``"VALID"``, ``"SAME"`` or ``"CAUSAL"``.
    """

    layout: SpatialLayout
    channels: int
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation_rate: tuple[int, ...]
    padding: str

    @classmethod
    def of(
        cls,
        layer: LayerScope,
        spatial_rank: int,
        kernel_size: Sizes,
        strides: Sizes,
        padding: str,
        data_format: str,
        dilation_rate: Sizes = 1,
        *,
        may_be_causal: bool = False,
    ) -> ConvolutionGeometry:
        """Check the arguments and the inputs of a convolution."""
        layout = SpatialLayout.of_inputs(layer, data_format, spatial_rank)
        layer.require_floating()
        paddings = ("valid", "same", "causal") if may_be_causal else ("valid", "same")
        geometry = cls(
            layout=layout,
            channels=layer.known_size(layout.channel_axis, "channels"),
            kernel_size=layer.sizes_of("kernel_size", kernel_size, spatial_rank),
            strides=layer.sizes_of("strides", strides, spatial_rank),
            dilation_rate=layer.sizes_of("dilation_rate", dilation_rate, spatial_rank),
            padding=layer.one_of("padding", padding, paddings).upper(),
        )
        if max(geometry.strides) > 1 and max(geometry.dilation_rate) > 1:
            raise layer.error(
                "(strides, dilation_rate)",
                (geometry.strides, geometry.dilation_rate),
                "at most one of the two greater than 1",
                "Use dilation in this layer and strides in another, or the other way round.",
            )
        return geometry

    @property
    def window(self) -> tuple[int, ...]:
        """The size of the dilated kernel along each spatial axis."""
        return tuple((size - 1) * rate + 1 for size, rate in zip(self.kernel_size, self.dilation_rate, strict=True))

    def padded_causally(self, inputs: Any) -> tuple[Any, ConvolutionGeometry]:
        """Return sequences with causal padding, if there is any, and the geometry of their convolution."""
        if self.padding != "CAUSAL":
            return inputs, self
        before = [(extent - 1, 0) for extent in self.window]
        padded = tf.pad(inputs, self.layout.arrange((0, 0), before, (0, 0)))
        return padded, attrs.evolve(self, padding="VALID")

    def output_shape(self, inputs: Any, filters: int) -> list[int | None]:
        """Return the static shape of the outputs."""
        sizes: list[int | None] = []
        for size, window, stride in zip(self.layout.spatial_sizes(inputs), self.window, self.strides, strict=True):
            missing = window - 1 if self.padding == "VALID" else 0
            sizes.append(None if size is None else -(-(size - missing) // stride))
        return self.layout.arrange(inputs.shape.as_list()[0], sizes, filters)

    def transposed_sizes(self, sizes: Sequence[Any]) -> list[Any]:
        """Return the spatial sizes of the outputs of the transposed convolution for inputs of these sizes."""
        outputs: list[Any] = []
        for size, window, stride in zip(sizes, self.window, self.strides, strict=True):
            same = None if size is None else size * stride
            outputs.append(same if same is None or self.padding == "SAME" else same + max(window - stride, 0))
        return outputs
