"""Predictors: functions of arrays, computed by a graph in a session."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import tensorflow as tf

from tpk.errors import ConfigError, InputError, SessionError
from tpk.graph.devices import resolve_devices
from tpk.predict.inputs import InputCheck, check_feeds_suffice
from tpk.session.plan import unshared
from tpk.tf_internals import CallableOptions, is_closed, make_callable, word_error
from tpk.tower.handle import TowerHandle

Tensors = Sequence[Any] | Mapping[str, Any]
ClosesSelf = TypeVar("ClosesSelf", bound="ClosesOnExit")


class ClosesOnExit(abc.ABC):
    """A context manager that closes itself on exit."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release all resources. Calling it again does nothing."""

    def __enter__(self: ClosesSelf) -> ClosesSelf:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class OnlinePredictor:
    """A function of arrays, computed by an inference tower with the current values of the variables.

    It may be called from several threads at once. Its run is compiled once for each session.

    Args:
        inputs: the tensors that are fed: a list, or a mapping from their names in messages and in dicts of arguments.
        outputs: the tensors that are returned: a list, for results that are lists; or a mapping, for results that are
            dicts with the same keys.
        get_session: returns the session; called each time, because it does not exist while the graph is built.
        output_names: the names of the outputs if `outputs` is a list; by default the names of the tensors.

    Attributes:
        inputs: the tensors that are fed.
        outputs: the tensors that are returned.
        input_specs: a `tf.TensorSpec` for each input, with its name.
        output_names: the name or key of each output.
        returns_dict: whether results are dicts.

    Raises:
        InputError: if an element is not a tensor of a graph, an input cannot be fed, or `outputs` depend on other
            inputs.

    Example:
        ```python
        predict = trainer.get_predictor(["image"], ["probabilities"])  # in setup_graph
        (probabilities,) = predict(images)                              # once the training runs
        (probabilities,) = predict({"image": images})
        ```
    """

    def __init__(
        self,
        inputs: Tensors,
        outputs: Tensors,
        get_session: Callable[[], Any],
        output_names: Sequence[str] | None = None,
    ) -> None:
        fed, fetched = _by_name(inputs), _by_name(outputs)
        for name, tensor in [*fed, *fetched]:
            if not isinstance(tensor, tf.Tensor) or not hasattr(tensor, "graph"):
                raise InputError(f"a predictor takes tensors of a graph, but {name!r} is {tensor!r}.")
        self.inputs = [tensor for _, tensor in fed]
        self.outputs = [tensor for _, tensor in fetched]
        for name, tensor in fed:
            if not tensor.graph.is_feedable(tensor):
                raise InputError(f"the input {name!r} of a predictor ({tensor.name}) cannot be fed. Name another one.")
        check_feeds_suffice(self.inputs, self.outputs)
        self.output_names = [name for name, _ in fetched] if output_names is None else list(output_names)
        self.returns_dict = isinstance(outputs, Mapping)
        self._check = InputCheck({name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in fed})
        self.input_specs = self._check.specs
        self._get_session = get_session
        self._compiling = Lock()
        # The session and its compiled run, replaced together, so that threads always see a matching pair.
        self._compiled: tuple[Any, Any] = (None, None)

    def __repr__(self) -> str:
        names = ", ".join(spec.name for spec in self.input_specs)
        return f"<{type(self).__name__} of {', '.join(self.output_names)} from {names or 'nothing'}>"

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs for these inputs, as arrays.

        Args:
            inputs: an array for each input, in order; or one dict of arrays by name.

        Returns:
            A list of arrays, or a dict if `outputs` was a mapping.

        Raises:
            InputError: if an input does not fit, the number of inputs is wrong, or the session does not exist yet.
            SessionError: if the session has been closed.
        """
        arrays = self._check(inputs)
        session, run = self._compiled
        if session is None or session is not self._get_session() or is_closed(session):
            session, run = self._compile()
        try:
            results = run(*arrays)
        except tf.errors.OpError as error:
            if is_closed(session):
                raise _closed(self) from error
            word_error(session, error)
        # The runtime may share their memory with a variable, with the caller's arrays, or with one another.
        results = list(map(unshared, results))
        return dict(zip(self.output_names, results)) if self.returns_dict else results  # noqa: B905 - equal; hot

    def _compile(self) -> tuple[Any, Any]:
        with self._compiling:
            session = self._get_session()
            if session is None:
                raise InputError("the predictor has no session yet. Call it from before_train on.")
            if is_closed(session):
                raise _closed(self)
            if self._compiled[0] is not session:
                self._compiled = (session, _compile(session, self.inputs, self.outputs))
            return self._compiled


def predictor_of(
    tower: TowerHandle,
    input_names: Sequence[str],
    output_names: Sequence[str] | Mapping[str, str],
    get_session: Callable[[], Any],
) -> OnlinePredictor:
    """Return a predictor of tensors of `tower`.

    Args:
        tower: an inference tower.
        input_names: names of inputs in its signature, or of other tensors in it.
        output_names: names of tensors in it; or a mapping of keys to such names, for results that are dicts.
        get_session: returns the session; see `OnlinePredictor`.

    Raises:
        TowerError: if the tower has no such tensors.
        InputError: if the outputs depend on an input that is not named.
        ConfigError: if names are not given as a list.
    """
    check_names("input_names", input_names)
    check_names("output_names", output_names)
    inputs = tensors_by_key(tower, input_names)
    if isinstance(output_names, Mapping):
        return OnlinePredictor(inputs, tensors_by_key(tower, output_names), get_session)
    names = [name.removesuffix(":0") for name in output_names]
    return OnlinePredictor(inputs, tower.get_tensors(names), get_session, names)


def tensors_by_key(tower: TowerHandle, names: Sequence[str] | Mapping[str, str]) -> dict[str, Any]:
    """Return tensors of `tower`, by the keys of a mapping to names, or by the names in a list."""
    pairs = names.items() if isinstance(names, Mapping) else [(name.removesuffix(":0"), name) for name in names]
    return {key: tower.get_tensor(name) for key, name in pairs}


def device_for(device: str | int | None, towers: Sequence[TowerHandle]) -> str | None:
    """Return the canonical device string for an inference tower.

    Args:
        device: a device string; the number of a training tower, for its device; -1 or ``"cpu"`` for the CPU; None to
            let TensorFlow place the ops.
        towers: the training towers.

    Returns:
        A string such as ``"/device:GPU:0"``; None to let TensorFlow place the ops.

    Raises:
        ConfigError: if there is no such device.
    """
    if device is None:
        return None
    if isinstance(device, int) and 0 <= device < len(towers) and not isinstance(device, bool):
        output = towers[device].output
        # All costs of a tower are on its device.
        cost = next(iter(output.values())) if isinstance(output, Mapping) else output
        return _canonical(cost.device) if cost.device else None
    if device in (-1, "cpu"):
        return _canonical("/cpu:0")
    if not isinstance(device, str):
        raise ConfigError(
            f"device={device!r} of a predictor: expected the number of a training tower (0 to {len(towers) - 1}), -1 "
            "or 'cpu' for the CPU, a device string, or None."
        )
    return _canonical(resolve_devices(device)[0])


def check_names(option: str, names: Any) -> None:
    """Check names of tensors.

    Args:
        option: the name of the option, for messages.
        names: expected to be a list of names, or a mapping to names.

    Raises:
        ConfigError: if they are something else.
    """
    if isinstance(names, str):
        raise ConfigError(f"{option}={names!r}: expected a list, e.g. [{names!r}].")
    values = list(names.values()) if isinstance(names, Mapping) else names
    if not isinstance(values, Sequence) or not values or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{option}={names!r}: expected at least one name, each a str.")


def _canonical(device: str) -> str:
    return str(tf.DeviceSpec.from_string(device).to_string())


def _by_name(tensors: Tensors) -> list[tuple[str, Any]]:
    if isinstance(tensors, Mapping):
        return list(tensors.items())
    return [(str(getattr(tensor, "name", tensor)).removesuffix(":0"), tensor) for tensor in tensors]


def _compile(session: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """Return a function that takes the arrays of `inputs`, which must fit, and returns the arrays of `outputs`.

    `Session.make_callable` calls `Session.run` each time if something is fed.
    """
    fed = [tensor.name for tensor in inputs]
    # The runtime does not fetch a tensor twice, or a tensor that is fed.
    fetched = list(dict.fromkeys(tensor.name for tensor in outputs if tensor.name not in fed))
    names = [*fetched, *fed]
    positions = [names.index(tensor.name) for tensor in outputs]
    if not fetched:
        return lambda *arrays: [arrays[position] for position in positions]
    call = make_callable(session, CallableOptions(feed=fed, fetch=fetched))
    if positions == list(range(len(fetched))):
        return call

    def run(*arrays: Any) -> list[Any]:
        found = [*call(*arrays), *arrays]
        return [found[position] for position in positions]

    return run


def _closed(predictor: OnlinePredictor) -> SessionError:
    return SessionError(
        f"the session of {predictor!r} has been closed, by the end of the training or by its close(). Predict with the "
        "saved weights: tpk.OfflinePredictor(tpk.PredictConfig(..., session_init=<run directory>))."
    )
