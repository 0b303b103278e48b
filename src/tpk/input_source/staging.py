"""Staging of data on the devices before a step needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_at_least
from tpk.errors import InputError
from tpk.graph.fetches import FetchDependencies
from tpk.input_source.base import InputCallback, InputSource
from tpk.input_source.data_thread import DataThread
from tpk.input_source.meter import StopwatchMeter
from tpk.input_source.proxy_input import ProxyInput
from tpk.plugin import hookimpl
from tpk.plugin.callback import Callback
from tpk.tf_internals import CallableOptions, make_callable


class StagingInput(ProxyInput):
    """Copies the datapoints of a source to the devices of the towers ahead of the steps, while these compute.

    A thread takes them from the source and puts them into a staging area on each device; each step takes its own
    from there. Nothing is lost or repeated, even when finite data ends: a step starts once all of its datapoints are
    staged, and the training ends when there are no more. A run of the session that does not need the input takes
    nothing.

    Steps run through `trainer.hooked_sess`, which waits for staged data. A run of the raw session that takes a
    datapoint fails if nothing is staged, because it could wait forever. Strategies whose towers run independently
    refuse a `StagingInput`.

    Args:
        source: where the datapoints come from; its data must be in the graph, as with a `QueueInput`.
        nr_stage: how many steps to stage ahead, in addition to the steps of the next run.
        devices: a device string for each tower; by default the devices of the strategy. Strings stay on the CPU.

    Attributes:
        source: where the datapoints come from.
        nr_stage: how many steps it stages ahead.

    Raises:
        ConfigError: `nr_stage` is less than 1.
        InputError: `source` is not an input source, or feeds its data; (at `get_input_tensors`) there are more towers
            than devices.

    Example:
        ```python
        source = StagingInput(QueueInput(flow))
        ```
    """

    max_ahead = 0  # Its own; the source's is larger.

    def __init__(self, source: InputSource, nr_stage: int = 1, devices: Sequence[str] | None = None) -> None:
        if not isinstance(source, InputSource):
            raise InputError(f"StagingInput needs an input source, such as QueueInput(flow), not {source!r}")
        if source.is_fed:
            raise InputError(
                f"StagingInput needs a source whose data is in the graph, and {type(source).__name__} feeds its data. "
                "Write StagingInput(QueueInput(flow))."
            )
        check_at_least(self, 1, nr_stage=nr_stage)
        super().__init__(source)
        self.nr_stage = nr_stage
        self._devices = None if devices is None else list(devices)
        self._areas: list[StagingArea] = []
        self._source_tensors: list[Any] = []
        self._thread: StageThread | None = None
        self._session: Any = None
        self._resumed_at = 0
        self._used = 0

    def place_on(self, devices: Sequence[str]) -> None:
        """Set the devices of the towers, unless the user has chosen them; strategies do, before `setup`."""
        if self._devices is None:
            self._devices = list(devices)

    @property
    def consumed(self) -> int:
        """How many datapoints steps have used."""
        used = self._used if self._thread is None else self._thread.used
        return self._resumed_at + used * len(self._areas)

    def make_meter(self) -> StopwatchMeter:
        """Return a meter of how long steps wait for staged data, and of how full the source is."""
        self._callback.meter = StopwatchMeter(self.source.make_meter())
        return self._callback.meter

    def start(self, session: Any) -> None:
        """Start staging; called in `before_train`, after the source has started."""
        options = CallableOptions(target=[op.name for area in self._areas for op in area.stage_ops])
        self._session = session
        self._resumed_at = self.source.consumed
        self._thread = StageThread(
            make_callable(session, options),
            self.nr_stage,
            self.source.translate_error,
            type(self).__name__,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop staging; called in `after_train`, before the source stops."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._used = thread.used
            thread.stop()
            self.source.interrupt()
            thread.wait()
            thread.log_unseen_failure()

    def take(self, steps: int = 1) -> int:
        """Wait for the datapoints of the next steps.

        Returns:
            The number of steps that have datapoints: fewer if the data ends before.
        """
        if self._thread is None:
            raise InputError("StagingInput was asked for data outside of a training; its before_train starts it")
        return self._thread.take(steps)

    def _setup(self) -> list[Callback]:
        callbacks = self.source.setup(self.signature)
        self._callback = _StagingCallback(self)
        return [*callbacks, self._callback]

    def _get_input_tensors(self) -> list[Any]:
        tower = len(self._areas)
        if self._devices is not None and tower >= len(self._devices):
            raise InputError(f"StagingInput has {len(self._devices)} devices, but tower {tower} needs data too")
        device = None if self._devices is None else self._devices[tower]
        # Without this, staging for a tower would depend on what another tower takes out of its area.
        with tf.control_dependencies(None):
            with tf.control_dependencies(self._source_tensors), tf.device("/cpu:0"):
                tensors = self.source.get_input_tensors()
            self._source_tensors = [tensor.op for tensor in tensors]
            area = StagingArea(tensors, device, f"{type(self).__name__}/tower{tower}")
        self._areas.append(area)
        self.source.max_ahead = self.max_ahead + (self.nr_stage + 1) * len(self._areas)
        self._callback.dependencies = FetchDependencies([op for each in self._areas for op in each.take_ops])
        return area.tensors

    def _reset_state(self) -> None:
        # Before the training nothing has been taken from the source.
        if self._thread is not None:
            self._thread.finish()
            self.source.reset_state()
            self._session.run([op for area in self._areas for op in area.clear_ops])
            self.start(self._session)


class _StagingCallback(InputCallback):
    """Makes each step wait until its datapoints are staged."""

    def __init__(self, source: StagingInput) -> None:
        self._source = source
        self.meter: StopwatchMeter | None = None
        self.dependencies = FetchDependencies([])

    def before_train(self, trainer: Any) -> None:
        self._source.start(trainer.sess)

    def before_run(self, run_context: Any) -> None:
        if not self.dependencies.among(run_context.original_args.fetches):
            return
        wanted = getattr(run_context, "steps", 1)  # TensorFlow's own context has no `steps`.
        take = partial(self._source.take, wanted)
        staged = take() if self.meter is None else self.meter.waiting(take)
        if staged < wanted:
            run_context.steps = staged

    # First, so that the thread does not wait for a source that has stopped.
    @hookimpl(tryfirst=True)
    def after_train(self, trainer: Any) -> None:
        self._source.stop()


_NOTHING_STAGED = (
    "StagingInput: a run takes a datapoint that is not staged. Only trainer.hooked_sess waits for it: in run_step, "
    "write self.hooked_sess.run(self.train_op) instead of sess.run. In a callback, ask for tensors in before_run."
)


class StagingArea:
    """A TensorFlow staging area on a device, and one on the CPU for strings, which no other device can hold.

    Args:
        tensors: the tensors to stage.
        device: a device string; None for the device of the surrounding scope.
        name: the scope of its ops.

    Attributes:
        tensors: the staged tensors, in the order of `tensors`.
        stage_ops: put one value of each tensor in.
        take_ops: take one value of each tensor out; they wait for it.
        clear_ops: discard the contents.
    """

    def __init__(self, tensors: Sequence[Any], device: str | None, name: str) -> None:
        self.stage_ops: list[Any] = []
        self.take_ops: list[Any] = []
        self.clear_ops: list[Any] = []
        self.tensors: list[Any] = [None] * len(tensors)
        texts = [place for place, tensor in enumerate(tensors) if tensor.dtype == tf.string]
        others = [place for place in range(len(tensors)) if place not in texts]
        with tf.name_scope(name) as scope:
            for places, where in ((others, device), (texts, "/cpu:0")):
                if places:
                    with nullcontext() if where is None else tf.device(where):
                        self._build([tensors[place] for place in places], places, scope)

    def _build(self, tensors: list[Any], places: list[int], scope: str) -> None:
        # Ops with the same shared name share one area.
        shared_name = tf.compat.v1.get_default_graph().unique_name(f"{scope}area")
        dtypes = [tensor.dtype for tensor in tensors]
        stage = tf.raw_ops.Stage(values=tensors, shared_name=shared_name, name="stage")
        with tf.compat.v1.colocate_with(stage):
            size = tf.raw_ops.StageSize(dtypes=dtypes, shared_name=shared_name, name="size")
        # An op that takes from an empty area waits where neither an error nor a signal reaches it. A step whose hooks
        # have waited never finds it empty.
        with tf.device("/cpu:0"):
            is_staged = tf.raw_ops.Assert(condition=size > 0, data=[_NOTHING_STAGED], summarize=1, name="is_staged")
        with tf.compat.v1.colocate_with(stage), tf.control_dependencies([is_staged]):
            taken = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=shared_name, name="take")
        with tf.compat.v1.colocate_with(stage):
            clear = tf.raw_ops.StageClear(dtypes=dtypes, shared_name=shared_name, name="clear")
        for place, tensor, given in zip(places, taken, tensors, strict=True):
            tensor.set_shape(given.shape)
            self.tensors[place] = tensor
        self.stage_ops.append(stage)
        self.take_ops.append(taken[0].op)
        self.clear_ops.append(clear)


class StageThread(DataThread):
    """Stages datapoints as long as there is room.

    A step waits for staged data in Python, not in the graph, so that it notices the end of the data.

    Args:
        stage: stages a datapoint for each tower.
        room: how many steps to stage ahead.
        translate: returns the failure of the data that caused an error of `stage`, or None.
        owner: see `DataThread`.

    Attributes:
        used: how many steps have taken staged data.
    """

    def __init__(
        self,
        stage: Callable[[], Any],
        room: int,
        translate: Callable[[BaseException], BaseException | None],
        owner: str,
    ) -> None:
        super().__init__(owner, "its source did not deliver a datapoint")
        self.used = 0
        self._stage = stage
        self._translate = translate
        self._room: SimpleQueue[None] = SimpleQueue()
        self._staged: SimpleQueue[bool] = SimpleQueue()
        for _ in range(room):
            self._room.put(None)

    def take(self, steps: int) -> int:
        """Wait for the data of the next steps, and let the thread stage more.

        Returns:
            The number of steps that have data: fewer if it ends or fails before.

        Raises:
            tf.errors.OutOfRangeError: the data ended before the first of the steps.
            BaseException: the data failed before the first of the steps.
        """
        for taken in range(steps):
            if not self._staged.get():
                self._staged.put(False)  # For the next caller.
                if taken:
                    return taken
                break
            self.used += 1
            self._room.put(None)
        else:
            return steps
        if self.failure is not None:
            self.failure_was_seen = True
            raise self.failure
        raise tf.errors.OutOfRangeError(None, None, f"{self._owner}: the data ended after {self.used} steps")

    def stop(self) -> None:
        """Ask the thread to end, which it does once the source has delivered the datapoint that it waits for."""
        self._is_stopping = True
        self._room.put(None)

    def _move_data(self) -> None:
        self._room.get()
        with suppress(tf.errors.OutOfRangeError):
            while not self._is_stopping:
                try:
                    self._stage()
                except Exception as error:
                    cause = self._translate(error)
                    if cause is None:
                        raise
                    raise cause from (cause.__cause__ or error)
                self._staged.put(True)
                self._room.get()

    def _end_data(self) -> None:
        self._staged.put(False)
