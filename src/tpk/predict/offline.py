"""Predictors with a separate graph and session, on one device or on several."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from tpk.errors import add_note
from tpk.graph.devices import resolve_devices
from tpk.plugin.creation import also_spelled
from tpk.predict.inputs import arguments_of
from tpk.predict.online import ClosesOnExit, OnlinePredictor, predictor_of
from tpk.predict.predict_config import PredictConfig


class OfflinePredictor(OnlinePredictor, ClosesOnExit):
    """A predictor with a separate graph and session, for a model that was trained before.

    It is a context manager that closes itself on exit.

    Args:
        config: the model, its weights, inputs and outputs.

    Attributes:
        graph: the `tf.Graph`.
        sess: the raw session.

    Raises:
        CheckpointError: if the weights do not fit the model; the message names the variables.
        TowerError: if the model has no tensor with a given name.
        InputError: if the outputs depend on an input that is not among the input names.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init="runs/cats", output_names=["probabilities"])
        with tpk.OfflinePredictor(config) as predict:
            (probabilities,) = predict(images)
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        built = config.build_graph()
        (tower,) = built.towers
        super().__init__(tower.inputs, tower.fetches, lambda: self.sess)
        self.graph = built.graph
        self.sess = built.create_session()
        self.graph.finalize()

    def close(self) -> None:
        """Close the session; later predictions fail. Calling it again does nothing."""
        self.sess.close()


@also_spelled({"towers": "devices", "gpus": "devices"})
class MultiTowerOfflinePredictor(ClosesOnExit):
    """Predictors of one model, one on each device, which share variables and a session.

    Each call uses the next device in turn. It is a context manager that closes itself on exit.

    Args:
        config: the model, its weights, inputs and outputs; its `device` is ignored.
        devices: a count, indices, or device strings; see `tpk.graph.devices.resolve_devices`.

    Attributes:
        devices: the device of each tower.
        graph: the `tf.Graph`.
        sess: the raw session.

    Raises:
        ConfigError: if a device does not exist.
        CheckpointError, TowerError, InputError: see `OfflinePredictor`.

    Example:
        ```python
        with tpk.MultiTowerOfflinePredictor(config, devices=2) as predict:
            results = predict.predict_all(batches)              # each on a free device
            players = [Player(predict.get_predictor(index)) for index in range(8)]
        ```
    """

    def __init__(self, config: PredictConfig, devices: int | str | Sequence[int | str] | None = None) -> None:
        self.devices = resolve_devices(devices)
        built = config.build_graph(self.devices)
        self._predictors = [
            predictor_of(tower.handle, list(tower.inputs), config.output_names, lambda: self.sess)
            for tower in built.towers
        ]
        self._turn = itertools.count()
        self.graph = built.graph
        self.sess = built.create_session()
        self.graph.finalize()

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs for these inputs, computed on the next device; see `OnlinePredictor`."""
        return self.get_predictor(next(self._turn))(*inputs)

    def get_predictor(self, number: int) -> OnlinePredictor:
        """Return the predictor of a tower.

        Args:
            number: the number of the tower, modulo the number of towers.
        """
        return self._predictors[number % len(self._predictors)]

    def get_predictors(self) -> list[OnlinePredictor]:
        """Return the predictors of all towers."""
        return list(self._predictors)

    def predict_all(self, datapoints: Iterable[Any]) -> list[Any]:
        """Return the outputs for each datapoint, in order; each is computed on a free device.

        Args:
            datapoints: lists or tuples of arrays by position, or dicts by input name.

        Raises:
            Exception: the first error of the data or of a prediction, with a note that says which datapoint it was.
        """
        numbered = enumerate(datapoints)
        results: dict[int, Any] = {}
        taking = Lock()
        failed: list[int] = []

        def work(predictor: OnlinePredictor) -> None:
            while not failed:
                with taking:
                    number, datapoint = next(numbered, (-1, None))
                if number < 0:
                    return
                try:
                    results[number] = predictor(*arguments_of(datapoint))
                except Exception as error:
                    failed.append(number)
                    add_note(error, f"This was at datapoint {number}.")
                    raise

        with ThreadPoolExecutor(len(self._predictors)) as threads:
            done = [threads.submit(work, predictor) for predictor in self._predictors]
        for each in done:
            each.result()
        return [results[number] for number in range(len(results))]

    def close(self) -> None:
        """Close the session; later predictions fail. Calling it again does nothing."""
        self.sess.close()
