"""Session hooks of TensorFlow as callbacks, and callbacks as session hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from tpk.errors import HookError, StopTraining
from tpk.graph.steps import get_global_step_var
from tpk.plugin import Callback, hookimpl
from tpk.tf_internals import lacks_saver

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class HookToCallback(Callback):
    """Runs one of TensorFlow's session hooks, unchanged, as a `tf.compat.v1.train.MonitoredSession` would.

    ==================================  =========================================================
    the hook's                          runs
    ==================================  =========================================================
    ``begin()``                         in ``setup_graph``, after the other callbacks have added to the graph
    ``after_create_session(s, coord)``  in ``before_train``
    ``before_run``, ``after_run``       around each run of the trainer's `hooked_sess`
    ``end(session)``                    in ``after_train``, if the training ended in good order
    ==================================  =========================================================

    The training ends when the hook calls ``run_context.request_stop()``, when it or a thread of it asks the
    coordinator to stop, and, with that exception, when a thread reports an exception to the coordinator. As
    under a `MonitoredSession`, ``end`` is called after a training that was stopped in one of these ways, by
    its last epoch, by `StopTraining`, or by the end of the input; after another exception it is not. What has
    no counterpart is a session that is created anew after a preemption, and a `Scaffold`: give the hook its
    saver or its summary op.

    Args:
        hook: a `tf.compat.v1.train.SessionRunHook`.
        stop_grace_period_secs: how long, at the end, to wait for the threads that were registered with the
            coordinator; of several hooks, the longest counts.

    Raises:
        HookError: if `hook` is no session hook.

    Example:
        ```python
        callbacks=[HookToCallback(tf.compat.v1.train.NanTensorHook(cost))]
        ```
    """

    chief_only = False

    def __init__(self, hook: Any, stop_grace_period_secs: float = 120) -> None:
        if not isinstance(hook, SessionRunHook):
            raise HookError(f"HookToCallback takes an instance of tf.compat.v1.train.SessionRunHook, but got {hook!r}.")
        self.hook = hook
        self._stop_grace_period_secs = stop_grace_period_secs
        self._coordination: _Coordination

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Let the hook begin."""
        self._coordination = _coordination_of(trainer)
        self._coordination.join(self._stop_grace_period_secs)
        get_global_step_var()  # Most hooks look for it when they begin.
        with tf.name_scope(""):
            self.hook.begin()
            if _needs_saver(self.hook):
                saver = tf.compat.v1.train.Saver(sharded=True, allow_empty=True)
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, saver)

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Tell the hook about the session."""
        self.hook.after_create_session(trainer.sess, self._coordination.coordinator)

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """End the training if that was asked of the coordinator."""
        if self._coordination.coordinator.should_stop():
            self._coordination.raise_stop()

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Let the hook end; the last hook that ends waits for the threads of all."""
        try:
            if trainer.loop.failure is None or trainer.loop.failure is self._coordination.error_of_thread:
                self.hook.end(trainer.sess)
        finally:
            self._coordination.leave(trainer.loop.failure)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that the session hook implements, so that the others cost nothing in the step."""
        implementations = super().hook_implementations()
        if _overrides(self.hook, "before_run"):
            implementations["before_run"] = _with_argument_names_of_spec(self.hook.before_run, "run_context")
        if _overrides(self.hook, "after_run"):
            implementations["after_run"] = _with_argument_names_of_spec(
                self.hook.after_run, "run_context", "run_values"
            )
        if not _overrides(self.hook, "after_create_session"):
            # Nobody but us has the coordinator, so nobody can ask it to stop.
            del implementations["trigger_step"]
        return implementations

    def __repr__(self) -> str:
        return f"HookToCallback({self.hook!r})"


class _Coordination:
    """The coordinator that all session hooks of a training share, as they do under a `MonitoredSession`."""

    def __init__(self) -> None:
        self.coordinator = tf.train.Coordinator(clean_stop_exception_types=[])
        self.error_of_thread: BaseException | None = None
        self._hooks = 0
        self._stop_grace_period_secs = 0.0

    def join(self, stop_grace_period_secs: float) -> None:
        """Take part in it."""
        self._hooks += 1
        self._stop_grace_period_secs = max(stop_grace_period_secs, self._stop_grace_period_secs)

    def raise_stop(self) -> None:
        """Raise what a thread has reported, or else `StopTraining`."""
        try:
            self.coordinator.raise_requested_exception()
        except BaseException as error:
            self.error_of_thread = error
            raise
        raise StopTraining("the coordinator of the session hooks was asked to stop")

    def leave(self, failure: BaseException | None) -> None:
        """Take part no more; when nobody does, stop the threads, and raise what they report besides `failure`."""
        self._hooks -= 1
        if self._hooks:
            return
        self.coordinator.request_stop()
        try:
            self.coordinator.join(stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True)
        except BaseException as error:
            if error is not failure:
                raise


_coordinations: WeakKeyDictionary[TrainerProtocol, _Coordination] = WeakKeyDictionary()


def _coordination_of(trainer: TrainerProtocol) -> _Coordination:
    return _coordinations.setdefault(trainer, _Coordination())


class CallbackToHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Runs the ``before_run`` and ``after_run`` of a callback under a `tf.compat.v1.train.MonitoredSession`.

    No other hook of the callback runs: there is no trainer, no epoch, and nothing to save state. So it is of
    use for callbacks that have all they need from the start, or have ``setup_graph`` and such called by
    whoever uses them.

    Args:
        callback: the callback.

    Raises:
        HookError: if `callback` is not an instance of `Callback`, or implements neither of the two.

    Example:
        ```python
        with tf.compat.v1.train.MonitoredSession(hooks=[CallbackToHook(my_callback)]) as sess:
            sess.run(train_op)
        ```
    """

    def __init__(self, callback: Callback) -> None:
        if not isinstance(callback, Callback):
            raise HookError(f"CallbackToHook takes an instance of tpk.Callback, but got {callback!r}.")
        hooks = callback.hook_implementations()
        if "before_run" not in hooks and "after_run" not in hooks:
            raise HookError(
                f"CallbackToHook runs the before_run and after_run of a callback, but {callback!r} "
                f"implements neither (it implements {', '.join(hooks) or 'no hook'})."
            )
        self.callback = callback
        self._before_run = _by_name(hooks["before_run"]) if "before_run" in hooks else None
        self._after_run = _by_name(hooks["after_run"]) if "after_run" in hooks else None

    def before_run(self, run_context: Any) -> Any:
        """Return what the callback wants to run along, as `tf.compat.v1.train.SessionRunArgs` or None."""
        request = self._before_run(run_context=run_context) if self._before_run else None
        if request is None or isinstance(request, SessionRunArgs):
            return request
        return SessionRunArgs(request)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Give the callback its results."""
        if self._after_run:
            self._after_run(run_context=run_context, run_values=run_values)


def _overrides(hook: Any, name: str) -> bool:
    return name in vars(hook) or getattr(type(hook), name) is not getattr(SessionRunHook, name)


def _needs_saver(hook: Any) -> bool:
    """Whether the hook counts on the saver that a `MonitoredSession` puts in the collection of savers."""
    return (
        isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)
        and lacks_saver(hook)
        and not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
    )


def _with_argument_names_of_spec(method: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Return `method`, which may call its arguments as it likes, as something that calls them `names`."""
    if inspect.ismethod(method) and tuple(inspect.signature(method).parameters) == names:
        return method
    if len(names) == 1:
        return lambda run_context: method(run_context)
    return lambda run_context, run_values: method(run_context, run_values)


def _by_name(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes all arguments of a hook by name, and hands on those that are wanted."""
    wanted = tuple(inspect.signature(implementation).parameters)
    return lambda **arguments: implementation(*(arguments[name] for name in wanted))
