"""The step engine: one `Session.run` that serves the step and all of its hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.graph.standing_feeds import StandingFeeds
from tpk.session.plan import Feed, RunPlan, is_constant, make_plan, merge_feeds, structure_key
from tpk.session.run_options import merge_run_options

if TYPE_CHECKING:
    from tpk.plugin.dispatch import StepHooks
    from tpk.session.progress import Progress

SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunContext = tf.compat.v1.train.SessionRunContext
SessionRunValues = tf.compat.v1.train.SessionRunValues

_MAX_CONSTANT_PLANS = 256
_NO_FEEDS = StandingFeeds(())
_NO_PLAN = (None, _NO_FEEDS, None)
_NOTHING = SessionRunValues(None, None, None)

_Outcome = tuple[list[Any], Any, Any]


class HookedSession:
    """Runs a session together with the hooks of a step.

    Each implementer of ``before_run`` may ask for fetches and give feeds; all of them are merged with those of the
    caller into **one** run, and each gets back its own results in ``after_run``, as under TensorFlow's
    `MonitoredSession`. What is an operation runs as a target: nothing is copied out of the runtime for it.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        hooks: the compiled step hooks.
        progress: its `global_step` is incremented each time that a run has completed.
        count_op: given the caller's fetches, returns the op that counts the step in the graph, or None.
        translators: asked, when a run fails, for the error that caused it; see `run`.
    """

    def __init__(
        self,
        sess: Any,
        hooks: StepHooks,
        progress: Progress,
        *,
        count_op: Callable[[Any], Any] = lambda fetches: None,
        translators: Sequence[Callable[[Exception], Exception | None]] = (),
    ) -> None:
        self.sess = sess
        self._hooks = hooks
        self._progress = progress
        self._count_op = count_op
        self._translators = tuple(translators)
        self._before_run = hooks.before_run
        self._after_run = hooks.after_run
        self._has_hooks = bool(hooks.before_run or hooks.after_run)
        self._stop_requested = False
        self._context = SessionRunContext(SessionRunArgs(None), sess)
        # By identity, for requests that are the same objects each time; each entry keeps its requests alive, so
        # that their ids stay theirs. By structure, for all others.
        self._constant_plans: dict[tuple[int, ...], tuple[RunPlan, StandingFeeds, tuple[Any, ...]]] = {}
        self._plans: dict[Any, RunPlan] = {}

    @property
    def graph(self) -> Any:
        """The graph of the session."""
        return self.sess.graph

    def should_stop(self) -> bool:
        """Whether a hook has asked for the end by ``run_context.request_stop()``."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Ask for the end of the training once the step under way is over; from any thread, or a signal handler."""
        self._stop_requested = True

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run `fetches` and whatever the hooks ask for, once.

        Args:
            fetches: as for `tf.compat.v1.Session.run`.
            feed_dict: as for `tf.compat.v1.Session.run`.
            options: `tf.compat.v1.RunOptions`; merged with those that hooks ask for.
            run_metadata: `tf.compat.v1.RunMetadata` that is filled in.

        Returns:
            What `Session.run(fetches, feed_dict)` would.

        Raises:
            SessionError: if the same tensor is fed twice.
            Exception: what a hook or the run raised. If the run failed because of what feeds it, then the error
                of the one that fed it.
        """
        if not self._has_hooks:
            (own,), _, _ = self._run((fetches,), feed_dict, options, run_metadata)
            self._progress.global_step += 1
            return own

        context = self._context_of(fetches, feed_dict, options)
        requests = [fetches]
        try:
            for before_run in self._before_run:
                requests.append(before_run(context))
        except BaseException as error:
            self._hooks.note_failure(error, "before_run", before_run)
            raise
        results, options, run_metadata = self._run(tuple(requests), feed_dict, options, run_metadata)
        self._progress.global_step += 1

        if self._after_run:
            try:
                for after_run, position in self._after_run:
                    own = None if position is None else results[position + 1]
                    has_news = own is not None or run_metadata is not None
                    after_run(context, SessionRunValues(own, options, run_metadata) if has_news else _NOTHING)
            except BaseException as error:
                self._hooks.note_failure(error, "after_run", after_run)
                raise
        if context.stop_requested:
            self._stop_requested = True
        return results[0]

    def _context_of(self, fetches: Any, feed_dict: Any, options: Any) -> Any:
        """Return the run context; the same one for as long as the same is asked for, which is in nearly every step."""
        if feed_dict is not None or options is not None:
            return SessionRunContext(SessionRunArgs(fetches, feed_dict, options), self.sess)
        if self._context.original_args.fetches is not fetches:
            self._context = SessionRunContext(SessionRunArgs(fetches), self.sess)
        return self._context

    def _run(self, requests: tuple[Any, ...], feed_dict: Any, options: Any, run_metadata: Any) -> _Outcome:
        """Run all requests at once; return the results of each, and the options and metadata of the run."""
        if feed_dict is None and options is None and run_metadata is None:
            plan, standing, _ = self._constant_plans.get(tuple(map(id, requests)), _NO_PLAN)
            if plan is not None:
                return self._call(plan, standing.arrays), None, None

        fetches, feeds, options = _merge(requests, feed_dict, options)
        plan = self._find_plan(fetches, feeds)
        if options is not None or run_metadata is not None:
            run_metadata = tf.compat.v1.RunMetadata() if run_metadata is None else run_metadata
            return self._run_session(plan, feeds, options, run_metadata), options, run_metadata
        if plan.call is not None and is_constant(requests):
            self._remember(plan, requests)
        arrays = plan.convert(feeds) if plan.call is not None else None
        if arrays is None:
            return self._run_session(plan, feeds, None, None), None, None
        return self._call(plan, arrays), None, None

    def _call(self, plan: RunPlan, arrays: Sequence[Any]) -> list[Any]:
        """Make the run by the compiled callable."""
        assert plan.call is not None
        try:
            values = plan.call(*arrays)
        except tf.errors.OpError as error:
            if self.sess._closed:
                return self._run_session(plan, (), None, None)  # It says that the session is closed.
            self._raise_cause(error)
            # TensorFlow words the error with the place in the user's code that created the failing op.
            self.sess._do_call(_raise, error)
        if plan.build is None:
            return plan.no_results
        return plan.distribute(plan.build(values))

    def _run_session(self, plan: RunPlan, feeds: Sequence[Feed], options: Any, run_metadata: Any) -> list[Any]:
        """Make the run by `Session.run`, which takes everything and words errors about feeds."""
        with self.sess.graph.as_default():  # Tensors hash only within their graph's context.
            feed_dict = dict(feeds)
        try:
            return plan.distribute(self.sess.run(plan.fetches, feed_dict, options, run_metadata))
        except tf.errors.OpError as error:
            self._raise_cause(error)
            raise

    def _find_plan(self, fetches: Sequence[Any], feeds: Sequence[Feed]) -> RunPlan:
        key = (*map(structure_key, fetches), None, *(id(tensor) for tensor, _ in feeds))
        plan = self._plans.get(key)
        if plan is None:
            count_op = self._count_op(fetches[0])
            targets = [] if count_op is None else [count_op]
            plan = make_plan(self.sess, fetches, targets, [tensor for tensor, _ in feeds])
            self._plans[key] = plan
        return plan

    def _remember(self, plan: RunPlan, requests: tuple[Any, ...]) -> None:
        # A hook that makes a new request each time would fill the table with entries that never match again.
        if len(self._constant_plans) >= _MAX_CONSTANT_PLANS:
            self._constant_plans.clear()
        feeds = [request.feed_dict for request in requests if isinstance(request, SessionRunArgs) and request.feed_dict]
        if len(feeds) < 2:
            self._constant_plans[tuple(map(id, requests))] = (plan, feeds[0] if feeds else _NO_FEEDS, requests)

    def _raise_cause(self, error: Exception) -> None:
        for translate in self._translators:
            cause = translate(error)
            if cause is not None:
                # A cause that data code chained itself stays.
                raise cause from (cause.__cause__ or error)


def _merge(requests: Sequence[Any], feed_dict: Any, options: Any) -> tuple[list[Any], Sequence[Feed], Any]:
    """Take the requests apart into what each fetches, all feeds, and the merged run options."""
    fetches, feed_dicts, all_options = [requests[0]], [feed_dict], [options]
    for request in requests[1:]:
        if isinstance(request, SessionRunArgs):
            fetches.append(request.fetches)
            feed_dicts.append(request.feed_dict)
            all_options.append(request.options)
        else:
            fetches.append(request)
    return fetches, merge_feeds(feed_dicts), merge_run_options(all_options)


def _raise(error: Exception) -> None:
    raise error
