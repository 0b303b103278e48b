"""Many steps in one run of the session: ``steps_per_run=k``, which Keras calls ``steps_per_execution``.

Each call of TensorFlow has a cost, which is most of the time of a small model's step. With ``steps_per_run=k``, one
`Session.run` makes k steps, as a loop in the graph; see `tpk.graph.repeated_ops`. The results are the same, to the bit:
the order of the data, the draws of `tpk.graph.random`, schedules that read the global step in the graph.

- ``global_step`` and ``local_step`` count steps, so they increase by k at once, or by less at the end of an epoch.
  Checkpoints, ``trigger_step`` and a requested end come after a run.
- ``before_run`` is called once for each run. **Operations run in each of its steps**: updates of batch normalization,
  moving averages, the sums of epoch means. **Tensors are fetched from the last step.** Feeds are the same in all steps.
- An action every n steps, such as `PeriodicTrigger(every_k_steps=n)`, happens after the run that passes such a step.
  `PeriodicCallback(every_k_steps=n)`, which selects runs, needs an n that is a multiple of k.
- A hyperparameter that a callback sets after a step, as `ScheduledHyperParamSetter(step_based=True)` does, keeps its
  value for k steps. Where that matters, compute it from the global step in the graph.
- If the data ends within a run, the steps before that count.
- TensorFlow's own random ops draw one sequence in the loop, and another in the steps from which tensors are fetched.

With ``xla=True``, the loop over the k steps is compiled as one; see `tpk.graph.compiled_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.graph.compiled_loop import repeat_compiled
from tpk.graph.fetches import leaves
from tpk.graph.repeated_ops import as_of_originals, repeat
from tpk.graph.step_counter import StepCounter
from tpk.plugin.progress import Progress
from tpk.session.caller_thread import Call, compile_for_caller, faster_of, most_steps_in_caller
from tpk.session.plan import RunPlan, callable_options, compile_run
from tpk.tf_internals import is_closed, unfinalized

CUT_SHORT = object()
"""The result of a request for tensors of the last step, if the data ended before it."""

_Run = Callable[[int, Sequence[Any]], None]


class ManySteps:
    """Makes many steps of a training in one run of its session, by loops that are added to the graph when needed.

    Args:
        sess: the raw `tf.compat.v1.Session`. Loops are added to its graph even if that is finalized.
        progress: the counters.
        counter: counts the steps in the graph.
        xla: whether XLA compiles the loops; see `tpk.graph.compiled_loop`.
        tries_threads: as for `HookedSession`; False in trainings of several processes.
    """

    def __init__(
        self,
        sess: Any,
        progress: Progress,
        counter: StepCounter | None,
        *,
        xla: bool = False,
        tries_threads: bool = True,
    ) -> None:
        self._sess = sess
        self._progress = progress
        self._counter = counter
        self._xla = xla
        self._tries_threads = tries_threads
        self._runs: dict[tuple[Any, ...], _Run] = {}

    def run(
        self, plan: RunPlan, steps: int, arrays: Sequence[Any], run_last: Callable[[], list[Any]]
    ) -> tuple[list[Any], int]:
        """Make steps: all of them in a loop, or the last one by `run_last` if something is fetched from it.

        Steps that were made before a failure are counted.

        Args:
            plan: the run of one step.
            steps: the number of steps.
            arrays: the feeds, the same in each step.
            run_last: runs one step, and returns the results of each request.

        Returns:
            The results of each request, and the number of steps made, which is smaller if the data ended.

        Raises:
            ConfigError: if XLA cannot compile a step.
            tf.errors.OpError: if a step fails; it names the ops of the step instead of their copies in the loop.
        """
        try:
            # Of several processes, the chief may fetch something. A step in a loop cannot exchange gradients with one
            # outside of it, so all processes make the last step outside.
            is_all_in_loop = plan.is_work and self._tries_threads
            self._loop(plan, steps if is_all_in_loop else steps - 1, arrays)
            return plan.no_results if is_all_in_loop else run_last(), steps
        except Exception as error:
            if is_closed(self._sess):
                raise
            done = 0 if self._counter is None else self._counter.completed(self._sess) - self._progress.global_step
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
            graph = self._sess.graph
            with unfinalized(graph), graph.as_default(), tf.name_scope(""), tf.control_dependencies(None):
                times = tf.compat.v1.placeholder(tf.int32, [], name="steps_of_run")
                run = self._runs[key] = (self._compiled if self._xla else self._plain)(plan, times)
        run(steps, arrays)

    def _plain(self, plan: RunPlan, times: Any) -> _Run:
        loop = repeat(plan.work, times, plan.feed_keys, plan.counting)
        options = callable_options([times, *plan.feed_keys], [], [loop], plan.timeout_in_ms)
        pooled = call = compile_run(self._sess, options)
        most = 0
        if self._tries_threads and not plan.timeout_in_ms:
            work = plan.work if plan.counting is None else [*plan.work, plan.counting]
            most = most_steps_in_caller(self._sess, work, plan.feed_keys)

        def settle(faster: Call) -> None:
            nonlocal call
            call = faster

        if most:
            call = faster_of(pooled, partial(compile_for_caller, self._sess, options), settle)

        def run(steps: int, arrays: Sequence[Any]) -> None:
            (call if steps <= most else pooled)(np.array(steps, np.int32), *arrays)

        return run

    def _compiled(self, plan: RunPlan, times: Any) -> _Run:
        counting = [] if plan.counting is None else [plan.counting]
        loop = repeat_compiled([*plan.work, *counting], times, plan.feed_keys)
        feeds = [times, loop.gathered, *plan.feed_keys]
        call = compile_run(self._sess, callable_options(feeds, [], [loop.op], plan.timeout_in_ms))

        def run(steps: int, arrays: Sequence[Any]) -> None:
            number = np.array(steps, np.int32)
            try:
                call(number, number, *arrays)
            except (tf.errors.OutOfRangeError, tf.errors.InvalidArgumentError):
                # Use the data that came before its end, or, if batches differ in size, each batch alone.
                waiting = 0 if loop.waiting is None else self._sess.run(loop.waiting)
                for _ in range(waiting):
                    call(np.array(1, np.int32), np.array(0, np.int32), *arrays)
                if waiting != steps:
                    raise

        return run


def _cut_short(request: Any) -> Any:
    """Return the results of a request in a run in which the data ended."""
    return None if all(isinstance(leaf, tf.Operation) for leaf in leaves(request)) else CUT_SHORT
