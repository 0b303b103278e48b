"""Predictors of whole dataflows, in this process or in worker processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from tpk.dataflow.base import check_iterable, reset_state
from tpk.dataflow.parallel.maps import ApplyFunction, MultiProcessMapData
from tpk.dataflow.parallel.workers import WorkerProcess, check_worker_init, start_workers
from tpk.errors import ConfigError, add_note
from tpk.graph.devices import resolve_devices
from tpk.predict.inputs import arguments_of
from tpk.predict.offline import OfflinePredictor
from tpk.predict.online import ClosesOnExit
from tpk.predict.predict_config import PredictConfig


class DatasetPredictor(ClosesOnExit):
    """The base of predictors that run a dataflow through a model.

    It is a context manager that closes itself on exit.

    Args:
        config: the model, its weights, inputs and outputs.
        dataflow: any iterable of datapoints: lists or tuples with an array for each input, or dicts by input name.

    Raises:
        ConfigError: if `config` or `dataflow` is something else.
    """

    def __init__(self, config: PredictConfig, dataflow: Iterable[Any]) -> None:
        if not isinstance(config, PredictConfig):
            raise ConfigError(f"{type(self).__name__} takes a PredictConfig, not {config!r}.")
        check_iterable(dataflow, type(self).__name__)
        self.dataflow = dataflow
        self._is_ready = False

    @abstractmethod
    def get_result(self) -> Iterator[Any]:
        """Yield the outputs for each datapoint: a list of arrays, or a dict; see `OnlinePredictor`."""

    def get_all_result(self) -> list[Any]:
        """Return the outputs for all datapoints."""
        return list(self.get_result())

    def make_ready(self) -> None:
        """Reset the dataflow before its first iteration; subclasses call this in `get_result`."""
        if not self._is_ready:
            reset_state(self.dataflow)
            self._is_ready = True


class SimpleDatasetPredictor(DatasetPredictor):
    """Runs a dataflow through a model, one datapoint after the other, in this process.

    Args:
        config: the model, its weights, inputs and outputs.
        dataflow: any iterable of datapoints: lists or tuples with an array for each input, or dicts by input name.

    Raises:
        ConfigError: if `config` or `dataflow` is something else.
        CheckpointError, TowerError, InputError: see `OfflinePredictor`.

    Attributes:
        predictor: the `OfflinePredictor`.

    Example:
        ```python
        with tpk.SimpleDatasetPredictor(config, BatchData(images, 64, remainder=True)) as predictor:
            for (probabilities,) in predictor.get_result():
                ...
        ```
    """

    def __init__(self, config: PredictConfig, dataflow: Iterable[Any]) -> None:
        super().__init__(config, dataflow)
        self.predictor = OfflinePredictor(config)

    def get_result(self) -> Iterator[Any]:
        """Yield the outputs for each datapoint, in order.

        Raises:
            InputError: if a datapoint does not fit; a note says which.
        """
        self.make_ready()
        for number, datapoint in enumerate(self.dataflow):
            try:
                results = self.predictor(*arguments_of(datapoint))
            except Exception as error:
                add_note(error, f"This was at datapoint {number} of the dataflow.")
                raise
            yield results

    def close(self) -> None:
        """Close the session."""
        self.predictor.close()


class MultiProcessDatasetPredictor(DatasetPredictor):
    """Runs a dataflow through a model in several processes, each with its own session.

    This process iterates the dataflow and exchanges datapoints and results with the others through shared memory. The
    processes are started, never forked, and get the model by cloudpickle; see `tpk.dataflow.MultiProcessMapData`.

    Args:
        config: the model, its weights, inputs and outputs.
        dataflow: any iterable of datapoints: lists or tuples with an array for each input, or dicts by input name.
        nr_proc: the number of processes.
        ordered: whether results come in the order of the dataflow, or as soon as they are available.
        devices: the devices that the processes compute on, in turn: a count, indices, or device strings; by default
            the device of `config`.
        worker_init: the name ``"module:function"`` of a function that each process calls first, before it unpickles the
            model; it may call ``tf.compat.v1.disable_v2_behavior()``, for example. See
            `tpk.dataflow.MultiProcessRunner`.

    Raises:
        ConfigError: if a number is not positive, a device does not exist, or `worker_init` names no function.

    Example:
        ```python
        with tpk.MultiProcessDatasetPredictor(config, batches, nr_proc=4) as predictor:
            results = predictor.get_all_result()
        ```
    """

    def __init__(
        self,
        config: PredictConfig,
        dataflow: Iterable[Any],
        nr_proc: int,
        ordered: bool = True,
        devices: int | str | Sequence[int | str] | None = None,
        *,
        worker_init: str | None = None,
    ) -> None:
        super().__init__(config, dataflow)
        check_worker_init(self, worker_init)
        places = [config.device] if devices is None else resolve_devices(devices)
        self._map = _PredictedFlow(dataflow, nr_proc, config, places, ordered, worker_init)

    def get_result(self) -> Iterator[Any]:
        """Yield the outputs for each datapoint.

        Raises:
            ConfigError: if the model cannot be pickled.
            InputError: if a datapoint does not fit, or a process died; the message names the process.
            CheckpointError: if the weights do not fit the model.
        """
        self.make_ready()
        return iter(self._map)

    def close(self) -> None:
        """End the processes."""
        self._map.close()


class _PredictInWorker:
    """Predicts in a worker process, which creates its session for the first datapoint."""

    def __init__(self, config: PredictConfig) -> None:
        self._config = config
        self._predictor: OfflinePredictor | None = None

    def __call__(self, datapoint: Any) -> Any:
        if self._predictor is None:
            self._predictor = OfflinePredictor(self._config)
        return self._predictor(*arguments_of(datapoint))


class _PredictedFlow(MultiProcessMapData):
    """The results for the datapoints of a flow, from workers on several devices."""

    def __init__(
        self,
        flow: Iterable[Any],
        num_proc: int,
        config: PredictConfig,
        devices: Sequence[str | None],
        ordered: bool,
        worker_init: str | None,
    ) -> None:
        super().__init__(flow, num_proc, _PredictInWorker(config), ordered=ordered, worker_init=worker_init)
        self._config = config
        self._devices = devices

    def _start_workers(self) -> list[WorkerProcess]:
        devices = [self._devices[index % len(self._devices)] for index in range(self.num_proc)]
        works = [ApplyFunction(_PredictInWorker(attrs.evolve(self._config, device=device))) for device in devices]
        owner = MultiProcessDatasetPredictor.__name__
        return start_workers(owner, works, self.buffer_size, self.warn_after, self.worker_init)
