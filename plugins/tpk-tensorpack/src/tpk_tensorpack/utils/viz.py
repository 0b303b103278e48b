"""Draw and show images: stacks, boxes, heat maps and windows. Needs OpenCV."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpk.dataflow.base import reset_state
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.missing import optional_library
from tpk_tensorpack.utils.argtools import shape2d
from tpk_tensorpack.utils.fs import mkdir_p
from tpk_tensorpack.utils.opencv import cv2

__all__ = [
    "draw_boxes",
    "draw_text",
    "dump_dataflow_images",
    "gen_stack_patches",
    "intensity_to_rgb",
    "interactive_imshow",
    "stack_patches",
]

Image = np.ndarray[Any, Any]
Color = int | Sequence[int]


def interactive_imshow(
    img: Image,
    lclick_cb: Callable[[Image, int, int], Any] | None = None,
    rclick_cb: Callable[[Image, int, int], Any] | None = None,
    **kwargs: Callable[[Image], Any],
) -> str:
    """Show an image in a window until a key is pressed.

    ``q`` closes the window, ``x`` exits the process, and ``s`` saves the image as ``out.png``.

    Args:
        img: the image, in OpenCV's channel order: blue, green, red.
        lclick_cb: called with the image and the position when the left button is clicked.
        rclick_cb: the same for the right button.
        kwargs: ``key_cb_x=f`` calls ``f(img)`` when ``x`` is pressed.

    Returns:
        The key that was pressed.

    Raises:
        ImportError: OpenCV is not installed.
        ValueError: a keyword is not of the form ``key_cb_<key>``.
    """
    wrong = [name for name in kwargs if not (name.startswith("key_cb_") and len(name) == len("key_cb_") + 1)]
    if wrong:
        raise ValueError(f"interactive_imshow takes key_cb_<key>=function, such as key_cb_a, got {wrong[0]!r}")
    window = "viz"
    cv2.imshow(window, img)
    buttons = {cv2.EVENT_LBUTTONUP: lclick_cb, cv2.EVENT_RBUTTONUP: rclick_cb}

    def clicked(event: int, x: int, y: int, *_: Any) -> None:
        callback = buttons.get(event)
        if callback is not None:
            callback(img, x, y)

    cv2.setMouseCallback(window, clicked)
    while True:
        key = chr(cv2.waitKey(-1) & 0xFF)
        callback = kwargs.get(f"key_cb_{key}")
        if callback is not None:
            callback(img)
        elif key == "x":
            sys.exit()
        elif key == "q":
            cv2.destroyWindow(window)
            return key
        elif key == "s":
            cv2.imwrite("out.png", img)
        else:
            return key


def stack_patches(
    patch_list: Any,
    nr_row: int,
    nr_col: int,
    border: int | None = None,
    pad: bool = False,
    bgcolor: Color = 255,
    viz: bool = False,
    lclick_cb: Callable[[Image, int], Any] | None = None,
) -> Image:
    """Stack images on one canvas, row by row.

    Args:
        patch_list: images of shape [height, width] or [height, width, channels] and of one size, or an array of them.
        nr_row: the number of rows.
        nr_col: the number of columns.
        border: the number of pixels between images; by default a twentieth of their smaller side.
        pad: whether to allow different sizes and center smaller images.
        bgcolor: the background: an intensity, or three, which make gray images a canvas with colors.
        viz: whether to show the canvas with `interactive_imshow`.
        lclick_cb: with `viz`: called with the clicked image and its index.

    Returns:
        A ``uint8`` image with channels.

    Raises:
        ValueError: there are too many images, or they differ in size without `pad`.
    """
    patches = _as_patches(patch_list)
    if not pad and len({patch.shape[:2] for patch in patches}) > 1:
        raise ValueError("images have different sizes: pass pad=True to center smaller ones")
    if len(patches) > nr_row * nr_col:
        raise CheckError(f"stack_patches: {len(patches)} images do not fit in {nr_row} rows of {nr_col}")
    return next(gen_stack_patches(patches, nr_row, nr_col, border, bgcolor=bgcolor, viz=viz, lclick_cb=lclick_cb))


def gen_stack_patches(
    patch_list: Any,
    nr_row: int | None = None,
    nr_col: int | None = None,
    border: int | None = None,
    max_width: int = 1000,
    max_height: int = 1000,
    bgcolor: Color = 255,
    viz: bool = False,
    lclick_cb: Callable[[Image, int], Any] | None = None,
) -> Iterator[Image]:
    """Stack images on as many canvases as necessary; see `stack_patches`.

    Args:
        patch_list: images, padded to the same size.
        nr_row: the number of rows of a canvas; by default as many as fit in `max_height`.
        nr_col: the number of columns; by default as many as fit in `max_width`.
        border: the number of pixels between images; by default a twentieth of their smaller side.
        max_width: the maximum width of a canvas, in pixels.
        max_height: the maximum height of a canvas, in pixels.
        bgcolor: the background.
        viz: whether to show each canvas with `interactive_imshow`.
        lclick_cb: with `viz`: called with the clicked image and its index.

    Raises:
        ValueError: a single image does not fit.
    """
    patches = _as_patches(patch_list)
    height, width, channels = (max(sizes) for sizes in zip(*(patch.shape for patch in patches), strict=True))
    gap = int(0.05 * min(height, width) if border is None else border)
    if np.size(bgcolor) == 3:
        channels = max(channels, 3)
    rows = int(max_height + gap) // (height + gap) if nr_row is None else nr_row
    columns = int(max_width + gap) // (width + gap) if nr_col is None else nr_col
    if rows < 1 or columns < 1:
        raise ValueError(f"gen_stack_patches: an image of {height}x{width} does not fit in {max_height}x{max_width}")

    def clicked(first: int, _: Image, x: int, y: int) -> None:
        index = first + y // (height + gap) * columns + x // (width + gap)
        if lclick_cb is not None and index < len(patches):
            lclick_cb(patches[index], index)

    for first in range(0, len(patches), rows * columns):
        size = rows * (height + gap) - gap, columns * (width + gap) - gap, channels
        canvas = np.full(size, bgcolor, np.uint8)
        for place, patch in enumerate(patches[first : first + rows * columns]):
            row, column = divmod(place, columns)
            top = row * (height + gap) + (height - patch.shape[0]) // 2
            left = column * (width + gap) + (width - patch.shape[1]) // 2
            canvas[top : top + patch.shape[0], left : left + patch.shape[1]] = patch
        if viz:
            interactive_imshow(canvas, functools.partial(clicked, first))
        yield canvas


def dump_dataflow_images(
    df: Iterable[Any],
    index: int = 0,
    batched: bool = True,
    number: int = 1000,
    output_dir: str | None = None,
    scale: float = 1,
    resize: int | Sequence[int] | None = None,
    viz: int | Sequence[int] | None = None,
    flipRGB: bool = False,
) -> None:
    """Write the images of a data flow to files, or show them.

    Args:
        df: the data flow.
        index: the index of the component that is the image.
        batched: whether it is a batch of images.
        number: the number of datapoints to use.
        output_dir: the directory to write ``<number>-<index in the batch>.jpg`` to.
        scale: the factor to multiply images by.
        resize: the new size: (height, width), or one number for both.
        viz: show images in this many rows and columns: a pair, or one number for both.
        flipRGB: whether to convert images from RGB to BGR for OpenCV.

    Raises:
        ImportError: OpenCV is not installed.
    """
    if output_dir:
        mkdir_p(output_dir)
    size = None if resize is None else shape2d(resize)
    grid = None if viz is None else shape2d(viz)
    waiting: list[Image] = []
    reset_state(df)
    for count, datapoint in zip(range(number), df, strict=False):
        batch = datapoint[index] if batched else [datapoint[index]]
        for position, image in enumerate(batch):
            image = np.asarray(image) * scale
            if flipRGB:
                image = image[..., ::-1]
            image = np.ascontiguousarray(np.clip(image, 0, 255).astype(np.uint8))
            if size is not None:
                image = cv2.resize(image, (size[1], size[0]))
            if output_dir:
                cv2.imwrite(os.path.join(output_dir, f"{count:03d}-{position}.jpg"), image)
            if grid is not None:
                waiting.append(image)
                if len(waiting) == grid[0] * grid[1]:
                    stack_patches(waiting, *grid, viz=True)
                    waiting = []


def intensity_to_rgb(intensity: Image, cmap: str = "cubehelix", normalize: bool = False) -> Image:
    """Convert intensities to colors.

    Args:
        intensity: of shape [height, width], from 0 to 255.
        cmap: the name of a matplotlib colormap.
        normalize: whether to stretch the intensities to [0, 255] first.

    Returns:
        A ``float32`` image of shape [height, width, 3] with values from 0 to 255: red, green, blue.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the shape is invalid.
    """
    values = np.asarray(intensity, np.float32)
    if values.ndim != 2:
        raise CheckError(f"intensity_to_rgb takes intensities of shape [height, width], got {values.shape}")
    colormaps = optional_library("matplotlib", "intensity_to_rgb").colormaps
    if normalize:
        values = values - values.min()
        values = values / max(float(values.max()), np.finfo(np.float32).tiny)
    else:
        values = values / 255
    colors: Image = colormaps[cmap](values)[:, :, :3].astype(np.float32) * 255
    return colors


def draw_text(img: Image, pos: tuple[int, int], text: str, color: Sequence[int], font_scale: float = 0.4) -> Image:
    """Draw white text on a colored box.

    Args:
        img: an image of shape [height, width, 3].
        pos: the lower left corner of the text: x and y.
        text: the text.
        color: the color of the box.
        font_scale: the font size.
    """
    image: Image = np.array(img, np.uint8)
    font = cv2.FONT_HERSHEY_SIMPLEX
    (width, height), _ = cv2.getTextSize(text, font, font_scale, 1)
    # Move it into the image if it would stick out.
    x = min(int(pos[0]), image.shape[1] - width)
    y = max(int(pos[1]), int(1.15 * height))
    cv2.rectangle(image, (x, y - int(1.3 * height)), (x + width, y), tuple(map(int, color)), cv2.FILLED)
    cv2.putText(image, text, (x, y - int(0.25 * height)), font, font_scale, (222, 222, 222), lineType=cv2.LINE_AA)
    return image


def draw_boxes(im: Image, boxes: Any, labels: Sequence[str] | None = None, color: Sequence[int] | None = None) -> Image:
    """Draw labeled boxes on an image.

    Args:
        im: an image of shape [height, width] or [height, width, 3].
        boxes: of shape [boxes, 4]: x and y of two corners, within the image.
        labels: the text of each box.
        color: the color of all boxes and labels; green by default.

    Raises:
        ImportError: OpenCV is not installed.
        ValueError: a box is empty or exceeds the image, or the number of labels is wrong.
    """
    corners = np.asarray(boxes, np.int32).reshape(-1, 4)
    if labels is not None and len(labels) != len(corners):
        raise CheckError(f"draw_boxes: {len(labels)} labels for {len(corners)} boxes; expected one for each")
    image: Image = np.array(im, np.uint8)
    if image.ndim == 2 or image.shape[2] == 1:
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
    height, width = image.shape[:2]
    x0, y0, x1, y1 = corners.T
    if (corners < 0).any() or (x1 > width).any() or (y1 > height).any() or (x1 <= x0).any() or (y1 <= y0).any():
        raise CheckError(f"draw_boxes: boxes are x0, y0, x1, y1 within the image of {height}x{width}, got {boxes}")
    # Draw small boxes last, so that they are not hidden.
    chosen = (15, 128, 15) if color is None else tuple(map(int, color))
    for index in np.argsort(-(x1 - x0) * (y1 - y0), kind="stable"):
        left, top, right, bottom = map(int, corners[index])
        if labels is not None:
            image = draw_text(image, (left, top), labels[index], chosen)
        cv2.rectangle(image, (left, top), (right, bottom), chosen, 1)
    return image


def _as_patches(patch_list: Any) -> list[Image]:
    """Return images as arrays of shape [height, width, channels]."""
    patches = [np.atleast_3d(patch) for patch in patch_list]
    if not patches:
        raise ValueError("there are no images to show")
    return patches
