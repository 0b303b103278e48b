"""Callbacks that save tensors and parameters as images, in files and in the monitors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.callbacks.inspection.tensors import LooksAtTensors
from tpk.durable_files import replace_file
from tpk.errors import ConfigError, TowerError
from tpk.graph.reports.png import as_pixels, encode_png, is_floating
from tpk.graph.variables import by_name, name_in_tower, variable_name
from tpk.plugin.callback import Callback, in_run_dir
from tpk.text import nearest

MapFunc = Callable[[Any], Any]

_MAX_IMAGES = 10


class DumpTensorAsImage(LooksAtTensors):
    """Saves a tensor as images to ``<prefix>-<step>.png`` in the run directory, and reports them to the monitors.

    Several images are saved as ``<prefix>-<step>-<number>.png``, at most 10 of one value. Floats range from 0 to 1 and
    integers from 0 to 255, as in `tf.summary.image`; other values are clipped. It runs like `ProcessTensors`, but the
    training also waits while the files are written.

    Args:
        tensor: the name of a tensor, or a tensor; see `ProcessTensors`.
        prefix: the name of the files and images; by default the name of the tensor, with dots for slashes in files.
        map_func: takes the value and returns an image or images: an array of shape ``(height, width)``, ``(height,
            width, channels)`` or ``(number, height, width, channels)`` with 1, 3 (RGB) or 4 (RGBA) channels; or a list
            of these, which may differ in size. By default the value itself is used.
        every_k_steps: see `ProcessTensors`.

    Raises:
        ConfigError, TowerError: see `ProcessTensors`; also, when the graph is set up, if the training has no `run_dir`;
            and in a step, if the value is not an image.

    Example:
        ```python
        DumpTensorAsImage("generator/output", map_func=lambda x: (x + 1) / 2, every_k_steps=500)
        ```
    """

    def __init__(
        self,
        tensor: Any,
        prefix: str | None = None,
        map_func: MapFunc | None = None,
        *,
        every_k_steps: int = 1,
    ) -> None:
        super().__init__(tensor, every_k_steps=every_k_steps)
        if len(self._wanted) != 1:
            raise ConfigError(f"DumpTensorAsImage takes one tensor, got {tensor!r}. Take one callback for each.")
        _check_map_func(self, map_func)
        self._prefix = prefix
        self._map_func = map_func or (lambda value: value)

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the tensor, and check that there is a run directory."""
        in_run_dir(self)
        super().setup_graph(trainer)

    def look(self, values: dict[str, Any]) -> None:
        """Save the images."""
        ((name, value),) = values.items()
        _put_images(self, self._prefix or name, as_images(self, name, self._map_func(value)))


class DumpParamAsImage(Callback):
    """Saves a parameter as images to ``<prefix>-<step>.png`` in the run directory, and reports them to the monitors.

    By default the smallest number is black and the greatest is white, and the kernel of a convolution of 1, 3 or 4
    channels becomes one image per filter. Files are named as by `DumpTensorAsImage`.

    - **When it runs**: at the end of each epoch, or at the times of `PeriodicTrigger`.
    - **What it costs**: a separate run to read the variable; steps cost nothing.
    - **Where it works**: on every strategy; it looks at the variables of the main training tower in the chief.

    Args:
        variable: the name of a variable, in the main training tower or else in the graph; or a variable.
        prefix: the name of the files and images; by default the name of the variable, with dots for slashes in files.
        map_func: takes the value, and returns an image or images; see `DumpTensorAsImage`.

    Raises:
        ConfigError: if an option is invalid; when the graph is set up, if the training has no `run_dir`; when it is
            triggered, if the value is not an image.
        TowerError: when the graph is set up, if the variable does not exist; the message lists the nearest names.

    Example:
        ```python
        tpk.PeriodicTrigger(DumpParamAsImage("conv0/W"), every_k_epochs=5)
        ```
    """

    def __init__(self, variable: Any, prefix: str | None = None, map_func: MapFunc | None = None) -> None:
        _check_map_func(self, map_func)
        self._wanted = variable
        self._variable: Any = None
        self._prefix = prefix
        self._map_func = map_func or _stretched

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the variable, and check that there is a run directory."""
        in_run_dir(self)
        self._variable = _find_variable(trainer, self._wanted)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Save the images."""
        name, value = name_in_tower(variable_name(self._variable)), trainer.sess.run(self._variable)
        _put_images(self, self._prefix or name, as_images(self, name, self._map_func(value)))


def as_images(callback: Callback, name: str, value: Any) -> list[np.ndarray]:
    """Return the images in `value` as ``uint8`` arrays of shape ``(height, width, channels)``.

    Args:
        callback: the callback, for messages.
        name: the name of the value, for messages.
        value: an array of one image or several, or a list of images.

    Raises:
        ConfigError: if it is not an image.
    """
    if isinstance(value, list | tuple):
        return [image for each in value for image in as_images(callback, name, each)]
    array = np.asarray(value)
    pixels = as_pixels(array.astype(np.float64) * 255 if array.dtype.kind == "b" or is_floating(array) else array)
    if pixels is None:
        raise ConfigError(
            f"{type(callback).__name__}: {name!r} is not an image: {array.dtype.name} of shape {array.shape}. Expected "
            "(height, width), (height, width, channels) or (number, height, width, channels) with 1, 3 or 4 channels. "
            "Convert it with map_func."
        )
    return list(pixels)


def _stretched(value: np.ndarray) -> np.ndarray:
    """Return the numbers scaled to 0 to 1. The kernel of a convolution becomes one image per filter."""
    if value.ndim == 4 and value.shape[2] in (1, 3, 4):
        value = value.transpose(3, 0, 1, 2)
    if value.dtype.kind not in "fiu" or value.size == 0:
        return value
    numbers = value.astype(np.float64)
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return (numbers - low) / ((high - low) or 1.0)


def _put_images(callback: Callback, name: str, images: list[np.ndarray]) -> None:
    images = images[:_MAX_IMAGES]
    stem = f"{name.replace('/', '.').replace(':', '.')}-{callback.global_step}"
    for number, image in enumerate(images):
        file_name = f"{stem}.png" if len(images) == 1 else f"{stem}-{number}.png"
        replace_file(in_run_dir(callback, file_name), encode_png(image))
    if len({image.shape for image in images}) == 1:
        callback.trainer.monitors.put_image(name, np.stack(images))
    else:
        for number, image in enumerate(images):
            callback.trainer.monitors.put_image(f"{name}/{number}", image)


def _find_variable(trainer: Any, wanted: Any) -> Any:
    """Return a variable of the main training tower, or else of the graph."""
    if isinstance(wanted, tf.Variable):
        return wanted
    if not isinstance(wanted, str):
        raise ConfigError(f"DumpParamAsImage: expected a variable or the name of one, got {wanted!r}.")
    if trainer.towers.main is not None:
        return trainer.towers.main.get_variable(wanted)
    name, variables = wanted.removesuffix(":0"), by_name(tf.compat.v1.global_variables())
    if name not in variables:
        raise TowerError(f"the graph has no variable {wanted!r}.{nearest(name, variables)}")
    return variables[name]


def _check_map_func(callback: Callback, map_func: Any) -> None:
    if map_func is not None and not callable(map_func):
        raise ConfigError(f"{type(callback).__name__}(map_func={map_func!r}): expected a function.")
