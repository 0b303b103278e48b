"""Session hooks of TensorFlow as callbacks, and callbacks as session hooks."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

import tpk
from tpk.errors import HookError, Preempted, StopTraining
from tpk.graph.step_counter import get_global_step_var
from tpk.plugin import Callback, hookimpl
from tpk.plugin.callback import HOOK_ARGUMENTS
from tpk.plugin.hookspecs import taking_all
from tpk.tf_internals import lacks_saver

SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunArgs = tf.compat.v1.train.SessionRunArgs

_coordinators: WeakKeyDictionary[tpk.Trainer, tf.train.Coordinator] = WeakKeyDictionary()

_SECONDS_TO_END = 120


class HookToCallback(Callback):
    """Runs one of TensorFlow's session hooks, unchanged, as a `tf.compat.v1.train.MonitoredSession` would.

    ==================================  =========================================================
    the hook's                          runs
    ==================================  =========================================================
    ``begin()``                         in ``setup_graph``, after the other callbacks have added to the graph
    ``after_create_session(s, coord)``  in ``before_train``
    ``before_run``, ``after_run``       around each run of the trainer's `hooked_sess`
    ``end(session)``                    in ``after_train``, if the training ended cleanly
    ==================================  =========================================================

    The training ends when the hook calls ``run_context.request_stop()``, or when the hook or one of its threads asks
    the coordinator to stop. If a thread reports an exception to the coordinator, the training ends with this exception.
    As in a `MonitoredSession`, ``end`` is called in these cases, and after the last epoch, `StopTraining`, or the end
    of the input, but not after another exception. It is also called after a preemption, such as SIGTERM. All session
    hooks of a training share one coordinator. A session that is created again after a preemption, and a `Scaffold`, are
    not supported: pass the saver or summary op to the hook.

    Args:
        hook: a `tf.compat.v1.train.SessionRunHook`.

    Raises:
        HookError: if `hook` is not a session hook.

    Example:
        ```python
        callbacks=[HookToCallback(tf.compat.v1.train.NanTensorHook(cost))]
        ```
    """

    chief_only = False

    def __init__(self, hook: Any) -> None:
        if not isinstance(hook, SessionRunHook):
            raise HookError(f"HookToCallback takes an instance of tf.compat.v1.train.SessionRunHook, but got {hook!r}.")
        self.hook = hook
        self.unused_hooks = {name for name in ("before_run", "after_run") if not _overrides(hook, name)}
        if not _overrides(hook, "after_create_session"):  # Without a coordinator, the hook cannot ask it to stop.
            self.unused_hooks.add("trigger_step")

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Call ``begin`` of the hook."""
        get_global_step_var()  # Most hooks look for it when they begin.
        with tf.name_scope(""):
            self.hook.begin()
            if _needs_saver(self.hook):
                saver = tf.compat.v1.train.Saver(sharded=True, allow_empty=True)
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, saver)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Pass the session and the coordinator to the hook."""
        self.hook.after_create_session(trainer.sess, _coordinator_of(trainer))

    def before_run(self, run_context: Any) -> Any:
        """Return the request of the hook."""
        request = self.hook.before_run(run_context)
        if isinstance(request, SessionRunArgs) and request.feed_dict is None and request.options is None:
            return request.fetches  # Often the same object as in the last step: then the run costs less.
        return request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Pass the results to the hook."""
        self.hook.after_run(run_context, run_values)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """End the training if the coordinator was asked to stop."""
        coordinator = _coordinator_of(trainer)
        if coordinator.should_stop():
            coordinator.raise_requested_exception()
            raise StopTraining("the coordinator of the session hooks was asked to stop")

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Call ``end`` of the hook, and wait for the threads of the coordinator."""
        coordinator, failure = _coordinator_of(trainer), trainer.loop.failure
        try:
            if failure is None or isinstance(failure, Preempted) or failure is _reported_error(coordinator):
                self.hook.end(trainer.sess)
        finally:
            coordinator.request_stop()
            try:
                coordinator.join(stop_grace_period_secs=_SECONDS_TO_END, ignore_live_threads=True)
            except BaseException as error:
                if error is not failure:
                    raise

    def __repr__(self) -> str:
        return f"HookToCallback({self.hook!r})"


def _coordinator_of(trainer: tpk.Trainer) -> tf.train.Coordinator:
    if trainer not in _coordinators:
        _coordinators[trainer] = tf.train.Coordinator(clean_stop_exception_types=[])
    return _coordinators[trainer]


def _reported_error(coordinator: tf.train.Coordinator) -> BaseException | None:
    """Return the exception that a thread has reported to the coordinator."""
    try:
        coordinator.raise_requested_exception()
    except BaseException as error:
        return error
    return None


class CallbackToHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Runs the ``before_run`` and ``after_run`` of a callback under a `tf.compat.v1.train.MonitoredSession`.

    No other hooks of the callback run: there is no trainer, no epoch, and no saved state. So it is useful for callbacks
    that need nothing else, or whose ``setup_graph`` and other hooks you call yourself.

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
        self._hooks = {
            name: taking_all(name, HOOK_ARGUMENTS[name], hooks[name])
            for name in ("before_run", "after_run")
            if name in hooks
        }

    def before_run(self, run_context: Any) -> Any:
        """Return the request of the callback as `tf.compat.v1.train.SessionRunArgs` or None."""
        request = self._hooks["before_run"](run_context) if "before_run" in self._hooks else None
        if request is None or isinstance(request, SessionRunArgs):
            return request
        return SessionRunArgs(request)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Pass the results to the callback."""
        if "after_run" in self._hooks:
            self._hooks["after_run"](run_context, run_values)


def _overrides(hook: Any, name: str) -> bool:
    return name in vars(hook) or getattr(type(hook), name) is not getattr(SessionRunHook, name)


def _needs_saver(hook: Any) -> bool:
    """Return whether the hook needs the saver that a `MonitoredSession` adds to the collection of savers."""
    return (
        isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)
        and lacks_saver(hook)
        and not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
    )
