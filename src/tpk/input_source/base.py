"""Base classes of input sources and of their callbacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from tpk.dataflow.base import flow_length, seed_dataflow, why_empty
from tpk.dataflow.position import Position
from tpk.dataflow.transforms.batch import left_out
from tpk.errors import ConfigError, InputError
from tpk.graph.signature import check_signature
from tpk.hang_watcher import hang_watcher
from tpk.input_source.datapoint import DatapointConverter
from tpk.input_source.meter import InputMeter
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback
from tpk.plugin.recorded_options import RecordsOptions


class InputSource(RecordsOptions, ABC):
    """Gives a graph the tensors of one datapoint for each tower in each step.

    The calls, in order:

    1. `setup(signature)`, inside the graph, once.
    2. `get_input_tensors()`, inside the graph, once for each tower. In each step, every tower gets its own datapoint.
    3. The hooks of the callbacks that `setup` returned. `before_train` starts the data from the beginning.
    4. `reset_state()`, between two steps: starts the data again from the beginning.

    `seed` and `load_state_dict` may be called before `before_train`, and `state_dict` between two steps.

    The towers take the datapoints of a step in a fixed order only if each `get_input_tensors` is called under
    `tf.control_dependencies` on the tensors of the towers before it. Towers that run independently must not have these
    dependencies.

    A subclass implements `_setup`, `_get_input_tensors` and, if it can start again, `_reset_state`. It may override
    `size`, `end_after_each_pass` and `make_meter`. If it knows its position in the data, it overrides `consumed`,
    `state_after` and `load_state_dict`. Its callbacks derive from `InputCallback`.

    Attributes:
        signature: the `tf.TensorSpec`s given to `setup`; empty before.
        max_ahead: how many datapoints that have left this source may be waiting to be used. A source that takes its
            data from this one sets it before `before_train`.
        is_fed: whether the data of a step is fed along with its run, so that a run can make only one step.
        queue: the `tf.queue.QueueBase` from which it takes its data, if there is one.
    """

    signature: tuple[Any, ...] = ()
    max_ahead: int = 0
    is_fed: bool = False
    queue: Any = None
    _is_set_up: bool = False

    def setup(self, signature: Sequence[Any]) -> list[Callback]:
        """Build what feeds the graph, in the default graph.

        Args:
            signature: a `tf.TensorSpec` with a name for each input of the model, in order.

        Returns:
            The callbacks that a trainer or an `InferenceRunner` must run.

        Raises:
            InputError: the signature is invalid, or the source has been set up before.
        """
        if self._is_set_up:
            raise InputError(
                f"this {type(self).__name__} was set up before; a source serves one training or inference, so make "
                "another one"
            )
        self.signature, self._is_set_up = check_signature(signature), True
        return self._setup()

    def get_input_tensors(self) -> list[Any]:
        """Return the tensors of one more tower, in the order of the signature.

        Raises:
            InputError: `setup` was not called before.
        """
        if not self._is_set_up:
            raise InputError(f"{type(self).__name__}.get_input_tensors() was called before setup()")
        return self._get_input_tensors()

    def reset_state(self) -> None:
        """Start the data from the beginning."""
        self._reset_state()

    @property
    def size(self) -> int | None:
        """The number of datapoints in one pass over the data, or None if unknown."""
        return None

    def end_after_each_pass(self) -> bool:
        """Make the data end after each pass, until `reset_state`. Called before `setup`, for an evaluation.

        Returns:
            Whether the data ends. If not, `size` is the length of a pass.
        """
        return False

    @property
    def position(self) -> Position | None:
        """The position in the dataflow from which the source takes its data, if there is one."""
        return None

    @property
    def innermost(self) -> InputSource:
        """The last source of a chain in which each takes its data from the next; usually this one."""
        return self

    @property
    def left_out(self) -> int:
        """How many datapoints at the end of each pass are known to be left out, because they make no whole batch."""
        return 0 if self.position is None else left_out(self.position.flow)

    def check_has_data(self) -> None:
        """Check that it has data to train on, if its size is known.

        Raises:
            InputError: the data is empty; the message says why.
        """
        if self.size == 0:
            raise InputError(f"{type(self.innermost).__name__}: there is no data: {self.innermost._why_empty()}.")

    def shard(self, index: int, count: int) -> None:
        """Deliver only the share of process `index` of `count`: one of every `count` datapoints. Called before `setup`.

        The shares of all processes together are the data: each datapoint once per pass. A source whose data differs
        between processes anyway does nothing.

        Args:
            index: from 0 to `count` - 1.
            count: the number of processes.

        Raises:
            ConfigError: the source cannot be divided.
        """
        raise ConfigError(
            f"{type(self).__name__} does not know how to deliver a share of its data. Give each process its own data, "
            "and the strategy shard_data=False."
        )

    def keep_first(self, count: int) -> None:
        """Deliver only the first `count` datapoints, over and over. Called before `setup`.

        Args:
            count: at least 1; the number for all processes together.

        Raises:
            ConfigError: the source cannot do that.
        """
        raise ConfigError(
            f"{type(self).__name__} does not know how to deliver its first {count} batches again and again. Give it "
            "such data, or overfit on a dataflow or a tf.data.Dataset."
        )

    def place_on(self, devices: Sequence[str]) -> None:
        """Copy the data to these devices, one for each tower. Called before `setup`."""

    def seed(self, seed: int) -> None:
        """Seed the random numbers of the data, except where the user has chosen a seed.

        Args:
            seed: a non-negative number, such as the seed of the run.
        """

    @property
    def consumed(self) -> int:
        """How many datapoints have left the source since its data began. A resumed run continues the count."""
        return 0

    def datapoints_of(self, takes: range) -> range:
        """Return the numbers of the datapoints that towers took.

        Args:
            takes: a range of takes, as counted by `consumed`; the first is 0.

        Returns:
            The numbers that messages use for the datapoints: from 0 on, over all passes. Empty if unknown.
        """
        return takes if takes.start >= 0 else range(0)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position after `count` datapoints have been used, as plain JSON data for `load_state_dict`.

        Args:
            count: as counted by `consumed`, and at most `max_ahead` less than it.

        Returns:
            The state; empty if the source keeps no position.
        """
        return {}

    def state_dict(self, ahead: int = 0) -> dict[str, Any]:
        """Return the position in the data as plain JSON data; empty if the source keeps none.

        It is the position of the training: data that was only read ahead is delivered again after a resume.

        Args:
            ahead: how many of the datapoints that have left this source have not been used yet.
        """
        consumed = self.consumed
        while True:
            try:
                return self.state_after(consumed - ahead)
            except InputError:
                # Independent towers may have taken more in the meantime than the source remembers.
                consumed, before = self.consumed, consumed
                if consumed == before:
                    raise

    def start(self, session: Any) -> None:
        """Start the data, for `InputStartStop`."""

    def stop(self) -> None:
        """Stop the data, wherever it is, for `InputStartStop`."""

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return the failure of the data if it caused `error` in a step, for `InputStartStop`."""
        return None

    def interrupt(self) -> None:
        """Make runs that wait in the graph for a datapoint fail, because the training is over."""

    def make_meter(self) -> InputMeter | None:
        """Return a meter of how long steps wait for this source, or None if they never do.

        Called inside the graph, after `get_input_tensors` of all towers and before the graph is finalized.
        """
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. Called before `before_train`; the data continues from there.

        Raises:
            InputError: the state is from other data, or this source keeps no position.
        """
        if state:
            raise InputError(f"{type(self).__name__} keeps no position in its data, so it cannot restore one")

    @abstractmethod
    def _setup(self) -> list[Callback]:
        """Implement `setup`; `self.signature` has been checked and set."""

    @abstractmethod
    def _get_input_tensors(self) -> list[Any]:
        """Implement `get_input_tensors`."""

    def _reset_state(self) -> None:
        """Implement `reset_state`, if the data has a beginning."""

    def _why_empty(self) -> str:
        """Return the reason why there is no data, for `check_has_data`."""
        return why_empty(() if self.position is None else self.position.flow)


class FlowInput(InputSource):
    """Base class of the sources that deliver the datapoints of a dataflow.

    Args:
        flow: any iterable of datapoints.
        infinite: whether to start the flow again when it is exhausted.

    Attributes:
        warn_after: seconds without a datapoint until a warning shows where the data code is, repeated after twice that
            time. Set it before the training.

    Raises:
        ConfigError: `flow` cannot be iterated.
    """

    warn_after: float = 60.0

    converter = DatapointConverter
    """The class of what turns datapoints into arrays, or raises an error about them."""

    _owner = ""
    """The name of the source in messages and states, if it is not the name of the class."""

    def __init__(self, flow: Iterable[Any], infinite: bool) -> None:
        owner = self._owner or type(self).__name__
        self._stream = DatapointStream(flow, infinite=infinite, owner=owner, may_be_empty=False)

    @property
    def flow(self) -> Iterable[Any]:
        """The dataflow, or this process's share of it."""
        return self._stream.flow

    @property
    def size(self) -> int | None:
        """The length of the flow, or None if it has none."""
        return flow_length(self.flow)

    def end_after_each_pass(self) -> bool:
        """Do not start the flow again when it is exhausted."""
        self._stream.end_after_this_pass()
        return True

    @property
    def position(self) -> Position:
        """The position in the flow."""
        return self._stream.position

    def shard(self, index: int, count: int) -> None:
        """Take only a share of the flow, as made by `DataFlow.shard`."""
        self._stream.shard(index, count)

    def keep_first(self, count: int) -> None:
        """Keep the first `count` datapoints in memory."""
        self._stream.keep_first(count)

    def seed(self, seed: int) -> None:
        """Seed every `RNGDataFlow` in the flow that has no seed of the user."""
        seed_dataflow(self.flow, seed)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in the flow."""
        return self._stream.state_after(count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the data from there; an empty state is the beginning."""
        if state:
            self._stream.load(state)

    def _watch(self) -> None:
        """Log a warning whenever the data code hangs, until `_unwatch`."""
        hang_watcher.watch(self._stream, self.warn_after)

    def _unwatch(self) -> None:
        hang_watcher.unwatch(self._stream)


class InputCallback(Callback):
    """Base class of the callbacks of input sources, which run in every process.

    If an error only reports to the graph that the data failed, `InputSource.translate_error` returns the failure of the
    data; `InputStartStop` asks for it.
    """

    chief_only = False


class InputStartStop(InputCallback):
    """The callback of a source that starts and stops with the training.

    Args:
        source: the source.
    """

    def __init__(self, source: InputSource) -> None:
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


class ConsumedCounter:
    """Counts in the graph how many datapoints steps have consumed, whatever thread runs the steps.

    It counts before the datapoint arrives, so a failed attempt counts too, such as one at the end of the data.

    Attributes:
        resumed_at: the number that it started from.
    """

    def __init__(self) -> None:
        with tf.name_scope("consumed"):
            # In no collection, so that nothing else saves or initializes it: it starts with the data.
            self._count = tf.compat.v1.Variable(
                0, dtype=tf.int64, trainable=False, use_resource=True, collections=[], name="count"
            )
            self._one = tf.constant(1, tf.int64)
            self._value = self._count.read_value()
        self._session: Any = None
        self._last = 0
        self.resumed_at = 0

    def count(self) -> Any:
        """Return an op that counts one more datapoint. The op that takes the datapoint must depend on it."""
        return tf.raw_ops.AssignAddVariableOp(resource=self._count.handle, value=self._one, name="count")

    def start(self, session: Any, resumed_at: int) -> None:
        """Start from `resumed_at`."""
        self._session = session
        self.resumed_at = self._last = resumed_at
        session.run(self._count.initializer)

    def stop(self) -> None:
        """Keep the count, and release the session."""
        with suppress(RuntimeError, tf.errors.OpError):  # The session may have been closed.
            self._last = self.value
        self._session = None

    @property
    def value(self) -> int:
        """How many datapoints have been consumed."""
        if self._session is None:
            return self._last
        return self.resumed_at + int(self._session.run(self._value))


def is_error_source(op_names: Collection[str], error: BaseException) -> bool:
    """Return whether one of these ops raised the error.

    Args:
        op_names: names of ops.
        error: an error raised by `Session.run` or by a callable of a session.
    """
    if not isinstance(error, tf.errors.OpError):
        return False
    # Only the message is reliable: errors of callables have no `op`.
    return any(mention in error.message for name in op_names for mention in (f"{{{{node {name}}}}}", f"[[{name}]]"))
