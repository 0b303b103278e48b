"""The step engine: one `Session.run` that serves the step and all of its hooks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import attrs
import tensorflow as tf

from tpk.errors import SessionError, StopTraining
from tpk.graph.fetches import ReusableFeeds, structure_key
from tpk.graph.step_counter import StepCounter
from tpk.plugin.progress import Progress
from tpk.session.caller_thread import Call
from tpk.session.many_steps import CUT_SHORT, ManySteps
from tpk.session.plan import RunPlan, failing_request, make_plan
from tpk.session.requests import Feed, RunContext, SessionRunArgs, is_constant, merge_requests
from tpk.tf_internals import is_closed, word_error

if TYPE_CHECKING:
    from tpk.plugin.step import StepHooks

RunOptions = tf.compat.v1.RunOptions
RunMetadata = tf.compat.v1.RunMetadata
SessionRunValues = tf.compat.v1.train.SessionRunValues

MAX_PLANS = 64
"""The number of structures of requests that stay compiled, those used last: each may hold an executor of the graph."""

_NO_FEEDS = ReusableFeeds((), tuple)


class HookedSession:
    """Runs a session together with the hooks of a step.

    Each implementation of ``before_run`` may return fetches and feeds. All of them are merged with the caller's into
    **one** run, and each plugin gets its own results in ``after_run``, as with TensorFlow's `MonitoredSession`.
    Operations run as targets, so nothing is copied out of the runtime for them.

    Results belong to the receiver, as with `Session.run`: changing one changes no variable, no constant, no fed array,
    and no other result. This costs a copy of each array, and nothing for scalars. Where a step fetches large arrays and
    only reads them, ``sess.make_callable(fetches)`` returns the runtime's own memory.

    Requests are compiled once for each structure. The `MAX_PLANS` structures used last are kept.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        hooks: the compiled step hooks.
        progress: the counters. A run claims the steps that are offered, and counts them when it has completed.
        counter: counts the steps in the graph; None to count them in `progress` only.
        timeout_in_ms: how long a run may take before it is cancelled with `tf.errors.DeadlineExceededError`; 0 for no
            limit. A run's own timeout has priority. The timeout is compiled into the runs, so it costs nothing, except
            on a TensorFlow server, where runs with a timeout are made by `Session.run`.
        xla: whether XLA compiles runs of several steps; see `ManySteps`.
        tries_threads: whether a short run may be made in the calling thread where that is faster; see
            `tpk.session.caller_thread`.

    Attributes:
        hooks: the compiled step hooks.
        is_in_after_run: whether an ``after_run`` of a hook is running.
    """

    def __init__(
        self,
        sess: Any,
        hooks: StepHooks,
        progress: Progress | None = None,
        counter: StepCounter | None = None,
        *,
        timeout_in_ms: int = 0,
        xla: bool = False,
        tries_threads: bool = True,
    ) -> None:
        self.sess = sess
        self.is_in_after_run = False
        self.hooks = hooks
        self._progress = Progress() if progress is None else progress
        self._counter = counter
        self._many_steps = ManySteps(sess, self._progress, counter, xla=xla, tries_threads=tries_threads)
        self._tries_threads = tries_threads
        self._timeout_in_ms = timeout_in_ms
        self._before_run = hooks.before_run
        self._after_run = hooks.after_run
        self._has_hooks = bool(hooks.before_run or hooks.after_run)
        self._nothing = SessionRunValues(None, RunOptions(), RunMetadata())
        # By the id of what the caller fetches: the run that it took last, where all requests were constant.
        self._repeats: dict[int, _Repeat] = {}
        no_plan = RunPlan((), [], (), lasts=False)
        self._no_repeat = _Repeat(SessionRunArgs(object()), hooks.before_run, 0, no_plan, _NO_FEEDS)
        self._plans: OrderedDict[Any, RunPlan] = OrderedDict()
        self._compiled: MutableMapping[bytes, Call] = WeakValueDictionary()

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run `fetches` and the requests of the hooks, once.

        If the loop offers several steps (`Progress.offer`), the run makes all of them: `fetches` and the operations of
        hooks run in each of them, one after the other. The caller and the hooks get the results of the last step. If
        the data ends within the run, the steps before that count, ``after_run`` of hooks that fetch tensors is not
        called, and the result is None.

        Args:
            fetches: as for `tf.compat.v1.Session.run`.
            feed_dict: as for `tf.compat.v1.Session.run`.
            options: `tf.compat.v1.RunOptions`; merged with those that hooks ask for.
            run_metadata: `tf.compat.v1.RunMetadata` that is filled in.

        Returns:
            What `Session.run(fetches, feed_dict)` would.

        Raises:
            SessionError: if the same tensor is fed twice.
            Exception: the error of a hook or of the run. If the run failed because its input failed, the error of the
                input.
        """
        steps = self._progress.claim()
        # Most steps ask for exactly what the last one asked for. This case is written out here instead of in methods:
        # after a run the processor's caches are cold, and each further function costs microseconds.
        last = self._repeats.get(id(fetches), self._no_repeat)
        repeats = (
            fetches is last.args.fetches
            and steps == last.steps
            and feed_dict is None
            and options is None
            and run_metadata is None
        )
        requests = [fetches]
        context = None
        try:
            if self._has_hooks:
                args = last.args if repeats else SessionRunArgs(fetches, feed_dict, options)
                context = RunContext(args, self.sess, steps or 1)
                try:
                    for before_run, known in zip(self._before_run, last.asked_by_hooks, strict=True):
                        request = before_run(context)
                        if request is not known:
                            repeats = False
                        requests.append(request)
                except BaseException as error:
                    self.hooks.note_failure(error, "before_run", before_run)
                    raise
                if context.steps < steps:
                    steps, repeats = context.steps, False
            if not repeats:
                results, steps, options, run_metadata = self._run(
                    tuple(requests), feed_dict, options, run_metadata, steps
                )
            elif steps < 2:
                results = self._call(last.plan, last.feeds.take())
            else:
                arrays = last.feeds.take()
                results, steps = self._make_steps(last.plan, arrays, steps, partial(self._call, last.plan, arrays))
        except BaseException:
            if steps:  # Another attempt can claim them. A run that counts no step must not touch one that is offered.
                self._progress.offer(steps)
            raise
        if steps:
            self._progress.complete(steps)
        if context is None:
            return None if results[0] is CUT_SHORT else results[0]

        if steps:
            context.steps = steps
        if self._after_run:
            nothing = self._nothing
            if options is not None or run_metadata is not None:
                options = RunOptions() if options is None else options
                run_metadata = RunMetadata() if run_metadata is None else run_metadata
                nothing = SessionRunValues(None, options, run_metadata)
            is_nested, self.is_in_after_run = self.is_in_after_run, True
            try:
                for after_run, position in self._after_run:
                    result = None if position is None else results[position + 1]
                    if result is CUT_SHORT:
                        continue
                    try:
                        after_run(context, nothing if result is None else SessionRunValues(result, *nothing[1:]))
                    except StopTraining as stop:
                        self.hooks.note_failure(stop, "after_run", after_run)
                        self.hooks.take_stop(stop)
            except BaseException as error:
                self.hooks.note_failure(error, "after_run", after_run)
                raise
            finally:
                self.is_in_after_run = is_nested
        if context.stop_requested:
            self.hooks.take_stop(StopTraining("a hook asked for the end of the training"))
        return None if results[0] is CUT_SHORT else results[0]

    def _run(
        self, requests: tuple[Any, ...], feed_dict: Any, options: Any, run_metadata: Any, steps: int
    ) -> tuple[list[Any], int, Any, Any]:
        """Run all requests at once; return the results of each, the steps made, the run's options and its metadata."""
        can_repeat = feed_dict is None and is_constant(requests)
        fetches, feeds, options = merge_requests(requests, feed_dict, options, self._owner)
        plan = self._find_plan(fetches, feeds, steps > 0)
        feeds = plan.take(feeds)
        arrays = plan.convert(feeds) if len(plan.slots) == len(feeds) else None
        if options is not None or run_metadata is not None:
            run_metadata = RunMetadata() if run_metadata is None else run_metadata
        run_once: Callable[[], list[Any]]
        if plan.options is None or arrays is None or run_metadata is not None:
            # `Session.run` takes everything, and words errors about feeds.
            run_once = partial(self._run_session, plan, feeds, options, run_metadata)
        else:
            run_once = partial(self._call, plan, arrays)
            if can_repeat:
                self._remember(plan, requests, steps)
        if steps < 2:
            return run_once(), steps, options, run_metadata
        if arrays is None:
            owners = " and ".join(dict.fromkeys(self._owner(feed.request) for feed in feeds))
            raise SessionError(
                f"{owners} feeds a value that cannot be fed to several steps of one run. Feed arrays, or drop "
                "steps_per_run."
            )
        return *self._make_steps(plan, arrays, steps, run_once), options, run_metadata

    def _make_steps(
        self, plan: RunPlan, arrays: Sequence[Any], steps: int, run_last: Callable[[], list[Any]]
    ) -> tuple[list[Any], int]:
        """Make a run of several steps; `run_last` makes the one that something is fetched from."""
        try:
            return self._many_steps.run(plan, steps, arrays, run_last)
        except tf.errors.OpError as error:
            self._raise_cause(error)
            word_error(self.sess, error)

    def _call(self, plan: RunPlan, arrays: Sequence[Any]) -> list[Any]:
        """Make a run of one step by the compiled callable."""
        try:
            call = plan.call or plan.compile(self.sess, self._compiled, tries_threads=self._tries_threads)
            values = call(*arrays)
        except tf.errors.OpError as error:
            if is_closed(self.sess):
                return self._run_session(plan, (), None, None)  # Its error says that the session is closed.
            self._raise_cause(error)
            word_error(self.sess, error)
        return plan.results(values)

    def _run_session(self, plan: RunPlan, feeds: Sequence[Feed], options: Any, run_metadata: Any) -> list[Any]:
        """Make a run of one step by `Session.run`."""
        with self.sess.graph.as_default():  # Tensors hash only within their graph's context.
            feed_dict = {feed.key: feed.value for feed in feeds}
        if self._timeout_in_ms:
            timed = RunOptions(timeout_in_ms=self._timeout_in_ms)
            timed.MergeFrom(options or RunOptions())
            options = timed
        try:
            merged = self.sess.run(plan.fetches, feed_dict, options, run_metadata)
        except tf.errors.OpError as error:
            self._raise_cause(error)
            raise
        return plan.results_of_session(merged)

    def _find_plan(self, fetches: Sequence[Any], feeds: Sequence[Feed], counts_step: bool) -> RunPlan:
        key = (*map(structure_key, fetches), *(id(feed.key) for feed in feeds), counts_step)
        plan = self._plans.get(key)
        if plan is not None:
            self._plans.move_to_end(key)
            return plan
        if is_closed(self.sess):
            self.sess.run(fetches[0])  # Raises an error that says so.
        try:
            plan = make_plan(self.sess, fetches, feeds, self._counter, counts_step, self._timeout_in_ms)
        except (TypeError, ValueError) as error:
            request = failing_request(self.sess, fetches)
            if request:
                self.hooks.note_failure(error, "before_run", self._before_run[request - 1])
            raise
        if not plan.lasts:
            return plan
        if len(self._plans) >= MAX_PLANS:
            # The call refers to its plan: the executor would stay until the next garbage collection.
            self._plans.popitem(last=False)[1].call = None
        self._plans[key] = plan
        return plan

    def _remember(self, plan: RunPlan, requests: tuple[Any, ...], steps: int) -> None:
        if len(self._repeats) >= MAX_PLANS:
            self._repeats.clear()
        if len(plan.reusable_feeds) < 2:
            (feeds,) = plan.reusable_feeds or (_NO_FEEDS,)
            self._repeats[id(requests[0])] = _Repeat(SessionRunArgs(requests[0]), requests[1:], steps, plan, feeds)

    def _owner(self, request: int) -> str:
        if request == 0:
            return "the step"
        names = self.hooks.names.get("before_run", ())
        return f"callback {names[request - 1]!r}" if names else f"hook {request}"

    def _raise_cause(self, error: Exception) -> None:
        cause = self.hooks.translate_error(error)
        if cause is not None:
            # A cause that the data code chained itself stays.
            raise cause from (cause.__cause__ or error)


@attrs.frozen(eq=False)
class _Repeat:
    """A run whose requests are the same objects each time.

    Attributes:
        args: the caller's request; kept alive, so that the id of its fetches stays theirs.
        asked_by_hooks: the request of each hook.
        steps: the number of steps it counts.
        plan: how it is made.
        feeds: its feeds.
    """

    args: Any
    asked_by_hooks: tuple[Any, ...]
    steps: int
    plan: RunPlan
    feeds: ReusableFeeds
