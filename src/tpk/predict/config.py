"""Description of a model for inference: its graph, where its weights are, what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError, InputError
from tpk.graph.devices import add_logical_devices, resolve_devices
from tpk.graph.signature import check_signature
from tpk.graph.tower_options import check_precision, in_precision
from tpk.plugin.creation import also_spelled
from tpk.predict.inputs import check_feeds_suffice, inputs_beneath
from tpk.predict.online import check_names, tensors_by_key
from tpk.predict.weights import restore_weights
from tpk.session.creator import NewSessionCreator, SessionCreator, as_session_creator
from tpk.tower.context import PredictTowerContext
from tpk.tower.handle import TowerHandle
from tpk.tower.tower_func import TowerFunc

GetInputs = Callable[[], Sequence[Any]]


def _is_model(config: PredictConfig, attribute: attrs.Attribute[Any], model: Any) -> None:
    if isinstance(model, type):
        raise ConfigError(f"PredictConfig(model={model.__name__}): expected an instance. Write {model.__name__}().")
    if model is not None and not all(hasattr(model, name) for name in ("get_input_signature", "build_graph")):
        raise ConfigError(
            f"PredictConfig(model={model!r}): expected a tpk.ModelDesc, or another object with get_input_signature() "
            "and build_graph(*tensors). Give a function as tower_func, with its input_signature."
        )


def _is_function(config: PredictConfig, attribute: attrs.Attribute[Any], function: Any) -> None:
    if function is not None and not callable(function):
        raise ConfigError(f"PredictConfig(tower_func={function!r}): expected a function of the input tensors.")


def _are_names(config: PredictConfig, attribute: attrs.Attribute[Any], names: Any) -> None:
    check_names(f"PredictConfig: {attribute.name}", names)


def _is_creator(config: PredictConfig, attribute: attrs.Attribute[Any], creator: Any) -> None:
    as_session_creator(creator)


def _is_device(config: PredictConfig, attribute: attrs.Attribute[Any], device: Any) -> None:
    if device is not None:
        if not isinstance(device, str):
            raise ConfigError(f"PredictConfig(device={device!r}): expected a device string, such as '/gpu:0'.")
        resolve_devices(device)


def _is_precision(config: PredictConfig, attribute: attrs.Attribute[Any], precision: Any) -> None:
    check_precision(precision)


@also_spelled({"inputs_desc": "input_signature"})
@attrs.frozen(kw_only=True, eq=False)
class PredictConfig:
    """How a model predicts, once it is trained.

    The model is built anew, as an inference tower, in a graph of its own. Weights that any strategy has saved fit.

    Attributes:
        model: a `tpk.ModelDesc`, or whatever else has ``get_input_signature()`` and ``build_graph(*tensors)``.
        tower_func: in place of a model, a function of the input tensors that builds it.
        input_signature: a `tf.TensorSpec` for each argument of `tower_func`.
        session_init: where the weights are: the directory of a run, whose newest complete checkpoint is taken; in it
            a step, or the name of a saver of the best, such as ``"runs/cats/min-validation_cost"``; the path of a
            checkpoint or of an ``.npz`` file; a mapping of names to arrays; a `SessionInit`, such as
            `AveragedWeights`; or a list of those. What is stored for the training only is left out; a variable of the
            model for which there is nothing is an error.
        input_names: what is fed: names of inputs in the signature, or of other tensors in the tower. None for those
            inputs of the signature that the outputs depend on; so one need not feed labels to get a prediction.
        output_names: names of tensors in the tower; or a mapping of keys to such names, if results shall be a dict
            with these keys.
        session_creator: where the session comes from: a `SessionCreator`, or anything with a ``create_session()``;
            None for a new one.
        device: a device string; by default TensorFlow places the ops.
        precision: what the tower computes in, as in the training; see `tpk.graph.tower_options`.

    Raises:
        ConfigError: if a value is not of the kind that it should be. It names the option.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init="runs/cats", output_names=["probabilities"])
        with tpk.OfflinePredictor(config) as predict:
            (probabilities,) = predict(images)
        ```
    """

    model: Any = attrs.field(default=None, validator=_is_model)
    tower_func: Callable[..., Any] | None = attrs.field(default=None, validator=_is_function)
    input_signature: Sequence[Any] | None = None
    session_init: Any = None
    input_names: Sequence[str] | None = attrs.field(default=None, validator=attrs.validators.optional(_are_names))
    output_names: Sequence[str] | Mapping[str, str] = attrs.field(validator=_are_names)
    session_creator: Any = attrs.field(default=None, validator=_is_creator)
    device: str | None = attrs.field(default=None, validator=_is_device)
    precision: str = attrs.field(default="float32", validator=_is_precision)

    def __attrs_post_init__(self) -> None:
        if (self.model is None) == (self.tower_func is None):
            raise ConfigError(
                "PredictConfig needs either a model or a tower_func with its input_signature, and not both; got "
                f"{'neither' if self.model is None else 'both'}."
            )
        if (self.tower_func is None) != (self.input_signature is None):
            raise ConfigError(
                "PredictConfig: tower_func and input_signature belong together, a tf.TensorSpec for each argument; a "
                "model has a signature of its own."
            )
        if self.input_signature is not None:
            check_signature(self.input_signature)

    def make_graph(self) -> Any:
        """Return the graph in which the model is to be built: a new one. A subclass may have another."""
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
            devices: a device string for each tower; by default there is one tower, on `device`. All of them share
                their variables. In the first, tensors are called what the model calls them.

        Raises:
            TowerError: if the model breaks a rule of tower functions, or has no tensor of a name.
            InputError: if the outputs depend on an input that is not among the input names.
        """
        graph = PredictGraph(self)
        for device in [self.device] if devices is None else devices:
            graph.add_tower(device)
        return graph

    def create_session(self, graph: Any, devices: Sequence[str] = ()) -> Any:
        """Return a session of `graph`, which holds the model, with all variables restored.

        Args:
            graph: a `tf.Graph` that is not finalized.
            devices: the devices that the session needs.

        Raises:
            CheckpointError: if the weights do not fit, or a variable is left without a value; it names them.
        """
        creator = self._creator(devices)
        with graph.as_default(), _without_global_variables(graph):
            sess = creator.create_session(graph)
        try:
            restore_weights(sess, self.session_init)
        except BaseException:
            sess.close()
            raise
        return sess

    def _creator(self, devices: Sequence[str]) -> SessionCreator:
        creator = as_session_creator(self.session_creator)
        if type(creator) is NewSessionCreator:
            return NewSessionCreator(creator.target, add_logical_devices(creator.config, devices))
        return creator


@attrs.frozen(eq=False)
class PredictTower:
    """An inference tower, with what is fed to it and fetched from it.

    Attributes:
        handle: the tower.
        inputs: the tensors that are fed, by the names in `PredictConfig.input_names`, in their order.
        outputs: the tensors that are fetched, by the keys of `PredictConfig.output_names` if that is a mapping, else
            by the names.
        fetches: the same in the structure of results: a dict, or a list.
    """

    handle: TowerHandle
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    fetches: dict[str, Any] | list[Any]


class PredictGraph:
    """A graph that holds a model for inference; see `PredictConfig.build_graph`.

    Args:
        config: the model.

    Attributes:
        config: the model.
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
        """The tensors that are fed to the first tower, by name."""
        return self.towers[0].inputs

    @property
    def outputs(self) -> dict[str, Any]:
        """The tensors that are fetched from the first tower, by name or key."""
        return self.towers[0].outputs

    def add_tower(self, device: str | None, get_inputs: GetInputs | None = None) -> PredictTower:
        """Build one more tower, which shares the variables of the first.

        Args:
            device: a device string, or None.
            get_inputs: returns its input tensors, if it is not to be fed; called in the graph.

        Raises:
            TowerError: see `PredictConfig.build_graph`.
            InputError: see `PredictConfig.build_graph`.
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
        """Return a session with all variables restored; see `PredictConfig.create_session`."""
        return self.config.create_session(self.graph, self._devices)

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


@contextmanager
def _without_global_variables(graph: Any) -> Iterator[None]:
    """Keep whoever creates the session from initializing weights: what has no value later has been forgotten."""
    collection = graph.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    variables = list(collection)
    collection.clear()
    try:
        yield
    finally:
        collection[:] = variables
