"""Many steps in one run of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.graph.loops import as_of_originals, repeat, repeat_compiled
from tpk.graph.steps import leaves
from tpk.plugin.progress import Progress
from tpk.session.caller_thread import Call, ThreadTrial, compile_for_caller, most_steps_in_caller
from tpk.session.plan import RunPlan
from tpk.tf_internals import CallableOptions, is_closed, make_callable, unfinalized

CUT_SHORT = object()
"""Stands for what was to be fetched from the last step of a run if the data ended before it."""

Results = tuple[list[Any], int]
"""The results of each request, and the number of steps made: fewer than were asked for if the data ended."""

_Run = Callable[[int, Sequence[Any]], None]

_STEPS_OF_TRIAL = 10
"""As how many steps a run counts in a trial of threads: how many it makes may change from run to run."""


class ManySteps:
    """Makes many steps of a training in one run of its session, by loops that are added to the graph when needed.

    Args:
        sess: the raw `tf.compat.v1.Session`, whose graph may be finalized: the loops are added to it all the same.
        progress: the counters.
        completed: returns the number of steps that the graph has counted.
        xla: whether XLA compiles the loops; see `tpk.graph.loops`.
        tries_threads: as for `HookedSession`.
    """

    def __init__(
        self,
        sess: Any,
        progress: Progress,
        completed: Callable[[], int],
        *,
        xla: bool = False,
        tries_threads: bool = True,
    ) -> None:
        self._sess = sess
        self._progress = progress
        self._completed = completed
        self._xla = xla
        self._tries_threads = tries_threads
        self._timeout_in_ms = 0
        self._runs: dict[tuple[Any, ...], _Run] = {}

    @property
    def timeout_in_ms(self) -> int:
        """How many milliseconds a run may take; 0: for ever. See `HookedSession.timeout_in_ms`."""
        return self._timeout_in_ms

    @timeout_in_ms.setter
    def timeout_in_ms(self, timeout: int) -> None:
        self._timeout_in_ms = timeout
        self._runs.clear()

    def run(self, plan: RunPlan, steps: int, arrays: Sequence[Any], run_last: Callable[[], list[Any]]) -> Results:
        """Make steps: all of them in a loop, or the last one by `run_last` if something is fetched from it.

        Steps that were made before a failure are counted.

        Args:
            plan: the run of one step.
            steps: the number of steps.
            arrays: what is fed, the same in each step.
            run_last: runs one step, and returns the results of each request.

        Raises:
            ConfigError: if XLA is to compile what it cannot.
            tf.errors.OpError: if a step fails; it names the ops of the step rather than their copies in the loop.
        """
        try:
            self._loop(plan, steps if plan.is_work else steps - 1, arrays)
            return plan.no_results if plan.is_work else run_last(), steps
        except Exception as error:
            if is_closed(self._sess):
                raise
            done = self._completed() - self._progress.global_step
            if done and isinstance(error, tf.errors.OutOfRangeError):
                return [None if place is None else _cut_short(plan.fetches[place]) for place in plan.positions], done
            self._progress.complete(done)
            if isinstance(error, tf.errors.OpError):
                raise as_of_originals(error) from error
            raise

    def _loop(self, plan: RunPlan, steps: int, arrays: Sequence[Any]) -> None:
        key = (*plan.work, plan.counting, *map(id, plan.feed_keys))
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = self._build(plan)
        run(steps, arrays)

    def _build(self, plan: RunPlan) -> _Run:
        graph = self._sess.graph
        with unfinalized(graph), graph.as_default(), tf.name_scope(""), tf.control_dependencies(None):
            times = tf.compat.v1.placeholder(tf.int32, [], name="steps_of_run")
            return (self._compiled if self._xla else self._plain)(plan, times)

    def _plain(self, plan: RunPlan, times: Any) -> _Run:
        loop = repeat(plan.work, times, plan.feed_keys, plan.counting)
        feeds = [times, *plan.feed_keys]
        pooled = call = self._callable(loop, feeds)
        most = 0
        if self._tries_threads and not self._timeout_in_ms:
            work = plan.work if plan.counting is None else [*plan.work, plan.counting]
            most = most_steps_in_caller(self._sess, work, plan.feed_keys)
            own = partial(compile_for_caller, self._sess, self._options(loop, feeds))

        def settle(faster: Call) -> None:
            nonlocal call
            call = faster

        if most:
            call = ThreadTrial(pooled, own, settle, steps=_STEPS_OF_TRIAL)

        def run(steps: int, arrays: Sequence[Any]) -> None:
            (call if steps <= most else pooled)(np.array(steps, np.int32), *arrays)

        return run

    def _compiled(self, plan: RunPlan, times: Any) -> _Run:
        counting = [] if plan.counting is None else [plan.counting]
        loop = repeat_compiled([*plan.work, *counting], times, plan.feed_keys)
        call = self._callable(loop.op, [times, loop.gathered, *plan.feed_keys])

        def run(steps: int, arrays: Sequence[Any]) -> None:
            number = np.array(steps, np.int32)
            try:
                call(number, number, *arrays)
            except (tf.errors.OutOfRangeError, tf.errors.InvalidArgumentError):
                # What there was before the end of the data is used, and so are batches of several sizes, each alone.
                waiting = 0 if loop.waiting is None else self._sess.run(loop.waiting)
                for _ in range(waiting):
                    call(np.array(1, np.int32), np.array(0, np.int32), *arrays)
                if waiting != steps:
                    raise

        return run

    def _callable(self, target: Any, feeds: Sequence[Any]) -> Callable[..., Any]:
        if self._timeout_in_ms and self._sess.sess_str:  # The callables of a TensorFlow server know no timeout.
            return self._with_timeout(target, feeds)
        return make_callable(self._sess, self._options(target, feeds))

    def _options(self, target: Any, feeds: Sequence[Any]) -> Any:
        options = CallableOptions(feed=[feed.name for feed in feeds], target=[target.name])
        options.run_options.timeout_in_ms = self._timeout_in_ms
        return options

    def _with_timeout(self, target: Any, feeds: Sequence[Any]) -> Callable[..., Any]:
        options = tf.compat.v1.RunOptions(timeout_in_ms=self._timeout_in_ms)

        def call(*values: Any) -> None:
            with self._sess.graph.as_default():  # Tensors hash only within their graph's context.
                self._sess.run(target, dict(zip(feeds, values, strict=True)), options)

        return call


def _cut_short(request: Any) -> Any:
    """Return the results of a request in a run that the end of the data has cut short."""
    return None if all(isinstance(leaf, tf.Operation) for leaf in leaves(request)) else CUT_SHORT
