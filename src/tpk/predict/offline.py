"""Predictors with a graph and a session of their own: on one device, or on several."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from tpk.errors import add_note
from tpk.graph.devices import resolve_devices
from tpk.plugin.creation import also_spelled
from tpk.predict.config import PredictConfig
from tpk.predict.inputs import arguments_of
from tpk.predict.online import OnlinePredictor, predictor_of


class OfflinePredictor(OnlinePredictor):
    """A predictor with a graph and a session of its own: for a model that was trained before.

    It is a context manager, at whose end it is closed.

    Args:
        config: the model, its weights, inputs and outputs.

    Attributes:
        graph: the `tf.Graph`.
        sess: the raw session.

    Raises:
        CheckpointError: if the weights do not fit the model; it names the variables.
        TowerError: if the model has no tensor of a name.
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
        """Close the session; a call after that is an error. It may be closed twice."""
        self.sess.close()

    def __enter__(self) -> OfflinePredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@also_spelled({"towers": "devices", "gpus": "devices"})
class MultiTowerOfflinePredictor:
    """Predictors of one model, one on each device, which share their variables and a session.

    Called as it is, it takes the devices in turn. It is a context manager, at whose end it is closed.

    Args:
        config: the model, its weights, inputs and outputs; its `device` has no meaning here.
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
            results = predict.predict_all(batches)              # each on a device that is free
            players = [Player(predict.get_predictor(index)) for index in range(8)]
        ```
    """

    def __init__(self, config: PredictConfig, devices: int | str | Sequence[int | str] | None = None) -> None:
        self.devices = resolve_devices(devices)
        built = config.build_graph(self.devices)
        self._predictors = [
            predictor_of(tower.handle, list(tower.inputs), config.output_names, self._session) for tower in built.towers
        ]
        self._turn = itertools.count()
        self.graph = built.graph
        self.sess = built.create_session()
        self.graph.finalize()

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs for these inputs, computed on the device whose turn it is; see `OnlinePredictor`."""
        return self.get_predictor(next(self._turn))(*inputs)

    def get_predictor(self, number: int) -> OnlinePredictor:
        """Return the predictor of a tower.

        Args:
            number: of the tower; beyond the last one it goes on with the first.
        """
        return self._predictors[number % len(self._predictors)]

    def get_predictors(self) -> list[OnlinePredictor]:
        """Return the predictors of all towers."""
        return list(self._predictors)

    def predict_all(self, datapoints: Iterable[Any]) -> list[Any]:
        """Return what the model makes of each datapoint, in order; each goes to a device that is free.

        Args:
            datapoints: lists or tuples of arrays by position, or dicts by name, as a predictor takes them.

        Raises:
            Exception: the first failure, of the data or of a prediction, which says at which datapoint it was.
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
        """Close the session; a call after that is an error. It may be closed twice."""
        self.sess.close()

    def __enter__(self) -> MultiTowerOfflinePredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _session(self) -> Any:
        return self.sess
