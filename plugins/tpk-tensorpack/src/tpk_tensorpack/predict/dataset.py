"""Predictors of whole data flows."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import tpk.predict
from tpk.dataflow.base import reset_state
from tpk_tensorpack.predict.base import OfflinePredictor
from tpk_tensorpack.predict.config import PredictConfig
from tpk_tensorpack.utils.gpu import get_num_gpu
from tpk_tensorpack.utils.utils import get_tqdm

__all__ = ["DatasetPredictorBase", "MultiProcessDatasetPredictor", "SimpleDatasetPredictor"]


class DatasetPredictorBase(abc.ABC):
    """The base of what runs a data flow through a model.

    Args:
        config: the model, its values, inputs and outputs.
        dataset: the data flow.

    Raises:
        ValueError: `config` is no `PredictConfig`.
    """

    def __init__(self, config: PredictConfig, dataset: Iterable[Any]) -> None:
        if not isinstance(config, PredictConfig):
            raise ValueError(f"{type(self).__name__} takes a PredictConfig, got {config!r}")
        self.config = config
        self.dataset = dataset

    @abc.abstractmethod
    def get_result(self) -> Iterator[Any]:
        """Return what the model makes of each datapoint."""

    def get_all_result(self) -> list[Any]:
        """Return what the model makes of all datapoints."""
        return list(self.get_result())


class SimpleDatasetPredictor(DatasetPredictorBase):
    """Runs a data flow through a model, one datapoint after the other.

    Args:
        config: the model, its values, inputs and outputs.
        dataset: the data flow.
    """

    def __init__(self, config: PredictConfig, dataset: Iterable[Any]) -> None:
        super().__init__(config, dataset)
        self.predictor = OfflinePredictor(config)

    def get_result(self) -> Iterator[Any]:
        """Return what the model makes of each datapoint, in order; a bar shows how far it is."""
        reset_state(self.dataset)
        with get_tqdm(total=_length(self.dataset)) as bar:
            for datapoint in self.dataset:
                yield self.predictor(*datapoint)
                bar.update()


class MultiProcessDatasetPredictor(DatasetPredictorBase):
    """Runs a data flow through a model, in several processes, which are started afresh.

    Args:
        config: the model, its values, inputs and outputs. What it has of Python goes to the processes by cloudpickle.
        dataset: the data flow, which is iterated here.
        nr_proc: how many processes.
        use_gpu: whether they compute on GPUs, each on the next one.
        ordered: whether results come in the order of the data.

    Raises:
        ValueError: predictors are to return their inputs, which they cannot here.
        ConfigError: `nr_proc` is not positive.
    """

    def __init__(
        self,
        config: PredictConfig,
        dataset: Iterable[Any],
        nr_proc: int,
        use_gpu: bool = True,
        ordered: bool = True,
    ) -> None:
        super().__init__(config, dataset)
        if config.return_input:
            raise ValueError("MultiProcessDatasetPredictor: with return_input=True use a SimpleDatasetPredictor")
        gpus = get_num_gpu() if use_gpu else 0
        devices = [f"/gpu:{index}" for index in range(min(gpus, nr_proc))] or ["/cpu:0"]
        self._predictor = tpk.predict.MultiProcessDatasetPredictor(config, dataset, nr_proc, ordered, devices)

    def get_result(self) -> Iterator[Any]:
        """Return what the model makes of each datapoint; a bar shows how far it is."""
        with get_tqdm(total=_length(self.dataset)) as bar:
            for result in self._predictor.get_result():
                yield result
                bar.update()

    def close(self) -> None:
        """End the processes."""
        self._predictor.close()


def _length(dataset: Any) -> int | None:
    with contextlib.suppress(NotImplementedError, TypeError):
        return len(dataset)
    return None
