"""Predictors for whole data flows."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from typing import Any

import tpk.predict
from tpk.dataflow.base import flow_length, reset_state
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.predict.base import OfflinePredictor
from tpk_tensorpack.predict.config import PredictConfig
from tpk_tensorpack.utils.gpu import get_num_gpu
from tpk_tensorpack.utils.utils import get_tqdm

__all__ = ["DatasetPredictorBase", "MultiProcessDatasetPredictor", "SimpleDatasetPredictor"]


class DatasetPredictorBase(abc.ABC):
    """Base class of predictors that run a model on a data flow.

    Args:
        config: the model, its variables' values, inputs and outputs.
        dataset: the data flow.

    Raises:
        ValueError: `config` is not a `PredictConfig`.
    """

    def __init__(self, config: PredictConfig, dataset: Iterable[Any]) -> None:
        if not isinstance(config, PredictConfig):
            raise CheckError(f"{type(self).__name__} takes a PredictConfig, got {config!r}")
        self.config = config
        self.dataset = dataset

    @abc.abstractmethod
    def get_result(self) -> Iterator[Any]:
        """Return an iterator over the outputs for each datapoint."""

    def get_all_result(self) -> list[Any]:
        """Return the list of outputs for all datapoints."""
        return list(self.get_result())


class SimpleDatasetPredictor(DatasetPredictorBase):
    """Run a model on a data flow, one datapoint at a time.

    Args:
        config: the model, its variables' values, inputs and outputs.
        dataset: the data flow.
    """

    def __init__(self, config: PredictConfig, dataset: Iterable[Any]) -> None:
        super().__init__(config, dataset)
        self.predictor = OfflinePredictor(config)

    def get_result(self) -> Iterator[Any]:
        """Yield the outputs for each datapoint, in order; show a progress bar."""
        reset_state(self.dataset)
        for datapoint in get_tqdm(iter(self.dataset), total=flow_length(self.dataset)):
            yield self.predictor(*datapoint)


class MultiProcessDatasetPredictor(DatasetPredictorBase):
    """Run a model on a data flow in several new processes.

    Args:
        config: the model, its variables' values, inputs and outputs. Its Python objects are sent with cloudpickle.
        dataset: the data flow, which is iterated in this process.
        nr_proc: the number of processes.
        use_gpu: whether to compute on GPUs, a different one in each process.
        ordered: whether to preserve the order of the data.

    Raises:
        ValueError: `return_input` is set, which is not supported here.
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
        """Yield the outputs for each datapoint; show a progress bar."""
        yield from get_tqdm(self._predictor.get_result(), total=flow_length(self.dataset))

    def close(self) -> None:
        """Stop the processes."""
        self._predictor.close()
