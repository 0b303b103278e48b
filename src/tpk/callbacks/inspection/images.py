"""Tensors and parameters as images, in files and in the monitors."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.callbacks.inspection.tensors import LooksAtTensors, file_in_run_dir, write_file
from tpk.errors import ConfigError, TowerError
from tpk.graph.reports.png import encode_png
from tpk.graph.variables import name_in_tower, variable_name
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

MapFunc = Callable[[Any], Any]


class DumpTensorAsImage(LooksAtTensors):
    """Writes a tensor as one or more images to ``<prefix>-<step>.png`` in the directory of the run, and to the
    monitors.

    Several images are ``<prefix>-<step>-<number>.png``. Floats are taken to be from 0 to 1, and whole numbers from 0 to
    255, as `tf.summary.image` does; what lies outside is clipped.

    When it runs and where it works is as for `ProcessTensors`. It costs that, and the time in which the files are
    written, for which the training waits.

    Args:
        tensor: as for `ProcessTensors`, but one.
        prefix: what the files and the images are called; by default the name of the tensor, without slashes in files.
        map_func: takes the value, and returns the image or images: an array of shape ``(height, width)``, ``(height,
            width, channels)`` or ``(number, height, width, channels)`` with 1, 3 (RGB) or 4 (RGBA) channels; or a list
            of those, which may differ in size. By default the value is that.
        every_k_steps: as for `ProcessTensors`.
        max_images: how many images of one value are written: the first ones.

    Raises:
        ConfigError, TowerError: as `ProcessTensors`; or, when the graph is set up, if the training has no `run_dir`;
            and in a step, if there is something else than images.

    Example:
        ```python
        DumpTensorAsImage("generator/output", map_func=lambda x: (x + 1) / 2, every_k_steps=500, max_images=4)
        ```
    """

    def __init__(
        self,
        tensor: Any,
        prefix: str | None = None,
        map_func: MapFunc | None = None,
        *,
        every_k_steps: int = 1,
        max_images: int = 10,
    ) -> None:
        super().__init__(tensor, every_k_steps)
        if len(self._wanted) != 1:
            raise ConfigError(f"DumpTensorAsImage takes one tensor, got {tensor!r}. Take one callback for each.")
        _check_options(self, map_func, max_images)
        self._prefix = prefix
        self._map_func = map_func
        self._max_images = max_images

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the tensor, and where to write.

        Raises:
            ConfigError: if there is no directory, or the tensor cannot be fetched along with a step.
            TowerError: if there is no tensor of that name.
        """
        file_in_run_dir(self)
        super().setup_graph(trainer)

    def look(self, values: dict[str, Any]) -> None:
        """Write the images."""
        ((name, value),) = values.items()
        images = as_images(self, name, value if self._map_func is None else self._map_func(value))
        _put_images(self, self._prefix or name, images[: self._max_images])


class DumpParamAsImage(Callback):
    """Writes a parameter as images to ``<prefix>-<step>.png`` in the directory of the run, and to the monitors.

    By default the least number is black and the greatest white, and the kernel of a convolution of 1, 3 or 4 channels
    is one image for each of its filters. Files are called as those of `DumpTensorAsImage`.

    - **When it runs**: at the end of each epoch, or when `PeriodicTrigger` says.
    - **What it costs**: the variable is read in a run of its own then; steps cost nothing.
    - **Where it works**: on every strategy; it looks at the variables of the main training tower in the chief.

    Args:
        variable: the name of a variable, in the main training tower or else in the graph; or a variable.
        prefix: what the files and the images are called; by default the name of the variable, without slashes in files.
        map_func: takes the value, and returns the image or images, as for `DumpTensorAsImage`.
        max_images: how many images of one value are written: the first ones.

    Raises:
        ConfigError: if an option has a value that it cannot have; when the graph is set up, if the training has no
            `run_dir`; when it is triggered, if there is something else than images.
        TowerError: when the graph is set up, if there is no such variable; the message has the nearest names.

    Example:
        ```python
        tpk.PeriodicTrigger(DumpParamAsImage("conv0/W"), every_k_epochs=5)
        ```
    """

    def __init__(
        self, variable: Any, prefix: str | None = None, map_func: MapFunc | None = None, *, max_images: int = 10
    ) -> None:
        _check_options(self, map_func, max_images)
        self._wanted = variable
        self._variable: Any = None
        self._prefix = prefix
        self._map_func = map_func
        self._max_images = max_images

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the variable, and where to write.

        Raises:
            ConfigError: if there is no directory, or something is no variable.
            TowerError: if there is no variable of that name.
        """
        file_in_run_dir(self)
        self._variable = _find_variable(trainer, self._wanted)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Write the images.

        Raises:
            ConfigError: if the value, or what `map_func` has made of it, is no image.
        """
        name, value = name_in_tower(variable_name(self._variable)), trainer.sess.run(self._variable)
        images = as_images(self, name, _stretched(value) if self._map_func is None else self._map_func(value))
        _put_images(self, self._prefix or name, images[: self._max_images])


def as_images(callback: Callback, name: str, value: Any) -> list[np.ndarray]:
    """Return what `value` shows: ``uint8`` images of shape ``(height, width, channels)``.

    Args:
        callback: who wants to know.
        name: what the value is called.
        value: an array of one image or several, or a list of images.

    Raises:
        ConfigError: if it is something else.
    """
    if isinstance(value, list | tuple):
        return [image for each in value for image in as_images(callback, name, each)]
    array = np.asarray(value)
    shape, dtype = array.shape, array.dtype
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3:
        array = array[None]
    is_float = dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)
    is_image = array.ndim == 4 and array.shape[-1] in (1, 3, 4) and 0 not in array.shape[1:]
    if not is_image or not (is_float or dtype.kind in "biu"):
        raise ConfigError(
            f"{type(callback).__name__}: {name!r} is no image: {dtype.name} of shape {shape}. Expected (height, "
            "width), (height, width, channels) or (number, height, width, channels) with 1, 3 or 4 channels. Give a "
            "map_func that makes that of it."
        )
    if dtype != np.uint8:
        scale = 255 if is_float or dtype.kind == "b" else 1
        array = np.rint(np.clip(np.nan_to_num(array.astype(np.float64) * scale, nan=0.0), 0, 255)).astype(np.uint8)
    return list(array)


def _stretched(value: np.ndarray) -> np.ndarray:
    """Return numbers from 0 to 1; of the kernel of a convolution its filters, one after the other."""
    if value.ndim == 4 and value.shape[2] in (1, 3, 4):
        value = value.transpose(3, 0, 1, 2)
    if value.dtype.kind not in "fiu" or value.size == 0:
        return value
    numbers = value.astype(np.float64)
    least, greatest = np.nanmin(numbers), np.nanmax(numbers)
    return (numbers - least) / ((greatest - least) or 1.0)


def _put_images(callback: Callback, name: str, images: list[np.ndarray]) -> None:
    stem = f"{name.replace('/', '.').replace(':', '.')}-{callback.global_step}"
    for number, image in enumerate(images):
        file_name = f"{stem}.png" if len(images) == 1 else f"{stem}-{number}.png"
        write_file(file_in_run_dir(callback, file_name), encode_png(image))
    if len({image.shape for image in images}) == 1:
        callback.trainer.monitors.put_image(name, np.stack(images))
    else:
        for number, image in enumerate(images):
            callback.trainer.monitors.put_image(f"{name}/{number}", image)


def _find_variable(trainer: Any, wanted: Any) -> Any:
    """Return a variable: of the main training tower, or else of the graph."""
    if isinstance(wanted, tf.Variable):
        return wanted
    if not isinstance(wanted, str):
        raise ConfigError(f"DumpParamAsImage: expected a variable or the name of one, got {wanted!r}.")
    main_tower = trainer.towers.main
    missing: TowerError | None = None
    if main_tower is not None:
        try:
            return main_tower.get_variable(wanted)
        except TowerError as error:
            missing = error
    variables = {variable_name(each): each for each in tf.compat.v1.global_variables()}
    plain = wanted.removesuffix(":0")
    if plain in variables:
        return variables[plain]
    near = difflib.get_close_matches(plain, list(variables), n=3, cutoff=0.5)
    raise missing or TowerError(f"the graph has no variable {wanted!r}. Nearest: {', '.join(near) or 'none'}.")


def _check_options(callback: Callback, map_func: Any, max_images: Any) -> None:
    if map_func is not None and not callable(map_func):
        raise ConfigError(f"{type(callback).__name__}(map_func={map_func!r}): expected a function of the value.")
    if isinstance(max_images, bool) or not isinstance(max_images, int) or max_images < 1:
        raise ConfigError(f"{type(callback).__name__}(max_images={max_images!r}): expected a positive whole number.")
