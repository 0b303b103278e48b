"""Bases of the input sources: of all, of those over a dataflow or over another source, and of their callbacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import tensorflow as tf

from tpk.dataflow.base import flow_length, seed_dataflow, why_empty
from tpk.dataflow.position import Position
from tpk.errors import ConfigError, InputError
from tpk.graph.signature import check_signature
from tpk.input_source.hang_watcher import check_warn_after, hang_watcher
from tpk.input_source.meter import InputMeter
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback
from tpk.plugin.description import RecordsOptions


class InputSource(RecordsOptions, ABC):
    """Something that gives a graph the tensors of one datapoint for each tower in each step.

    In the order in which it is called:

    1. `setup(signature)`, inside the graph, once.
    2. `get_input_tensors()`, inside the graph, once for each tower: each call gives further tensors, and in a
       step each tower gets a datapoint of its own.
    3. The hooks of the callbacks that `setup` returned; `before_train` starts the data from the beginning.
    4. `reset_state()`, any time between two steps: start again from the beginning.

    Before `before_train`, `seed` and `load_state_dict` may be called; `state_dict` at any time between two steps.

    Which tower gets which of a step's datapoints is settled only if each call of `get_input_tensors` stands
    under `tf.control_dependencies` on the tensors of the towers before; towers that run by themselves must not
    have that.

    A subclass implements `_setup`, `_get_input_tensors` and, if it can start again, `_reset_state`; it may
    override `size`, `end_after_each_pass` and `make_meter`; one that knows its position in the data overrides
    `consumed`, `state_after` and `load_state_dict`. Its callbacks derive from `InputCallback`.

    Attributes:
        signature: the `tf.TensorSpec`s given to `setup`; empty before.
        max_ahead: how many of the datapoints that have left this source may be waiting to be used. A source
            that stands on this one sets it before `before_train`.
    """

    signature: tuple[Any, ...] = ()
    max_ahead: int = 0
    is_fed: bool = False
    """Whether the data of a step is fed along with its run, and so cannot be that of several steps."""
    _is_set_up: bool = False

    def setup(self, signature: Sequence[Any]) -> list[Callback]:
        """Build what feeds the graph, in the default graph.

        Args:
            signature: a `tf.TensorSpec` with a name for each input of the model, in their order.

        Returns:
            The callbacks that a trainer or an `InferenceRunner` must run along.

        Raises:
            InputError: the signature is not of that kind, or the source has been set up before.
        """
        if self._is_set_up:
            raise InputError(
                f"this {type(self).__name__} has been set up already; a source serves one training or "
                "inference, so make another one"
            )
        self.signature, self._is_set_up = check_signature(signature), True
        return self._setup()

    def get_input_tensors(self) -> list[Any]:
        """Return the tensors of one more tower, in the order of the signature.

        Raises:
            InputError: `setup` has not been called.
        """
        if not self._is_set_up:
            raise InputError(f"{type(self).__name__}.get_input_tensors() was called before setup()")
        return self._get_input_tensors()

    def reset_state(self) -> None:
        """Start the data from the beginning."""
        self._reset_state()

    @property
    def size(self) -> int | None:
        """How many datapoints one pass over the data delivers, or None if that is unknown."""
        return None

    def end_after_each_pass(self) -> bool:
        """Repeat nothing: the data ends after a pass, until `reset_state`; before `setup`, for an evaluation.

        Returns:
            Whether there is such an end. If not, `size` says how much a pass is.
        """
        return False

    @property
    def position(self) -> Position | None:
        """The position of the dataflow from which the source takes its data, if there is one."""
        return None

    @property
    def innermost(self) -> InputSource:
        """The source at the end of a chain of sources that take their data from one another: usually this one."""
        return self

    def shard(self, index: int, count: int) -> None:
        """Deliver only the share of process `index` of `count`: of each `count` datapoints one; before `setup`.

        The shares of all processes together are the data, each datapoint once a pass. A source whose data is different
        in each process by itself has nothing to do.

        Args:
            index: from 0 on, less than `count`.
            count: how many processes there are.

        Raises:
            ConfigError: the source cannot be divided.
        """
        raise ConfigError(
            f"{type(self).__name__} does not know how to deliver a share of its data. Give each process its own data, "
            "and the strategy shard_data=False."
        )

    def keep_first(self, count: int) -> None:
        """Deliver the first `count` datapoints that there are, again and again, always the same; before `setup`.

        Args:
            count: how many, at least 1; those of all processes together.

        Raises:
            ConfigError: the source cannot do that.
        """
        raise ConfigError(
            f"{type(self).__name__} does not know how to deliver its first {count} batches again and again. Give it "
            "such data, or overfit on a dataflow or a tf.data.Dataset."
        )

    def seed(self, seed: int) -> None:
        """Let the randomness of the data start from `seed`, where the user has chosen nothing else.

        Args:
            seed: a non-negative number, such as the seed of the run.
        """

    @property
    def consumed(self) -> int:
        """How many datapoints have left the source since its data began; a resumed run counts on."""
        return 0

    def datapoints_of(self, takes: range) -> range:
        """Return the datapoints that towers consumed in some takes.

        Args:
            takes: as `consumed` counts them, the first one 0.

        Returns:
            The numbers by which messages call them: from 0 on, over all passes. Empty if the source does not know.
        """
        return takes if takes.start >= 0 else range(0)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in which `count` datapoints have been used, as plain JSON data.

        Args:
            count: counted as `consumed` does, and at most `max_ahead` less.

        Returns:
            What `load_state_dict` takes; empty if the source keeps no position.
        """
        return {}

    def state_dict(self, ahead: int = 0) -> dict[str, Any]:
        """Return the position in the data as plain JSON data; empty if the source keeps none.

        It is the position of what the training has used: what was read ahead comes again after a resume.

        Args:
            ahead: how many of the datapoints that have left this source have not been used yet.
        """
        consumed = self.consumed
        while True:
            try:
                return self.state_after(consumed - ahead)
            except InputError:
                # Towers that do not wait for each other may have taken more since than the source remembers.
                consumed, before = self.consumed, consumed
                if consumed == before:
                    raise

    def interrupt(self) -> None:
        """Let whoever waits in the graph for a datapoint fail, because the training is over."""

    def make_meter(self) -> InputMeter | None:
        """Return what measures how long steps wait for this source, or None if they never do.

        Called inside the graph, after the tensors of all towers were asked for and before the graph is finalized.
        """
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned, before `before_train`; the data goes on from there.

        Raises:
            InputError: there is a state, and this source keeps none; or it is one of other data.
        """
        if state:
            raise InputError(f"{type(self).__name__} keeps no position in its data, so it cannot take one back")

    @abstractmethod
    def _setup(self) -> list[Callback]:
        """Do what `setup` promises; `self.signature` has been checked and set."""

    @abstractmethod
    def _get_input_tensors(self) -> list[Any]:
        """Do what `get_input_tensors` promises, after `setup`."""

    def _reset_state(self) -> None:
        """Do what `reset_state` promises, if the data has a beginning."""


class FlowInput(InputSource):
    """Base of the sources of a dataflow's datapoints: their length, seeds and positions.

    Args:
        flow: any iterable of datapoints.
        infinite: whether the flow is started again when it is exhausted.
        warn_after: seconds in which the data code has to deliver a datapoint; else a warning tells where it is.

    Raises:
        ConfigError: `flow` cannot be iterated, or `warn_after` is not positive.
    """

    def __init__(self, flow: Iterable[Any], infinite: bool, warn_after: float) -> None:
        self._stream = DatapointStream(flow, infinite=infinite, owner=type(self).__name__)
        self._stream.may_be_empty = False
        self._warn_after = check_warn_after(warn_after, type(self).__name__)

    @property
    def flow(self) -> Iterable[Any]:
        """The dataflow, or the share of it that this process has."""
        return self._stream.flow

    @property
    def size(self) -> int | None:
        """The length of the flow, or None if it has none."""
        return flow_length(self.flow)

    def end_after_each_pass(self) -> bool:
        """Do not start the flow again when it is exhausted."""
        self._stream.infinite, self._stream.may_be_empty = False, True
        return True

    @property
    def position(self) -> Position:
        """The position of the flow."""
        return self._stream.position

    def shard(self, index: int, count: int) -> None:
        """Take only a share of the flow, as `DataFlow.shard` makes it."""
        self._stream.shard(index, count)

    def keep_first(self, count: int) -> None:
        """Keep the first of a pass over the flow in memory."""
        self._stream.keep_first(count)

    def seed(self, seed: int) -> None:
        """Seed every `RNGDataFlow` in the flow whose seed was not chosen."""
        seed_dataflow(self.flow, seed)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in the flow."""
        return self._stream.state_after(count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the data start from there; an empty state is the beginning."""
        if state:
            self._stream.load(state)

    def _watch(self) -> None:
        """Have a warning logged when the data code hangs, from now on until `_unwatch`."""
        hang_watcher.watch(self._stream, self._warn_after)

    def _unwatch(self) -> None:
        hang_watcher.unwatch(self._stream)


class InputCallback(Callback):
    """Base of the callbacks of input sources, which run in every process.

    In ``translate_error`` it returns a failure of the data, if the error is only how that reached the graph.
    """

    chief_only = False


class InputStartStop(InputCallback):
    """The callback of a source that is started with the training, and stopped with it.

    Args:
        source: has ``start(session)``, ``stop()`` and ``translate_error(error)``.
    """

    def __init__(self, source: Startable) -> None:
        self._source = source

    def before_train(self, trainer: Any) -> None:
        """Start the source."""
        self._source.start(trainer.sess)

    def after_train(self, trainer: Any) -> None:
        """Stop the source."""
        self._source.stop()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Ask the source."""
        return self._source.translate_error(error)


class Startable(Protocol):
    """A source that `InputStartStop` starts and stops."""

    def start(self, session: Any) -> None:
        """Start the data."""

    def stop(self) -> None:
        """Stop the data, however far it is."""

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if `error` is how a step noticed."""


def check_has_data(source: InputSource) -> None:
    """Check that a source has data to train on, if it knows its size.

    Raises:
        InputError: it has none; the message says why.
    """
    if source.size != 0:
        return
    position = source.position
    flow = () if position is None else position.flow
    source = source.innermost
    reason = why_empty(flow)
    batch_size = getattr(source, "batch_size", None)
    if batch_size is not None and flow_length(flow):
        reason = f"it makes no batch of {batch_size} from {flow_length(flow)} datapoints. Lower batch_size"
    raise InputError(f"{type(source).__name__}: there is no data: {reason}.")


def is_error_source(op_names: Collection[str], error: BaseException) -> bool:
    """Tell whether one of these ops raised the error.

    Args:
        op_names: names of ops.
        error: what a run of the session raised, by way of `Session.run` or of a callable.
    """
    if not isinstance(error, tf.errors.OpError):
        return False
    # Only the message tells in every case: the `op` of what a callable raises is None.
    return any(mention in error.message for name in op_names for mention in (f"{{{{node {name}}}}}", f"[[{name}]]"))


class ConsumedCounter:
    """A counter in the graph that goes on whenever a datapoint is consumed, whoever runs the step, and in however many
    threads.

    It is counted before the datapoint is there; so an attempt that fails, as at the end of the data, is counted, too.

    Args:
        name: of its variable.

    Attributes:
        resumed_at: from where it was started.
    """

    def __init__(self, name: str) -> None:
        with tf.name_scope(name):
            # In no collection, so that it is neither saved nor initialized by others: it starts with the data.
            self._count = tf.compat.v1.Variable(
                0, dtype=tf.int64, trainable=False, use_resource=True, collections=[], name="count"
            )
            self._one = tf.constant(1, tf.int64)
            self._value = self._count.read_value()
        self._session: Any = None
        self._last = 0
        self.resumed_at = 0

    def count(self, name: str) -> Any:
        """Return an op that counts one datapoint more; what takes it must depend on that."""
        return tf.raw_ops.AssignAddVariableOp(resource=self._count.handle, value=self._one, name=name)

    def start(self, session: Any, resumed_at: int) -> None:
        """Start from `resumed_at`."""
        self._session = session
        self.resumed_at = self._last = resumed_at
        session.run(self._count.initializer)

    def stop(self) -> None:
        """Keep the count as it is, and let go of the session."""
        with suppress(RuntimeError, tf.errors.OpError):  # Somebody may have closed the session.
            self._last = self.value
        self._session = None

    @property
    def value(self) -> int:
        """How many datapoints have been consumed."""
        if self._session is None:
            return self._last
        return self.resumed_at + int(self._session.run(self._value))
