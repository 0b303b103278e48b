"""`scipy.misc`: images by Pillow, as SciPy had them until 1.2, and functions that are in ``scipy.special`` now."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image
from scipy.special import comb as comb, factorial as factorial, logsumexp as logsumexp

_CHANNELS = {"L": 1, "F": 1, "P": 1, "RGB": 3, "YCbCr": 3, "RGBA": 4, "CMYK": 4}
"""The number of channels of Pillow's modes; the first mode with that number is the default."""


def imread(name: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """Read an image from a file.

    Args:
        name: the path, or an open file.
        flatten: whether to return gray values as ``float32``.
        mode: convert the image to this mode of Pillow, such as ``"RGB"``.
    """
    with Image.open(name) as image:
        return fromimage(image, flatten, mode)


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """Return a Pillow image as an array; see `imread` for the arguments."""
    if mode is not None and mode != im.mode:
        im = im.convert(mode)
    elif im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    if flatten:
        im = im.convert("F")
    elif im.mode == "1":
        im = im.convert("L")
    return np.array(im)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:
    """Write an array as an image; see `toimage` for the values."""
    toimage(arr, channel_axis=2).save(name, format)


def imshow(arr: Any) -> None:
    """Show an array as an image in an external viewer."""
    toimage(arr).show()


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> Any:
    """Return a resized image.

    Args:
        arr: the image; unless it has bytes, its values are scaled to 0 to 255.
        size: a percentage (int), a factor (float), or the height and width.
        interp: ``"nearest"``, ``"lanczos"``, ``"bilinear"``, ``"bicubic"`` or ``"cubic"``.
        mode: the mode of Pillow in which the image is resized, such as ``"F"``.
    """
    image = toimage(arr, mode=mode)
    if isinstance(size, (int, np.integer)):
        size = size / 100
    if isinstance(size, (float, np.floating)):
        new = (int(image.width * size), int(image.height * size))
    else:
        new = (int(size[1]), int(size[0]))
    return fromimage(image.resize(new, _resampling(interp)))


def imrotate(arr: Any, angle: float, interp: str = "bilinear") -> Any:
    """Return an image rotated counter-clockwise by `angle` degrees, in its former size."""
    return fromimage(toimage(arr).rotate(angle, _resampling(interp)))


def toimage(
    arr: Any,
    high: int = 255,
    low: int = 0,
    cmin: float | None = None,
    cmax: float | None = None,
    pal: Any = None,
    mode: str | None = None,
    channel_axis: int | None = None,
) -> Any:
    """Return an array as a Pillow image.

    Args:
        arr: gray values, or an array with an axis of three or four channels.
        high: the byte for `cmax`.
        low: the byte for `cmin`.
        cmin: the lowest value, by default that of the array; arrays of bytes are not scaled.
        cmax: the highest value, likewise.
        pal: the palette, for the mode ``"P"``.
        mode: ``"L"``, ``"F"``, ``"P"``, ``"RGB"``, ``"YCbCr"``, ``"RGBA"`` or ``"CMYK"``; by default by the number of
            channels.
        channel_axis: the axis of the channels; by default the first one of size 3, or else of size 4.

    Raises:
        ValueError: the shape is not that of an image.
    """
    arr = np.asarray(arr)
    if arr.ndim == 3:
        if channel_axis is None:
            channel_axis = next((axis for size in (3, 4) for axis in range(3) if arr.shape[axis] == size), 2)
        arr = np.moveaxis(arr, channel_axis, 2)
    channels = {2: 1, 3: arr.shape[-1]}.get(arr.ndim)
    mode = mode or next((each for each in _CHANNELS if _CHANNELS[each] == channels), "")
    if channels is None or _CHANNELS.get(mode) != channels or arr.shape[2:] == (1,):
        raise ValueError(f"toimage: an array of shape {list(arr.shape)} is not an image of mode {mode!r}")
    values = arr.astype(np.float32) if mode == "F" else bytescale(arr, cmin, cmax, high, low)
    image = Image.frombytes(mode, (arr.shape[1], arr.shape[0]), values.tobytes())
    if mode == "P":
        image.putpalette(np.repeat(np.arange(256, dtype=np.uint8), 3) if pal is None else np.asarray(pal, np.uint8))
    return image


def bytescale(data: Any, cmin: float | None = None, cmax: float | None = None, high: int = 255, low: int = 0) -> Any:
    """Return an array scaled to bytes; see `toimage` for the arguments."""
    data = np.asarray(data)
    if data.dtype == np.uint8:
        return data
    cmin, cmax = data.min() if cmin is None else cmin, data.max() if cmax is None else cmax
    scaled = (data * 1.0 - cmin) * ((high - low) / (cmax - cmin or 1)) + low
    return (scaled.clip(low, high) + 0.5).astype(np.uint8)


def _resampling(interp: str) -> Any:
    return Image.Resampling["BICUBIC" if interp == "cubic" else interp.upper()]
