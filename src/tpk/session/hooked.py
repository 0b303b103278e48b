"""The step engine: one `Session.run` that serves the step and all of its hooks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import attrs
import tensorflow as tf

from tpk.errors import SessionError, StopTraining
from tpk.graph.steps import ReusableFeeds, structure_key
from tpk.plugin.progress import Progress
from tpk.session.caller_thread import Call
from tpk.session.many_steps import CUT_SHORT, ManySteps, Results
from tpk.session.plan import CountOp, RunPlan, failing_request, make_plan
from tpk.session.request import Feed, RunContext, is_constant, merge_requests, merge_run_options
from tpk.tf_internals import is_closed, word_error

if TYPE_CHECKING:
    from tpk.plugin.dispatch import StepHooks

RunOptions = tf.compat.v1.RunOptions
RunMetadata = tf.compat.v1.RunMetadata
SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunValues = tf.compat.v1.train.SessionRunValues

MAX_PLANS = 64
"""How many structures of requests are kept compiled, those used last: each may hold an executor of the whole graph."""

_NO_FEEDS = ReusableFeeds((), tuple)


class HookedSession:
    """Runs a session together with the hooks of a step.

    Each implementer of ``before_run`` may ask for fetches and give feeds; all of them are merged with those of the
    caller into **one** run, and each gets back its own results in ``after_run``, as under TensorFlow's
    `MonitoredSession`. What is an operation runs as a target: nothing is copied out of the runtime for it.

    Each result is the receiver's own, as with `Session.run`: whoever changes it changes no variable, no constant, no
    array that was fed, and no other result. That costs a copy of each array, and nothing for scalars. Where a step
    fetches so much that this counts, and only reads it, ``sess.make_callable(fetches)`` returns the runtime's own
    memory.

    Requests are compiled once for each structure. The `MAX_PLANS` structures used last are kept.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        hooks: the compiled step hooks.
        progress: the counters; a run claims the steps that have begun, and counts them when it has completed.
        count_op: returns the op that counts a run in the graph; see `tpk.session.plan.CountOp`.
        translate: asked, when a run fails, for the error that caused it; see `run`.
        many_steps: makes the runs of several steps; None if there are none.
        steps_of_further_runs: how many steps a run counts that claims none: further runs of a step, and runs outside
            of steps.
        tries_threads: whether short runs may be made in the thread that calls, where that is faster; see
            `tpk.session.caller_thread`.
    """

    def __init__(
        self,
        sess: Any,
        hooks: StepHooks,
        progress: Progress | None = None,
        *,
        count_op: CountOp = lambda ops, counts_step: None,
        translate: Callable[[Exception], BaseException | None] = lambda error: None,
        many_steps: ManySteps | None = None,
        steps_of_further_runs: int = 0,
        tries_threads: bool = True,
    ) -> None:
        self.sess = sess
        self._hooks = hooks
        self._progress = Progress() if progress is None else progress
        self._count_op = count_op
        self._translate = translate
        self._many_steps = many_steps
        self._tries_threads = tries_threads
        self._before_run = hooks.before_run
        self._after_run = hooks.after_run
        self._has_hooks = bool(hooks.before_run or hooks.after_run)
        self._steps_of_further_runs = steps_of_further_runs
        self._timeout_in_ms = 0
        self._stop_requested = False
        self._original_args = SessionRunArgs(None)
        # By identity, for requests that are the same objects each time; each entry keeps its requests alive, so
        # that their ids stay theirs. By structure, for all others.
        self._constant_runs: dict[tuple[Any, ...], _ConstantRun] = {}
        nobodys = RunPlan((), [], (), lasts=False)
        self._last_run = self._no_run = _ConstantRun(object(), hooks.before_run, 0, nobodys, _NO_FEEDS)
        self._nothing = SessionRunValues(None, RunOptions(), RunMetadata())
        self._plans: OrderedDict[Any, RunPlan] = OrderedDict()
        self._compiled: MutableMapping[bytes, Call] = WeakValueDictionary()

    @property
    def graph(self) -> Any:
        """The graph of the session."""
        return self.sess.graph

    @property
    def timeout_in_ms(self) -> int:
        """How many milliseconds a run may take, but for one that has a timeout of its own by its options; 0: for ever.

        It is compiled into the runs, so that it costs nothing; but on a TensorFlow server, runs with a timeout are made
        by the ordinary `Session.run`. A run that takes longer is cancelled, and raises
        `tf.errors.DeadlineExceededError`.
        """
        return self._timeout_in_ms

    @timeout_in_ms.setter
    def timeout_in_ms(self, timeout: int) -> None:
        self._timeout_in_ms = timeout
        if self._many_steps is not None:
            self._many_steps.timeout_in_ms = timeout
        self._last_run = self._no_run
        self._constant_runs.clear()
        self._plans.clear()

    def should_stop(self) -> bool:
        """Whether a hook has asked for the end by ``run_context.request_stop()``, or the session is closed."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Ask for the end of the training once the step under way is over; from any thread, or a signal handler."""
        self._stop_requested = True

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None, *, steps: int = 0
    ) -> Any:
        """Run `fetches` and whatever the hooks ask for, once.

        If the run makes several steps, then `fetches` and the operations that hooks ask for are
        run in each of them, one after the other. What comes back, to the caller and to the hooks, is from the last. If
        the data ends within the run, it is one of the steps that were done: hooks that asked for tensors are left out
        of ``after_run`` then, and the caller gets None.

        Args:
            fetches: as for `tf.compat.v1.Session.run`.
            feed_dict: as for `tf.compat.v1.Session.run`.
            options: `tf.compat.v1.RunOptions`; merged with those that hooks ask for.
            run_metadata: `tf.compat.v1.RunMetadata` that is filled in.
            steps: how many steps the run makes and counts; by default those that have begun (`Progress.begin`).

        Returns:
            What `Session.run(fetches, feed_dict)` would.

        Raises:
            SessionError: if the same tensor is fed twice.
            Exception: what a hook or the run raised. If the run failed because of what feeds it, then the error
                of the one that fed it.
        """
        steps = steps or self._progress.claim() or self._steps_of_further_runs
        try:
            if not self._has_hooks:
                (own,), steps, _, _ = self._run((fetches,), feed_dict, options, run_metadata, steps)
                self._progress.complete(steps)
                return None if own is CUT_SHORT else own

            context = RunContext(self._args_of(fetches, feed_dict, options), self.sess, steps or 1)
            # Most steps ask for the very same as the last one. What that takes is written out here, rather than in
            # methods: after a run the processor's caches are cold, and each further function then costs microseconds.
            last = self._last_run
            repeats = (
                fetches is last.fetches
                and steps == last.steps
                and feed_dict is None
                and options is None
                and run_metadata is None
            )
            requests = [fetches]
            try:
                for before_run, known in zip(self._before_run, last.asked_by_hooks, strict=True):
                    request = before_run(context)
                    if request is not known:
                        repeats = False
                    requests.append(request)
            except BaseException as error:
                self._hooks.note_failure(error, "before_run", before_run)
                raise
            if context.steps < steps:
                steps, repeats = context.steps, False
            if repeats:
                results = self._call_once(last.plan, last.feeds.take())
            else:
                results, steps, options, run_metadata = self._run(
                    tuple(requests), feed_dict, options, run_metadata, steps
                )
        except BaseException:
            if steps:  # For a further attempt at the step; a run that counts none leaves a step that has begun alone.
                self._progress.begin(steps)
            raise
        if steps:
            context.steps = steps
            self._progress.complete(steps)

        if self._after_run:
            nothing = self._nothing
            if options is not None or run_metadata is not None:
                options = RunOptions() if options is None else options
                run_metadata = RunMetadata() if run_metadata is None else run_metadata
                nothing = SessionRunValues(None, options, run_metadata)
            remaining = iter(self._after_run)
            in_run_step, self._progress.in_run_step = self._progress.in_run_step, False
            while True:
                try:
                    for after_run, position in remaining:
                        own = None if position is None else results[position + 1]
                        if own is CUT_SHORT:
                            continue
                        after_run(context, nothing if own is None else SessionRunValues(own, *nothing[1:]))
                    break
                except StopTraining as stop:
                    self._hooks.note_failure(stop, "after_run", after_run)
                    self._hooks.take_stop(stop)
                except BaseException as error:
                    self._hooks.note_failure(error, "after_run", after_run)
                    raise
            self._progress.in_run_step = in_run_step
        if context.stop_requested:
            self._stop_requested = True
        return None if results[0] is CUT_SHORT else results[0]

    def _args_of(self, fetches: Any, feed_dict: Any, options: Any) -> Any:
        """Return the original arguments; the same tuple for as long as the same is asked for, as in most steps."""
        if feed_dict is not None or options is not None:
            return SessionRunArgs(fetches, feed_dict, options)
        if self._original_args.fetches is not fetches:
            self._original_args = SessionRunArgs(fetches)
        return self._original_args

    def _run(
        self, requests: tuple[Any, ...], feed_dict: Any, options: Any, run_metadata: Any, steps: int
    ) -> tuple[list[Any], int, Any, Any]:
        """Run all requests at once; return the results of each, the steps made, the run's options and its metadata."""
        is_plain = feed_dict is None and options is None and run_metadata is None
        if is_plain:
            known = self._constant_runs.get((steps > 0, *map(id, requests)))
            if known is not None:
                self._last_run = known
                return *self._call(known.plan, known.feeds.take(), steps), None, None

        fetches, feeds, options = merge_requests(requests, feed_dict, options, self._owner)
        plan = self._find_plan(fetches, feeds, steps > 0)
        feeds = plan.take(feeds)
        if options is not None or run_metadata is not None:
            run_metadata = RunMetadata() if run_metadata is None else run_metadata
            return *self._run_session(plan, feeds, options, run_metadata, steps), options, run_metadata
        arrays = None if plan.options is None else plan.convert(feeds)
        if arrays is None:
            return *self._run_session(plan, feeds, None, None, steps), None, None
        if is_plain and is_constant(requests):
            self._remember(plan, requests, steps > 0)
        return *self._call(plan, arrays, steps), None, None

    def _call(self, plan: RunPlan, arrays: Sequence[Any], steps: int) -> Results:
        """Make the run by the compiled callable."""
        if steps > 1:
            return self._make_steps(plan, arrays, steps, lambda: self._call_once(plan, arrays))
        return self._call_once(plan, arrays), steps

    def _call_once(self, plan: RunPlan, arrays: Sequence[Any]) -> list[Any]:
        call = plan.call or plan.compile(
            self.sess, self._compiled, tries_threads=self._tries_threads and not self._timeout_in_ms
        )
        try:
            values = call(*arrays)
        except tf.errors.OpError as error:
            if is_closed(self.sess):
                return self._run_session_once(plan, (), None, None)  # It says that the session is closed.
            self._raise_cause(error)
            word_error(self.sess, error)
        return plan.results(values)

    def _make_steps(
        self, plan: RunPlan, arrays: Sequence[Any], steps: int, run_last: Callable[[], list[Any]]
    ) -> Results:
        """Make a run of several steps, of which `run_last` makes the one that something is fetched from."""
        if self._many_steps is None:
            raise SessionError(f"steps={steps}: this session makes one step in a run. Give it many_steps.")
        try:
            return self._many_steps.run(plan, steps, arrays, run_last)
        except tf.errors.OpError as error:
            self._raise_cause(error)
            word_error(self.sess, error)

    def _run_session(
        self, plan: RunPlan, feeds: Sequence[Feed], options: Any, run_metadata: Any, steps: int
    ) -> Results:
        """Make the run by `Session.run`, which takes everything and words errors about feeds."""
        if steps < 2:
            return self._run_session_once(plan, feeds, options, run_metadata), steps
        arrays = plan.convert(feeds) if len(plan.slots) == len(feeds) else None
        if arrays is None:
            owners = " and ".join(dict.fromkeys(self._owner(feed.request) for feed in feeds))
            raise SessionError(
                f"{owners} feeds what cannot be fed to several steps of one run. Feed arrays, or drop steps_per_run."
            )
        return self._make_steps(plan, arrays, steps, lambda: self._run_session_once(plan, feeds, options, run_metadata))

    def _run_session_once(self, plan: RunPlan, feeds: Sequence[Feed], options: Any, run_metadata: Any) -> list[Any]:
        with self.sess.graph.as_default():  # Tensors hash only within their graph's context.
            feed_dict = {feed.key: feed.value for feed in feeds}
        if self._timeout_in_ms and not (options and options.timeout_in_ms):
            options = merge_run_options([options, RunOptions(timeout_in_ms=self._timeout_in_ms)])
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
            self.sess.run(fetches[0])  # It says so.
        try:
            plan = make_plan(self.sess, fetches, feeds, self._count_op, counts_step)
        except (TypeError, ValueError) as error:
            self._note_request(error, failing_request(self.sess, fetches))
            raise
        if self._timeout_in_ms and plan.options is not None:
            plan.options.run_options.timeout_in_ms = self._timeout_in_ms
            if self.sess.sess_str:  # The callables of a TensorFlow server know no timeout.
                plan.options = None
        if not plan.lasts:
            return plan
        if len(self._plans) >= MAX_PLANS:
            _, oldest = self._plans.popitem(last=False)
            oldest.call = None  # It refers to its plan: the executor would stay until the next garbage collection.
        self._plans[key] = plan
        return plan

    def _remember(self, plan: RunPlan, requests: tuple[Any, ...], counts_step: bool) -> None:
        # A hook that makes a new request each time would fill the table with entries that never match again.
        if len(self._constant_runs) >= MAX_PLANS:
            self._constant_runs.clear()
        if len(plan.reusable_feeds) < 2:
            (feeds,) = plan.reusable_feeds or (_NO_FEEDS,)
            self._constant_runs[(counts_step, *map(id, requests))] = _ConstantRun(
                requests[0], requests[1:], int(counts_step), plan, feeds
            )

    def _owner(self, request: int) -> str:
        if request == 0:
            return "the step"
        names = self._hooks.names.get("before_run", ())
        return f"callback {names[request - 1]!r}" if names else f"hook {request}"

    def _note_request(self, error: Exception, request: int | None) -> None:
        if request:
            self._hooks.note_failure(error, "before_run", self._before_run[request - 1])

    def _raise_cause(self, error: Exception) -> None:
        cause = self._translate(error)
        if cause is not None:
            # A cause that data code chained itself stays.
            raise cause from (cause.__cause__ or error)


@attrs.frozen(eq=False)
class _ConstantRun:
    """A run whose requests are the same objects each time.

    Attributes:
        fetches: what its caller asks for.
        asked_by_hooks: what each hook asks for.
        steps: how many steps it counts: one, or none.
        plan: how it is made.
        feeds: what is fed to it.
    """

    fetches: Any
    asked_by_hooks: tuple[Any, ...]
    steps: int
    plan: RunPlan
    feeds: ReusableFeeds
