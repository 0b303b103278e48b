"""Callbacks that run ops, or do something with tensors."""

from __future__ import annotations

from collections.abc import Callable as Function, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

import tpk
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
    "TFLocalCLIDebugHook",
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
    """Writes the values of tensors in each step to ``DumpTensor-<step>.npz`` or so; see `tpk.DumpTensors`.

    Args:
        names: names of tensors, or tensors.
    """

    def __init__(self, names: Sequence[Any]) -> None:
        super().__init__(names)


DumpTensor = DumpTensors


def _scaled(map_func: Function[[Any], Any] | None, scale: float) -> Function[[Any], Any]:
    def image(value: Any) -> Any:
        mapped = value if map_func is None else map_func(value)
        return np.clip(np.asarray(mapped) * scale, 0, 255).astype(np.uint8)

    return image


class DumpTensorAsImage(Callback, tpk.DumpTensorAsImage):
    """Writes a tensor as an image at each trigger; see `tpk.DumpTensorAsImage`.

    Args:
        tensor_name: its name.
        prefix: of the file names.
        map_func: makes an image, or a list of images, of the value.
        scale: what pixels are multiplied by.
    """

    def __init__(
        self,
        tensor_name: str,
        prefix: str | None = None,
        map_func: Function[[Any], Any] | None = None,
        scale: float = 255,
    ) -> None:
        super().__init__(tensor_name, prefix, _scaled(map_func, scale))


class DumpParamAsImage(Callback, tpk.DumpParamAsImage):
    """Writes a variable as an image at each trigger; see `tpk.DumpParamAsImage`.

    Args:
        tensor_name: the name of the variable.
        prefix: of the file names.
        map_func: makes an image, or a list of images, of the value.
        scale: what pixels are multiplied by.
    """

    def __init__(
        self,
        tensor_name: str,
        prefix: str | None = None,
        map_func: Function[[Any], Any] | None = None,
        scale: float = 255,
    ) -> None:
        super().__init__(tensor_name, prefix, _scaled(map_func, scale))


class CheckNumerics(RunOp):
    """Looks for values that are not finite in all tensors of the graph; ends the training with an error if one is.

    Args:
        run_as_trigger: at each trigger.
        run_step: along with each step.
    """

    def __init__(self, run_as_trigger: bool = True, run_step: bool = False) -> None:
        super().__init__(
            tf.compat.v1.add_check_numerics_ops, run_before=False, run_as_trigger=run_as_trigger, run_step=run_step
        )


class TFLocalCLIDebugHook(Callback):
    """TensorFlow 2 has no debugger of sessions any more: this raises an error that says what there is instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_debugger()


def _no_debugger() -> NoReturn:
    raise NotImplementedError(
        "TFLocalCLIDebugHook: the debugger `tfdbg` left TensorFlow with version 2. Look at tensors by TensorPrinter or "
        "DumpTensors, find what is not finite by CheckNumerics, and get a shell by InjectShell"
    )
