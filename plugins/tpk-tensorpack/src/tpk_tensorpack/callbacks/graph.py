"""Callbacks that run ops, or do something with tensors."""

from __future__ import annotations

from collections.abc import Callable as Function, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.callbacks.inspection.tensors import file_in_run_dir, write_file
from tpk.graph.reports.png import encode_png
from tpk_tensorpack.callbacks.base import Callback

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
    """Runs an op before the training, at each trigger, or along with each step; see `tpk.RunOp`."""


class RunUpdateOps(Callback, tpk.RunUpdateOps):
    """Runs the ops of a collection along with each step; see `tpk.RunUpdateOps`.

    Args:
        collection: its name; by default that of the update ops.
    """

    def __init__(self, collection: str | None = None) -> None:
        super().__init__(collection or tf.compat.v1.GraphKeys.UPDATE_OPS)


class ProcessTensors(Callback, tpk.ProcessTensors):
    """Calls a function with the values of tensors in each step; see `tpk.ProcessTensors`.

    Args:
        names: names of tensors, or tensors.
        fn: takes as many values.
    """

    def __init__(self, names: Sequence[Any], fn: Function[..., Any]) -> None:
        super().__init__(names, fn)


class DumpTensors(Callback, tpk.DumpTensors):
    """Writes the values of tensors in each step to ``DumpTensor-<step>.npz``; see `tpk.DumpTensors`.

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
    """Writes a variable, or another tensor that needs no feeds, as images to the log directory, at each trigger.

    The files are ``<prefix>-ep<epoch>.png``; of several images, the second one is ``<prefix>-ep<epoch>-1.png``. Slashes
    in a name are dots in that of the file. It costs a run of the session, and works on all strategies.

    Args:
        tensor_name: its name.
        prefix: of the file names; by default that name.
        map_func: makes an image, or images, of the value. An image has the shape (height, width), or (height, width,
            channels), with blue, green and red, as OpenCV has them; several are a list, or an array of four dimensions.
        scale: what pixels are multiplied by; then, they are from 0 to 255.

    Raises:
        ConfigError: the script logs to no directory.
        ValueError: at a trigger: what is there is no image.
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
        file_in_run_dir(self)
        (tensor,) = self.get_tensors_maybe_in_tower([self.tensor_name])
        # The tensor of a variable's name is its handle.
        if tensor.dtype == tf.resource:
            variables = tf.compat.v1.global_variables() + tf.compat.v1.local_variables()
            tensor = next(variable for variable in variables if variable.handle is tensor)
        self._tensor = tensor

    def _trigger(self) -> None:
        value = self.trainer.sess.run(self._tensor)
        images = value if self._map_func is None else self._map_func(value)
        several = isinstance(images, (list, tuple)) or np.ndim(images) == 4
        pixels = [self._pixels(np.asarray(image)) for image in (images if several else [images])]
        for number, image in enumerate(pixels):
            name = f"{self.prefix.replace('/', '.')}-ep{self.epoch_num:03d}{f'-{number}' if number else ''}.png"
            write_file(file_in_run_dir(self, name), encode_png(image))
        if len({image.shape for image in pixels}) == 1:
            self.trainer.monitors.put_image(self.prefix, np.stack(pixels))

    def _pixels(self, image: Any) -> Any:
        pixels = image[..., None] if image.ndim == 2 else image
        if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
            raise ValueError(
                f"{type(self).__name__}: {self.tensor_name!r} is no image, but of the shape {image.shape}. Give a "
                "map_func that makes one of it: (height, width), or (height, width, channels) with 1 or 3 channels"
            )
        return np.clip(pixels[..., ::-1] * self._scale, 0, 255).astype(np.uint8)


DumpTensorAsImage = DumpParamAsImage


class CheckNumerics(RunOp):
    """Looks for values that are not finite in the trainable variables; ends the training with an error if one is.

    Args:
        run_as_trigger: at each trigger.
        run_step: along with each step.
    """

    def __init__(self, run_as_trigger: bool = True, run_step: bool = False) -> None:
        super().__init__(_check_numerics, run_before=False, run_as_trigger=run_as_trigger, run_step=run_step)


def _check_numerics() -> Any:
    """Return an op that fails if a trainable variable is not finite; it names the variable."""
    variables = [each for each in tf.compat.v1.trainable_variables() if each.dtype.is_floating]
    return tf.group(
        *[tf.debugging.check_numerics(each, f"CheckNumerics['{each.op.name}']") for each in variables],
        name="CheckNumerics",
    )


class TFLocalCLIDebugHook(Callback):
    """TensorFlow 2 has no debugger of sessions any more: this raises an error that says what there is instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "TFLocalCLIDebugHook: the debugger `tfdbg` left TensorFlow with version 2. Look at tensors by "
            "TensorPrinter or DumpTensors, find what is not finite by CheckNumerics, and get a shell by InjectShell"
        )
