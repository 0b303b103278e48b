"""Callbacks that run ops or process tensors."""

from __future__ import annotations

from collections.abc import Callable as Function, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.durable_files import replace_file
from tpk.graph import encode_png
from tpk_tensorpack.callbacks.base import Callback, file_in_log_dir

__all__ = [
    "CheckNumerics",
    "DumpParamAsImage",
    "DumpTensor",
    "DumpTensorAsImage",
    "DumpTensors",
    "ProcessTensors",
    "RunOp",
    "RunUpdateOps",
]


class RunOp(Callback, tpk.RunOp):
    """Run an op before training, at each trigger, or in each step; see `tpk.RunOp`."""


class RunUpdateOps(Callback, tpk.RunUpdateOps):
    """Run the ops of a collection in each step; see `tpk.RunUpdateOps`.

    Args:
        collection: the name of the collection; by default ``UPDATE_OPS``.
    """

    def __init__(self, collection: str | None = None) -> None:
        super().__init__(collection or tf.compat.v1.GraphKeys.UPDATE_OPS)


class ProcessTensors(Callback, tpk.ProcessTensors):
    """Call a function with the values of tensors in each step; see `tpk.ProcessTensors`.

    Args:
        names: names of tensors, or tensors.
        fn: takes the values, one per name.
    """

    def __init__(self, names: Sequence[Any], fn: Function[..., Any]) -> None:
        super().__init__(names, fn)


class DumpTensors(Callback, tpk.DumpTensors):
    """Write the values of tensors to ``DumpTensor-<step>.npz`` in each step; see `tpk.DumpTensors`.

    Args:
        names: names of tensors.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._given = [names] if isinstance(names, str) else list(names)

    def look(self, values: dict[str, Any]) -> None:
        """Write the values."""
        super().look(dict(zip(self._given, values.values(), strict=True)))


DumpTensor = DumpTensors


class DumpParamAsImage(Callback):
    """Write a variable or another tensor that needs no feeds as images to the log directory, at each trigger.

    The files are named ``<prefix>-ep<epoch>.png``; with several images, the second is ``<prefix>-ep<epoch>-1.png``.
    Slashes in the prefix become dots. It needs an additional session run, and works with all strategies.

    Args:
        tensor_name: the name of the tensor.
        prefix: the prefix of the file names; by default the name of the tensor.
        map_func: converts the value to one or several images. An image has shape (height, width) or (height, width,
            channels), with BGR channels as in OpenCV; several images are a list or a four-dimensional array.
        scale: the factor to multiply pixels by; the result is clipped to [0, 255].

    Raises:
        ConfigError: the log directory has not been set.
        ValueError: (at a trigger) the value is not an image.
    """

    def __init__(
        self,
        tensor_name: str,
        prefix: str | None = None,
        map_func: Function[[Any], Any] | None = None,
        scale: float = 255,
    ) -> None:
        self.tensor_name = tensor_name if ":" in tensor_name else f"{tensor_name}:0"
        self.prefix = prefix or tensor_name.partition(":")[0]
        self._map_func = map_func
        self._scale = scale
        self._tensor: Any = None

    def _setup_graph(self) -> None:
        file_in_log_dir(self)
        (tensor,) = self.get_tensors_maybe_in_tower([self.tensor_name])
        # The tensor with a variable's name is its handle.
        if tensor.dtype == tf.resource:
            variables = tf.compat.v1.global_variables() + tf.compat.v1.local_variables()
            tensor = next(variable for variable in variables if variable.handle is tensor)
        self._tensor = tensor

    def _trigger(self) -> None:
        value = self.trainer.sess.run(self._tensor)
        images = value if self._map_func is None else self._map_func(value)
        several = isinstance(images, (list, tuple)) or np.ndim(images) == 4
        for number, image in enumerate(images if several else [images]):
            name = f"{self.prefix.replace('/', '.')}-ep{self.epoch_num:03d}{f'-{number}' if number else ''}.png"
            replace_file(file_in_log_dir(self, name), encode_png(self._pixels(np.asarray(image))))

    def _pixels(self, image: Any) -> Any:
        pixels = image[..., None] if image.ndim == 2 else image
        if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
            raise ValueError(
                f"{type(self).__name__}: {self.tensor_name!r} is not an image, but has shape {image.shape}. Pass a "
                "map_func that returns an image: (height, width), or (height, width, channels) with 1 or 3 channels"
            )
        return np.clip(pixels[..., ::-1] * self._scale, 0, 255).astype(np.uint8)


DumpTensorAsImage = DumpParamAsImage


class CheckNumerics(RunOp):
    """Check that the trainable variables are finite, and raise an error otherwise.

    Args:
        run_as_trigger: check at each trigger.
        run_step: check in each step.
    """

    def __init__(self, run_as_trigger: bool = True, run_step: bool = False) -> None:
        super().__init__(_check_numerics, run_before=False, run_as_trigger=run_as_trigger, run_step=run_step)


def _check_numerics() -> Any:
    """Return an op that fails if a trainable variable is not finite; the error names the variable."""
    variables = [each for each in tf.compat.v1.trainable_variables() if each.dtype.is_floating]
    return tf.group(
        *[tf.debugging.check_numerics(each, f"CheckNumerics['{each.op.name}']") for each in variables],
        name="CheckNumerics",
    )


class TFLocalCLIDebugHook(Callback):
    """Raise an error that names alternatives: TensorFlow 2 has no session debugger."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "TFLocalCLIDebugHook: TensorFlow 2 has no debugger `tfdbg`. Inspect tensors with "
            "TensorPrinter or DumpTensors, find non-finite values with CheckNumerics, and open a shell with InjectShell"
        )
