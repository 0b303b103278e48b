"""The configuration of a model for inference: its graph, weights, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.argument_checks import check_one_of, given
from tpk.errors import ConfigError, InputError
from tpk.graph.devices import add_logical_devices, resolve_devices
from tpk.graph.signature import check_signature
from tpk.graph.tower_options import PRECISIONS, in_precision
from tpk.plugin.creation import also_spelled
from tpk.predict.inputs import check_feeds_suffice, inputs_beneath
from tpk.predict.online import check_names, tensors_by_key
from tpk.predict.weights import create_restored_session
from tpk.session.creator import NewSessionCreator, as_session_creator
from tpk.tower.context import PredictTowerContext
from tpk.tower.handle import TowerHandle
from tpk.tower.tower_func import TowerFunc

GetInputs = Callable[[], Sequence[Any]]


@also_spelled({"inputs_desc": "input_signature"})
@attrs.frozen(kw_only=True, eq=False)
class PredictConfig:
    """How to predict with a trained model.

    The model is built as an inference tower in a separate graph. The weights may come from a run with any strategy.

    Attributes:
        model: a `tpk.ModelDesc`, or another object with ``get_input_signature()`` and ``build_graph(*tensors)``.
        tower_func: instead of a model, a function of the input tensors that builds it.
        input_signature: a `tf.TensorSpec` for each argument of `tower_func`.
        session_init: the weights: a run directory, for its newest complete checkpoint; a step in it, or the name of a
            saver of the best checkpoint, such as ``"runs/cats/min-validation_cost"``; the path of a checkpoint or an
            ``.npz`` file; a mapping of names to arrays; a `SessionInit`, such as `AveragedWeights`; or a list of these.
            Values that only the training needs are ignored; a variable of the model without a value is an error.
        input_names: names of inputs in the signature, or of other tensors in the tower, to feed. None for the inputs
            of the signature that the outputs depend on, so that a prediction needs no labels.
        output_names: names of tensors in the tower; or a mapping of keys to such names, for results that are dicts.
        session_creator: a `SessionCreator`, or another object with a ``create_session()``; None for a new session.
        device: a device string; by default TensorFlow places the ops.
        precision: the precision of the tower, as in the training; see `tpk.graph.tower_options`.

    Raises:
        ConfigError: if an option is invalid; the message names it.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init="runs/cats", output_names=["probabilities"])
        with tpk.OfflinePredictor(config) as predict:
            (probabilities,) = predict(images)
        ```
    """

    model: Any = None
    tower_func: Callable[..., Any] | None = None
    input_signature: Sequence[Any] | None = None
    session_init: Any = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | Mapping[str, str]
    session_creator: Any = None
    device: str | None = None
    precision: str = "float32"

    def __attrs_post_init__(self) -> None:
        self._check_model()
        for option, names in {"output_names": self.output_names, **given(input_names=self.input_names)}.items():
            check_names(f"PredictConfig: {option}", names)
        as_session_creator(self.session_creator)
        check_one_of(self, PRECISIONS, precision=self.precision)
        if self.device is not None and not isinstance(self.device, str):
            raise ConfigError(f"PredictConfig(device={self.device!r}): expected a device string, such as '/gpu:0'.")
        if self.device is not None:
            resolve_devices(self.device)

    def _check_model(self) -> None:
        if self.model is not None:
            check_model("PredictConfig", self.model, "Give a function as tower_func, with its input_signature.")
        if self.tower_func is not None and not callable(self.tower_func):
            raise ConfigError(
                f"PredictConfig(tower_func={self.tower_func!r}): expected a function of the input tensors."
            )
        given = [option is not None for option in (self.model, self.tower_func, self.input_signature)]
        if given not in ([True, False, False], [False, True, True]):
            raise ConfigError(
                "PredictConfig needs either a model, or a tower_func together with its input_signature, which has a "
                "tf.TensorSpec for each argument."
            )
        if self.input_signature is not None:
            check_signature(self.input_signature)

    def make_graph(self) -> Any:
        """Return the graph to build the model in; by default a new one."""
        return tf.Graph()

    def make_tower_func(self) -> TowerFunc:
        """Return the model as a new tower function, in its precision."""
        if self.model is not None:
            return TowerFunc(in_precision(self.model.build_graph, self.precision), self.model.get_input_signature())
        assert self.tower_func is not None and self.input_signature is not None
        return TowerFunc(in_precision(self.tower_func, self.precision), self.input_signature)

    def build_graph(self, devices: Sequence[str] | None = None) -> PredictGraph:
        """Build the model in a new graph, with placeholders for its inputs.

        Args:
            devices: a device string for each tower; by default there is one tower, on `device`. All towers share
                their variables. Tensors in the first tower have the names that the model gives them.

        Raises:
            TowerError: if the model breaks a rule of tower functions, or has no tensor with a given name.
            InputError: if the outputs depend on an input that is not in `input_names`.
        """
        graph = PredictGraph(self)
        for device in [self.device] if devices is None else devices:
            graph.add_tower(device)
        return graph


def check_model(owner: str, model: Any, remedy: str = "") -> None:
    """Check that a model can be built for inference.

    Args:
        owner: the class or function that takes the model, for messages.
        model: the model.
        remedy: the last sentence of the message.

    Raises:
        ConfigError: if it is a class, or something else than a model.
    """
    if isinstance(model, type):
        raise ConfigError(f"{owner}(model={model.__name__}): expected an instance. Write {model.__name__}().")
    if not all(hasattr(model, name) for name in ("get_input_signature", "build_graph")):
        raise ConfigError(
            f"{owner}(model={model!r}): expected a tpk.ModelDesc, or another object with get_input_signature() and "
            f"build_graph(*tensors). {remedy}".rstrip()
        )


@attrs.frozen(eq=False)
class PredictTower:
    """An inference tower, with its inputs and outputs.

    Attributes:
        handle: the tower.
        inputs: the tensors to feed, by the names in `PredictConfig.input_names`, in order.
        outputs: the tensors to fetch, by the keys of `PredictConfig.output_names` if that is a mapping, otherwise by
            the names.
        fetches: the outputs in the structure of the results: a dict or a list.
    """

    handle: TowerHandle
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    fetches: dict[str, Any] | list[Any]


class PredictGraph:
    """A graph that contains a model for inference; see `PredictConfig.build_graph`.

    Args:
        config: the configuration of the model.

    Attributes:
        config: the configuration of the model.
        graph: the `tf.Graph`.
        tower_func: the tower function of the model.
        towers: the towers built so far.

    Example:
        ```python
        built = config.build_graph()
        sess = built.create_session()
        probabilities = sess.run(built.outputs["probabilities"], {built.inputs["image"]: images})
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        self.config = config
        self.graph: Any = config.make_graph()
        self.towers: list[PredictTower] = []
        self._devices: list[str] = []
        with self.graph.as_default():
            self.tower_func = config.make_tower_func()

    @property
    def inputs(self) -> dict[str, Any]:
        """The tensors to feed to the first tower, by name."""
        return self.towers[0].inputs

    @property
    def outputs(self) -> dict[str, Any]:
        """The tensors to fetch from the first tower, by name or key."""
        return self.towers[0].outputs

    def add_tower(self, device: str | None, get_inputs: GetInputs | None = None) -> PredictTower:
        """Build another tower, which shares the variables of the first.

        Args:
            device: a device string, or None.
            get_inputs: called in the graph; returns the input tensors of a tower that is not fed.

        Raises:
            TowerError, InputError: see `PredictConfig.build_graph`.
        """
        index = len(self.towers)
        context = PredictTowerContext(
            ns_name=f"tower{index}" if index else "", index=index, creates_variables=index == 0
        )
        with self.graph.as_default():
            given = None if get_inputs is None else get_inputs()
            with tf.device(device), context:
                self.tower_func(*(self.tower_func.placeholders() if given is None else given))
        handle: TowerHandle = self.tower_func.towers[-1]
        outputs = tensors_by_key(handle, self.config.output_names)
        inputs = self._inputs(handle, list(outputs.values())) if given is None else {}
        names = self.config.output_names
        fetches = outputs if isinstance(names, Mapping) else [outputs[name.removesuffix(":0")] for name in names]
        self.towers.append(PredictTower(handle, inputs, outputs, fetches))
        self._devices += [] if device is None else [device]
        return self.towers[-1]

    def create_session(self) -> Any:
        """Return a session with all variables restored; the graph must not be finalized.

        Raises:
            CheckpointError: if the weights do not fit, or a variable has no value; the message names them.
        """
        creator = as_session_creator(self.config.session_creator)
        if type(creator) is NewSessionCreator:
            creator = NewSessionCreator(creator.target, add_logical_devices(creator.config, self._devices))
        return create_restored_session(self.graph, creator, self.config.session_init)

    def _inputs(self, handle: TowerHandle, outputs: Sequence[Any]) -> dict[str, Any]:
        if self.config.input_names is not None:
            names = [name.removesuffix(":0") for name in self.config.input_names]
        else:
            names = list(inputs_beneath(outputs, self.tower_func.input_names, handle.inputs))
        if len(set(names)) != len(names):
            raise InputError(f"an input is named twice: input_names={names}. Name each once.")
        inputs = dict(zip(names, handle.get_tensors(names), strict=True))
        check_feeds_suffice(list(inputs.values()), outputs)
        return inputs
