"""The geometry of layers of images: which axis is what, and how large things are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.layer_scope import LayerScope, Pair


@attrs.frozen
class ImageLayout:
    """Where the channels stand in a batch of images."""

    channels_first: bool

    @classmethod
    def of(cls, layer: LayerScope, data_format: str) -> ImageLayout:
        """Take ``"channels_last"`` or ``"channels_first"``."""
        known = ("channels_last", "channels_first")
        return cls(layer.one_of("data_format", data_format, known) == "channels_first")

    @classmethod
    def of_images(cls, layer: LayerScope, data_format: str) -> ImageLayout:
        """The same for a layer whose inputs must be images."""
        layout = cls.of(layer, data_format)
        layer.require_images(layout.arrange("batch", ("height", "width"), "channels"))
        return layout

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
        """Put what belongs to the axes into their order."""
        return [batch, channels, *spatial] if self.channels_first else [batch, *spatial, channels]

    def spatial_sizes(self, inputs: Any) -> tuple[int | None, int | None]:
        """What is known of height and width of `inputs` when the graph is built."""
        shape = inputs.shape.as_list()
        height, width = (shape[axis] for axis in self.spatial_axes)
        return height, width


def padding_of(layer: LayerScope, padding: str) -> str:
    """Return TensorFlow's name of ``"valid"`` or ``"same"``."""
    return layer.one_of("padding", padding, ("valid", "same")).upper()


def require_window_fits(layer: LayerScope, layout: ImageLayout, window: tuple[int, int], padding: str) -> None:
    """Refuse a window that is larger than the image if there is no padding: there would be no outputs."""
    image = layout.spatial_sizes(layer.inputs)
    fits = (size is None or size >= extent for size, extent in zip(image, window, strict=True))
    if padding == "VALID" and not all(fits):
        raise layer.error(
            "(height, width) of the inputs",
            image,
            f"at least {window}, what the window covers, as padding is 'valid'",
            "Use padding='same', a smaller window, or less downsampling before this layer.",
        )


@attrs.frozen
class ConvolutionGeometry:
    """The sizes of a convolution, checked."""

    layout: ImageLayout
    channels: int
    filters: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int]
    dilation_rate: tuple[int, int]
    padding: str

    @classmethod
    def of(
        cls,
        layer: LayerScope,
        filters: int,
        kernel_size: Pair,
        strides: Pair,
        padding: str,
        data_format: str,
        dilation_rate: Pair = (1, 1),
    ) -> ConvolutionGeometry:
        """Take the arguments of a convolution, and check them and the inputs."""
        layout = ImageLayout.of_images(layer, data_format)
        layer.require_floating()
        geometry = cls(
            layout=layout,
            channels=layer.known_size(layout.channel_axis, "channels"),
            filters=layer.count_of("filters", filters),
            kernel_size=layer.pair_of("kernel_size", kernel_size),
            strides=layer.pair_of("strides", strides),
            dilation_rate=layer.pair_of("dilation_rate", dilation_rate),
            padding=padding_of(layer, padding),
        )
        if max(geometry.strides) > 1 and max(geometry.dilation_rate) > 1:
            raise layer.error(
                "(strides, dilation_rate)",
                (geometry.strides, geometry.dilation_rate),
                "at most one of the two greater than 1",
                "Dilate in this layer and take strides in another, or the other way round.",
            )
        return geometry

    @property
    def window(self) -> tuple[int, int]:
        """(height, width) of what the dilated kernel covers."""
        size, rate = self.kernel_size, self.dilation_rate
        return (size[0] - 1) * rate[0] + 1, (size[1] - 1) * rate[1] + 1

    def output_shape(self, inputs: Any) -> list[int | None]:
        """What is known of the shape of the outputs when the graph is built."""
        sizes: list[int | None] = []
        for size, window, stride in zip(self.layout.spatial_sizes(inputs), self.window, self.strides, strict=True):
            missing = window - 1 if self.padding == "VALID" else 0
            sizes.append(None if size is None else -(-(size - missing) // stride))
        return self.layout.arrange(inputs.shape.as_list()[0], sizes, self.filters)

    def transposed_output_shape(self, inputs: Any) -> list[int | None]:
        """The same for the transposed convolution."""
        sizes = self._transposed_sizes(self.layout.spatial_sizes(inputs))
        return self.layout.arrange(inputs.shape.as_list()[0], sizes, self.filters)

    def dynamic_transposed_output_shape(self, inputs: Any) -> Any:
        """The shape of the outputs of the transposed convolution, as a tensor."""
        shape = tf.shape(inputs)
        batch_size = shape[0]
        static = inputs.shape.as_list()
        sizes = [shape[axis] if static[axis] is None else static[axis] for axis in self.layout.spatial_axes]
        return tf.stack(self.layout.arrange(batch_size, self._transposed_sizes(sizes), self.filters))

    def _transposed_sizes(self, sizes: Sequence[Any]) -> list[Any]:
        """Height and width of windows that are as many as the inputs, and `strides` apart."""
        outputs: list[Any] = []
        for size, window, stride in zip(sizes, self.window, self.strides, strict=True):
            overhang = max(window - stride, 0)
            if size is None:
                outputs.append(None)
            else:
                outputs.append(size * stride if self.padding == "SAME" else size * stride + overhang)
        return outputs
