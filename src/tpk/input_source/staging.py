"""Staging of data on the devices, before a step needs it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.checks import check_at_least
from tpk.errors import InputError
<<<<<<< HEAD
from tpk.graph.steps import FetchDependencies
from tpk.input_source.base import InputCallback, InputSource, ProxyInput
=======
from tpk.graph.step.fetches import FetchDependencies
from tpk.input_source.base import InputCallback, InputSource
>>>>>>> 23e5bce (Put each kind of input source in one file)
from tpk.input_source.hang_watcher import ends_in_time
from tpk.input_source.meter import StopwatchMeter
from tpk.input_source.proxy import ProxyInput
from tpk.plugin import HookManager, hookimpl
from tpk.plugin.callback import Callback
from tpk.tf_internals import CallableOptions, make_callable

logger = logging.getLogger(__name__)

SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunContext = tf.compat.v1.train.SessionRunContext


class StagingInput(ProxyInput):
    """Brings the datapoints of a source to the devices of the towers ahead of the steps, while these compute.

    A thread takes them from the source and puts them into a staging area on each device; each step takes its own
    from there. Nothing is lost or repeated, at the end of finite data neither: a step starts once all of its
    datapoints are staged, and the training ends when there are no more. A run of the session that does not need the
    input takes nothing.

    Steps run through `trainer.hooked_sess`, which waits for what is staged. A run of the raw session that takes a
    datapoint is an error as soon as none is there, because it could wait forever. Strategies whose towers run by
    themselves refuse it.

    Args:
        source: where the datapoints come from.
        nr_stage: for how many steps it stages ahead; besides those of the run that is about to begin.
        devices: a device string for each tower; by default the devices of the strategy. Text stays on the CPU.
        stop_timeout: seconds that the end of the training waits for the source to deliver what was asked of it.

    Attributes:
        source: where the datapoints come from.
        nr_stage: for how many steps it stages ahead.

    Raises:
        ConfigError: `nr_stage` is less than 1.
        InputError: `source` is no input source; (at `get_input_tensors`) there are more towers than devices.

    Example:
        ```python
        source = StagingInput(QueueInput(flow))
        ```
    """

    def __init__(
        self, source: InputSource, nr_stage: int = 1, devices: Sequence[str] | None = None, stop_timeout: float = 10.0
    ) -> None:
        if not isinstance(source, InputSource):
            raise InputError(f"StagingInput stands on an input source, such as QueueInput(flow), not on {source!r}")
        check_at_least(self, 1, nr_stage=nr_stage)
        super().__init__(source)
        self.nr_stage = nr_stage
        self._devices = None if devices is None else list(devices)
        self._stop_timeout = stop_timeout
        self._areas: list[StagingArea] = []
        self._source_tensors: list[Any] = []
        self._before_run: Sequence[Callable[[Any], Any]] = ()
        self._translate: Callable[[BaseException], BaseException | None] = lambda error: None
        self._thread: StageThread | None = None
        self._session: Any = None
        self._callables: dict[tuple[str, ...], Callable[..., Any]] = {}
        self._resumed_at = 0
        self._used = 0

    @property
    def is_fed(self) -> bool:  # type: ignore[override]
        """Whether steps are fed: they are not, whatever the source."""
        return False

    def place_on(self, devices: Sequence[str]) -> None:
        """Say where the towers are, unless that was chosen; strategies do, before `setup`."""
        if self._devices is None:
            self._devices = list(devices)

    @property
    def consumed(self) -> int:
        """How many datapoints steps have used."""
        used = self._used if self._thread is None else self._thread.used
        return self._resumed_at + used * len(self._areas)

    def make_meter(self) -> StopwatchMeter:
        """Return what measures how long steps wait for what is staged, and how full the source is."""
        self._callback.meter = StopwatchMeter(self.source.make_meter())
        return self._callback.meter

    def start(self, session: Any) -> None:
        """Start to stage; called in `before_train`, after that of the source."""
        self._session = session
        self._callables = {}
        self._resumed_at = self.source.consumed
        self._thread = StageThread(self._stage, self.nr_stage, type(self).__name__)
        self._thread.start()

    def stop(self) -> None:
        """Stop to stage; called in `after_train`, before that of the source."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._used = thread.used
            thread.stop()
            self.source.interrupt()
            thread.wait(self._stop_timeout)
            self._warn_of_unseen_failure(thread)

    def take(self, steps: int = 1) -> int:
        """Wait for the datapoints of the next steps.

        Returns:
            For how many of them there are: fewer if the data ends before.
        """
        if self._thread is None:
            raise InputError("StagingInput was asked for data outside of a training; its before_train starts it")
        return self._thread.take(steps)

    def _setup(self) -> list[Callback]:
        callbacks = self.source.setup(self.signature)
        hooks = HookManager()
        hooks.register_all(callbacks)
        self._before_run = hooks.compile_step().before_run
        self._translate = hooks.translate_error
        self._callback = _StagingCallback(self)
        outside = [_OutsideOfSteps(callback) for callback in callbacks]
        return [*(each for each in outside if each.hook_implementations()), self._callback]

    def _get_input_tensors(self) -> list[Any]:
        tower = len(self._areas)
        if self._devices is not None and tower >= len(self._devices):
            raise InputError(f"StagingInput has {len(self._devices)} devices, but tower {tower} wants data, too")
        device = None if self._devices is None else self._devices[tower]
        # A tower that waits for what another one takes out of its area would have the thread take it out.
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
        if self._thread is None:
            return
        self._thread.stop()
        while not self._thread.wait(self._stop_timeout):
            pass
        self._warn_of_unseen_failure(self._thread)
        self.source.reset_state()
        self._session.run([op for area in self._areas for op in area.clear_ops])
        self.start(self._session)

    def _stage(self) -> None:
        """Put a datapoint for each tower into its area (in the thread)."""
        try:
            with self._session.graph.as_default():
                context = SessionRunContext(SessionRunArgs(None), self._session)
                self._run_stage_ops([before_run(context) for before_run in self._before_run])
        except Exception as error:
            cause = self._translate(error)
            if cause is None:
                raise
            raise cause from (cause.__cause__ or error)

    def _run_stage_ops(self, requests: Sequence[Any]) -> None:
        feeds: dict[Any, Any] = {}
        for request in requests:
            if request is not None:
                if not isinstance(request, SessionRunArgs) or request.fetches is not None:
                    raise InputError(
                        f"StagingInput cannot stand on {type(self.source).__name__}: its callbacks fetch {request!r} "
                        "in each step, which only the session of the steps can do"
                    )
                feeds.update(request.feed_dict.items())
        if not all(type(value) is np.ndarray for value in feeds.values()):
            self._session.run([op for area in self._areas for op in area.stage_ops], feeds)
            return
        names = tuple(tensor.name for tensor in feeds)
        call = self._callables.get(names)
        if call is None:
            targets = [op.name for area in self._areas for op in area.stage_ops]
            options = CallableOptions(feed=names, target=targets)
            call = self._callables[names] = make_callable(self._session, options)
        call(*feeds.values())

    def _warn_of_unseen_failure(self, thread: StageThread) -> None:
        if thread.failure is not None and not thread.failure_was_seen:
            logger.warning("StagingInput: the data failed ahead of what was used", exc_info=thread.failure)


class _StagingCallback(InputCallback):
    """Has each step wait until its datapoints are staged."""

    def __init__(self, source: StagingInput) -> None:
        self._source = source
        self.meter: StopwatchMeter | None = None
        self.dependencies = FetchDependencies([])

    def before_train(self, trainer: Any) -> None:
        self._source.start(trainer.sess)

    def before_run(self, run_context: Any) -> None:
        if not self.dependencies.among(run_context.original_args.fetches):
            return
        wanted = getattr(run_context, "steps", 1)  # That of TensorFlow's own context.
        take = partial(self._source.take, wanted)
        staged = take() if self.meter is None else self.meter.waiting(take)
        if staged < wanted:
            run_context.steps = staged

    # The thread must not wait any more for a source that has been stopped.
    @hookimpl(tryfirst=True)
    def after_train(self, trainer: Any) -> None:
        self._source.stop()


_HOOKS_OF_RUNS = ("before_run", "after_run", "translate_error")


class _OutsideOfSteps(InputCallback):
    """A callback of the source, without its part in the steps, which the staging thread has."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    @property
    def trainer(self) -> Any:
        """The trainer of the callback."""
        return self._callback.trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        self._callback.trainer = trainer

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the callback that are not called in a step."""
        hooks = self._callback.hook_implementations()
        return {name: hook for name, hook in hooks.items() if name not in _HOOKS_OF_RUNS}


_NOTHING_STAGED = (
    "StagingInput: a run takes a datapoint that is not staged. Only trainer.hooked_sess waits for it: in run_step, "
    "write self.hooked_sess.run(self.train_op) in place of sess.run. In a callback, ask for tensors in before_run."
)


class StagingArea:
    """TensorFlow's staging area on a device, and one on the CPU for text, which no other device holds.

    Args:
        tensors: what is put into it.
        device: a device string; None for that of the scope around.
        name: the scope of its ops.

    Attributes:
        tensors: what is taken out of it, in the order of those that are put in.
        stage_ops: put one value of each tensor in.
        take_ops: take one value of each tensor out; they wait for it.
        clear_ops: throw away what is in it.
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
                if places and where is None:
                    self._build([tensors[place] for place in places], places, scope)
                elif places:
                    with tf.device(where):
                        self._build([tensors[place] for place in places], places, scope)

    def _build(self, tensors: list[Any], places: list[int], scope: str) -> None:
        # The name is what makes the ops share one area; that of an op is its alone in the graph.
        shared_name = tf.compat.v1.get_default_graph().unique_name(f"{scope}area")
        dtypes = [tensor.dtype for tensor in tensors]
        stage = tf.raw_ops.Stage(values=tensors, shared_name=shared_name, name="stage")
        with tf.compat.v1.colocate_with(stage):
            size = tf.raw_ops.StageSize(dtypes=dtypes, shared_name=shared_name, name="size")
        # What takes from an empty area waits where neither an error nor a signal reaches it. A step whose hooks have
        # waited finds something there.
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


class StageThread(threading.Thread):
    """Stages datapoints as long as there is room, until the data ends or fails, or it is stopped.

    A step waits in Python for what was staged, not in the graph: so it can be told of the end.

    Args:
        stage: stages a datapoint for each tower.
        room: for how many steps it stages ahead.
        owner: the name of the source, for messages.

    Attributes:
        used: how many steps have taken what was staged.
        failure: what ended the data, other than its end; None while all is well.
        failure_was_seen: whether a step has raised it.
    """

    def __init__(self, stage: Callable[[], None], room: int, owner: str) -> None:
        super().__init__(name=f"tpk-{owner}", daemon=True)
        self.used = 0
        self.failure: BaseException | None = None
        self.failure_was_seen = False
        self._owner = owner
        self._stage = stage
        self._room: SimpleQueue[None] = SimpleQueue()
        self._staged: SimpleQueue[bool] = SimpleQueue()
        self._is_stopping = False
        for _ in range(room):
            self._room.put(None)

    def run(self) -> None:
        """Stage (in the thread)."""
        try:
            self._room.get()
            while not self._is_stopping:
                self._stage()
                self._staged.put(True)
                self._room.get()
        except tf.errors.OutOfRangeError:
            pass
        except BaseException as error:  # a SystemExit, too, must reach the step, or it would wait forever
            self.failure = error
        finally:
            self._staged.put(False)

    def take(self, steps: int) -> int:
        """Wait for what the next steps use, and let the thread stage more.

        Returns:
            For how many of them there is something: fewer if the data ends, or fails, before.

        Raises:
            tf.errors.OutOfRangeError: the data has ended, and there is nothing for any of them.
            BaseException: the data has failed, and there is nothing either.
        """
        for taken in range(steps):
            if not self._staged.get():
                self._staged.put(False)  # for the next one who asks
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
        """Ask the thread to end, which it does when the source has delivered the datapoint that it waits for."""
        self._is_stopping = True
        self._room.put(None)

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the thread.

        Args:
            timeout: seconds to wait before a warning tells where the thread is.

        Returns:
            Whether it has ended.
        """
        return ends_in_time(self, timeout, f"{self._owner}: its source has not delivered a datapoint")
