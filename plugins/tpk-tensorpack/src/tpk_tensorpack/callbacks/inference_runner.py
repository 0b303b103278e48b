"""Evaluation during training, in separate inference towers and on a separate data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.graph import freeze_collection
from tpk.graph.devices import is_gpu
from tpk_tensorpack.callbacks.base import Callback
from tpk_tensorpack.callbacks.inference import Inferencer

__all__ = ["DataParallelInferenceRunner", "InferenceRunner", "InferenceRunnerBase"]

_DEFAULT = "InferenceTower"

InferenceRunnerBase = tpk.InferenceRunner


class _AsInTensorpack(tpk.InferenceRunner):
    """Lets inferencers add to the graph, and several report the same statistic; the last value counts."""

    def _build(self, trainer: Any) -> None:
        # Leave out summaries such as the sizes of queues that the input uses.
        with freeze_collection([tf.compat.v1.GraphKeys.SUMMARIES]):
            super()._build(trainer)
        for inferencer in self._inferencers:
            if isinstance(inferencer, Inferencer):
                inferencer._setup_graph()

    def _claim(self, names: Sequence[str]) -> None:
        pass


class InferenceRunner(Callback, _AsInTensorpack):
    """Evaluate the model on a data set at each trigger, and report statistics; see `tpk.InferenceRunner`.

    Args:
        input: a data flow, or an `InputSource`.
        infs: one or more inferencers.
        tower_name: the name scope of the tower; by default, further runners append a number.
        tower_func: builds the tower; by default the trainer's.
        device: a GPU number, or -1 for the CPU; or a device string. Without GPUs, TensorFlow places the tower.
    """

    def __init__(
        self, input: Any, infs: Any, tower_name: str = _DEFAULT, tower_func: Any = None, device: int | str = 0
    ) -> None:
        super().__init__(input, infs, _name(tower_name), tower_func, _device(device))


class DataParallelInferenceRunner(Callback, _AsInTensorpack, tpk.DataParallelInferenceRunner):
    """Evaluate on several GPUs in parallel; see `tpk.DataParallelInferenceRunner`.

    Args:
        input: a data flow, or an `InputSource`.
        infs: one or more inferencers.
        gpus: a list of GPU numbers, or the number of GPUs.
        tower_name: the prefix of the towers' name scopes.
        tower_func: builds a tower; by default the trainer's.
    """

    def __init__(
        self,
        input: Any,
        infs: Any,
        gpus: int | Sequence[int],
        tower_name: str = _DEFAULT,
        tower_func: Any = None,
    ) -> None:
        super().__init__(input, infs, _name(tower_name), tower_func, gpus)


def _name(tower_name: str) -> str | None:
    return None if tower_name == _DEFAULT else tower_name


def _device(device: int | str) -> str | None:
    if not isinstance(device, str):
        device = "/cpu:0" if device < 0 else f"/gpu:{device}"
    # A script may set CUDA_VISIBLE_DEVICES, which `get_num_gpu` reads, on a host without GPUs.
    return device if tf.config.list_physical_devices("GPU") or not is_gpu(device) else None
