"""Evaluation of a trained model, without a training run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.callbacks.inference.inferencers import Inferencer
from tpk.callbacks.inference.runner import InferenceRunner
from tpk.graph.devices import Devices, resolve_devices
from tpk.input_source.base import InputSource
from tpk.predict.predict_config import check_model
from tpk.predict.weights import create_restored_session
from tpk.session.creator import NewSessionCreator
from tpk.strategies.base import NullStrategy
from tpk.tower.context import PredictTowerContext
from tpk.train.tower_trainer import TowerTrainer

if TYPE_CHECKING:
    from tpk.train.model_desc import ModelDesc


def evaluate(
    model: ModelDesc,
    dataflow: InputSource | Iterable[Any],
    inferencers: Inferencer | Sequence[Inferencer],
    *,
    session_init: Any,
    devices: Devices = None,
    precision: str = "float32",
) -> dict[str, float]:
    """Run a trained model over a data set once, and return the statistics of the inferencers.

    The model is built as an inference tower in a separate graph, in this process. No files are written.

    Args:
        model: a `tpk.ModelDesc`, or another object with ``get_input_signature()`` and ``build_graph(*tensors)``.
        dataflow: the data: any iterable of datapoints that ends, or an `InputSource`.
        inferencers: one or more, as for `InferenceRunner`.
        session_init: the weights, as for `PredictConfig`: a run directory, the path of a checkpoint, a mapping of names
            to arrays, or a `SessionInit`, such as `AveragedWeights`.
        devices: the device of the model, or several, which evaluate different batches at the same time: a count,
            indices, or device strings. By default TensorFlow chooses one.
        precision: the precision of the model, as in the training; see `tpk.graph.tower_options`.

    Returns:
        The statistics by name.

    Raises:
        ConfigError: if an argument is invalid, no inferencer is given, two of them report the same name, or the data
            is empty or endless.
        CheckpointError: if the weights do not fit the model; the message names the variables.
        TowerError: if the model has no tensor that an inferencer needs.
        InputError: if the data delivers nothing, or does not fit the model.

    Example:
        ```python
        statistics = tpk.evaluate(Model(), batches, tpk.ScalarStats("cost"), session_init="runs/cats")
        print(statistics["validation_cost"])
        ```
    """
    check_model("evaluate", model)
    strategy = _Evaluation(() if devices is None else resolve_devices(devices))
    with tf.Graph().as_default():
        trainer = TowerTrainer(strategy, precision)
    trainer.tower_func = trainer.make_tower_func(model.build_graph, model.get_input_signature())
    runner = InferenceRunner(dataflow, inferencers, tower_func=trainer.tower_func, devices=strategy.devices or None)
    with trainer.phases.resources, trainer.graph.as_default():
        trainer.setup(callbacks=[runner], session_creator=_TrainedSession(session_init))
        try:
            runner.before_train(trainer)
            return runner.evaluate()
        finally:
            runner.after_train(trainer)


class _Evaluation(NullStrategy):
    """The strategy of a graph whose towers are all for inference: the first one creates the variables."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = devices
        self._has_variables = False

    def predict_context(self, ns_name: str) -> PredictTowerContext:
        creates_variables, self._has_variables = not self._has_variables, True
        return PredictTowerContext(ns_name=ns_name, creates_variables=creates_variables)


class _TrainedSession(NewSessionCreator):
    """Creates a session in which every variable of the model has its stored value."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        self._weights = weights

    def create_session(self, graph: Any) -> Any:
        return create_restored_session(graph, NewSessionCreator(config=self.config), self._weights)
