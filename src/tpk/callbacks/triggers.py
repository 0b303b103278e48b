"""Proxies of callbacks that choose when or whether the callbacks run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

import attrs

import tpk
from tpk.argument_checks import check_at_least, check_positive, given
from tpk.errors import ConfigError, HookError, PluginError
from tpk.plugin import RunSettings, hookimpl, order_of
from tpk.plugin.callback import HOOK_ARGUMENTS, HOOK_NAMES, Callback, trigger_of
from tpk.plugin.catalog import get_catalog
from tpk.plugin.creation import Use
from tpk.plugin.hookspecs import taking_all

logger = logging.getLogger(__name__)

_Callback = TypeVar("_Callback", bound=Callback)


def _of_cb(name: str, doc: str) -> Any:
    """Return a property of a proxy that reads and sets the attribute `name` of its `cb`."""
    return property(lambda self: getattr(self.cb, name), lambda self, value: setattr(self.cb, name, value), None, doc)


class ProxyCallback(Callback):
    """Base of proxies of callbacks.

    A proxy has the hooks, the state, the name and the trainer of another callback, `cb`. A subclass overrides the hooks
    that it changes, and calls the hooks of `cb` by `call`. An override is used if `cb` implements the hook, or if
    `extra_hooks` has it. It is called in the place of `cb`'s hook, or else of `cb`'s `trigger`.

    Args:
        callback: the other callback: an instance, a class, a name, ``"module:attr"``, or `tpk.use`. Names are resolved
            when the training is set up.

    Attributes:
        cb: the other callback, once it is resolved.
        extra_hooks: overridden hooks that are used although `cb` may not implement them.

    Raises:
        PluginError: if `callback` is, or later resolves to, something else than a `Callback`.

    Example:
        ```python
        class Timed(ProxyCallback):
            def trigger_epoch(self, trainer):
                began = time.monotonic()
                self.call("trigger_epoch", trainer)
                trainer.monitors.put_scalar("seconds", time.monotonic() - began)
        ```
    """

    cb: Callback
    extra_hooks: Collection[str] = ()
    trainer: tpk.Trainer = _of_cb("trainer", "The trainer.")
    plugin_name: str = _of_cb("plugin_name", "The unique name under which both are registered.")
    chief_only: bool = _of_cb("chief_only", "Whether only the chief runs the callback.")

    def __init__(self, callback: Any) -> None:
        self._given = callback
        self._hooks_of_cb: dict[str, Callable[..., Any]] = {}
        if not isinstance(callback, str | type | Use):
            self._take(callback)

    def resolve_plugins(self) -> None:
        """Resolve the name of the other callback."""
        # An instance is resolved too: it may be a proxy of a name.
        self._take(get_catalog().resolve("callback", vars(self).get("cb", self._given)))

    def _take(self, callback: Any) -> None:
        if not isinstance(callback, Callback):
            raise PluginError(f"{type(self).__name__} takes a tpk.Callback, but got {callback!r}.")
        self.cb = callback
        if not isinstance(innermost(self), ProxyCallback):  # Otherwise, the name inside is still unresolved.
            self.check_callback(callback)

    def check_callback(self, callback: Callback) -> None:
        """Raise an error if this proxy does not work with `callback`."""

    def call(self, hook: str, *arguments: Any) -> Any:
        """Call a hook of the other callback, with all of its arguments; None if it does not implement it."""
        implementation = self._hooks_of_cb.get(hook)
        return None if implementation is None else implementation(*arguments)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the other callback, with the overrides of this class in their place."""
        hooks = self.cb.hook_implementations()
        for name in HOOK_NAMES:
            if self._overrides(name) and (name in hooks or name in self.extra_hooks):
                place = innermost(self).trigger
                if name in hooks:
                    place = hooks[name]
                    self._hooks_of_cb[name] = _with_all_arguments(self.cb, name, place)
                hooks[name] = _in_place_of(place, getattr(self, name))
        return {name: method for name, method in hooks.items() if name not in self.unused_hooks}

    def configure_run(self, run: RunSettings) -> None:
        """Let the other callback configure the run."""
        self.cb.configure_run(run)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Trigger the other callback."""
        trigger_of(self.cb)(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the other callback."""
        return self.cb.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the other callback."""
        self.cb.load_state_dict(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self).get('cb', self._given)!r})"


def innermost(callback: Callback) -> Callback:
    """Return the callback inside nested proxies; `callback` itself if it is not a proxy."""
    while isinstance(callback, ProxyCallback) and "cb" in vars(callback):
        callback = callback.cb
    return callback


def callbacks_of(plugins: Iterable[Any], kind: type[_Callback]) -> list[_Callback]:
    """Return the callbacks of a class among plugins, without the proxies around them."""
    return [each for each in map(innermost, plugins) if isinstance(each, kind)]


def _with_all_arguments(callback: Callback, hook: str, implementation: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(implementation, "tpk_impl", {}).get("wrapper"):
        raise HookError(
            f"{hook} of {callback!r} is a hook wrapper, which a proxy cannot call. Make it an ordinary hook."
        )
    return taking_all(f"{type(callback).__name__}.{hook}", HOOK_ARGUMENTS[hook], implementation)


def _in_place_of(place: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method` as a hook that has the same place in the order of calls as `place`."""
    order = order_of(place)
    if not any(order.values()):
        return method

    @hookimpl(tryfirst=order["tryfirst"], trylast=order["trylast"])
    @wraps(method)
    def call(*arguments: Any) -> Any:
        return method(*arguments)

    return call


@attrs.frozen(kw_only=True)
class Every:
    """The times at which a callback is triggered. If several are given, each counts.

    Attributes:
        steps: whenever `global_step` has passed a multiple of it; if one run makes several steps, after the run that
            passes it.
        epochs: at the end of epochs whose number is a multiple of it.
        minutes: after the first step that ends this many minutes after the last trigger or the start.
        before_train: also once before the first epoch.
        clock: returns the time in seconds, for `minutes`.

    Raises:
        ConfigError: if no time is given, or a period is not positive.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(when=tpk.Every(steps=1000, minutes=10))]
        ```
    """

    steps: int | None = None
    epochs: int | None = None
    minutes: float | None = None
    before_train: bool = False
    clock: Callable[[], float] = attrs.field(default=time.monotonic, repr=False)

    def __attrs_post_init__(self) -> None:
        check_at_least(self, 1, **given(steps=self.steps, epochs=self.epochs))
        check_positive(self, **given(minutes=self.minutes))
        if not (self.steps or self.epochs or self.minutes or self.before_train):
            raise ConfigError(
                "A callback without a time would never be triggered. Give it a number of steps or epochs, or "
                "before_train=True."
            )


class TimedCallback(Callback):
    """Base of callbacks that an `Every` triggers; a subclass implements `trigger`.

    Args:
        when: the times; None for the end of each epoch.

    Raises:
        ConfigError: if `when` is something else.
    """

    def __init__(self, when: Every | None = None) -> None:
        if not isinstance(when, Every | None):
            raise ConfigError(
                f"{type(self).__name__}(when={when!r}): expected a tpk.Every, such as tpk.Every(steps=1000)."
            )
        self.when = when or Every(epochs=1)
        self._last_period = 0
        self._triggered_at = 0.0

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Start to count."""
        if self.when.steps is not None:
            self._last_period = trainer.global_step // self.when.steps
            if self.when.steps % trainer.loop.steps_per_run:
                logger.info(
                    "%s every %d steps comes after the run that passes such a step: a run makes %d (steps_per_run)",
                    type(innermost(self)).__name__,
                    self.when.steps,
                    trainer.loop.steps_per_run,
                )
        self._triggered_at = self.when.clock()
        if self.when.before_train:
            self._trigger_now(trainer)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Trigger if the step ends a period."""
        is_due = False
        if self.when.steps is not None:
            # One run may make several steps, so `global_step` may jump over a multiple.
            period = trainer.global_step // self.when.steps
            is_due, self._last_period = period != self._last_period, period
        if self.when.minutes is not None and not is_due:
            is_due = self.when.clock() - self._triggered_at >= 60 * self.when.minutes
        if is_due:
            self._trigger_now(trainer)

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Trigger if the epoch ends a period."""
        if self.when.epochs is not None and trainer.epoch_num % self.when.epochs == 0:
            self._trigger_now(trainer)

    def _trigger_now(self, trainer: tpk.Trainer) -> None:
        self._triggered_at = self.when.clock()
        trigger_of(self)(trainer)


class PeriodicTrigger(ProxyCallback, TimedCallback):
    """Triggers a callback every k steps, every k epochs, or before the training.

    Most callbacks do their work in `trigger`, by default at the end of each epoch; this chooses other times. All other
    hooks of the callback run as before.

    Args:
        callback: a callback that implements `trigger`: an instance, a class, a name, or `tpk.use`.
        every_k_steps: trigger when `global_step` has passed a multiple of it.
        every_k_epochs: trigger at the end of epochs whose number is a multiple of it.
        before_train: also trigger once before the first epoch.

    Raises:
        ConfigError: if no time is given, or a period is not a positive integer.
        HookError: if the callback does not implement `trigger`.

    Example:
        ```python
        PeriodicTrigger(ModelSaver(), every_k_epochs=5)
        PeriodicTrigger(InferenceRunner(validation, ScalarStats("cost")), every_k_steps=500, before_train=True)
        ```
    """

    extra_hooks = ("before_train", "trigger_step", "trigger_epoch")

    def __init__(
        self,
        callback: Any,
        every_k_steps: int | None = None,
        every_k_epochs: int | None = None,
        before_train: bool = False,
    ) -> None:
        TimedCallback.__init__(self, Every(steps=every_k_steps, epochs=every_k_epochs, before_train=before_train))
        ProxyCallback.__init__(self, callback)

    def check_callback(self, callback: Callback) -> None:
        """Raise an error if the callback does not implement `trigger`."""
        inner = innermost(callback)
        trigger_of(inner)
        if not inner._overrides("trigger"):
            hooks = [name for name in HOOK_NAMES if inner._overrides(name)]
            raise HookError(
                f"PeriodicTrigger calls `trigger`, which {inner!r} does not implement (it implements "
                f"{', '.join(hooks) or 'no hook'}). Move what it does to `trigger`, or use PeriodicCallback."
            )

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Let the callback start, then start to count."""
        self.call("before_train", trainer)
        TimedCallback.before_train(self, trainer)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Let the callback see the step, then trigger it if the step ends a period."""
        self.call("trigger_step", trainer)
        TimedCallback.trigger_step(self, trainer)


class EnableCallbackIf(ProxyCallback):
    """Runs the hooks of a callback that belong to epochs and steps only while a condition holds.

    These are ``before_epoch``, ``before_run``, ``after_run``, ``trigger_step``, ``after_epoch``, ``trigger_epoch`` and
    `trigger`. The condition is evaluated for each call, except that ``after_run`` runs exactly when ``before_run`` did.
    The other hooks, such as ``setup_graph``, ``before_train`` and ``after_train``, always run.

    Args:
        callback: any callback: an instance, a class, a name, or `tpk.use`.
        predicate: takes this `EnableCallbackIf` (which has `trainer`, `epoch_num`, `local_step` and `global_step`) and
            returns whether the callback is enabled now. It must not have side effects.

    Example:
        ```python
        EnableCallbackIf(InferenceRunner(...), lambda self: self.epoch_num > 10)
        ```
    """

    def __init__(self, callback: Any, predicate: Callable[[Any], bool]) -> None:
        super().__init__(callback)
        self._predicate = predicate
        self._enabled_in_run = False

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the callback; ``before_run`` evaluates the condition for ``after_run``."""
        if "after_run" in self.cb.hook_implementations():
            self.extra_hooks = {*self.extra_hooks, "before_run"}
        return super().hook_implementations()

    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Call the hook if the callback is enabled."""
        self._call_if_enabled("before_epoch", trainer)

    def before_run(self, run_context: Any) -> Any:
        """Call the hook if the callback is enabled, and remember whether it is for `after_run`."""
        self._enabled_in_run = self._predicate(self)
        return self.call("before_run", run_context) if self._enabled_in_run else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Call the hook if the callback was enabled in `before_run`."""
        if self._enabled_in_run:
            self.call("after_run", run_context, run_values)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Call the hook if the callback is enabled."""
        self._call_if_enabled("trigger_step", trainer)

    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Call the hook if the callback is enabled."""
        self._call_if_enabled("after_epoch", trainer)

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Call the hook if the callback is enabled."""
        self._call_if_enabled("trigger_epoch", trainer)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Trigger the callback if it is enabled."""
        if self._predicate(self):
            super().trigger(trainer)

    def _call_if_enabled(self, hook: str, trainer: tpk.Trainer) -> None:
        if self._predicate(self):
            self.call(hook, trainer)


class PeriodicCallback(EnableCallbackIf):
    """Makes a callback run less often: only in every k-th step or epoch.

    It is `EnableCallbackIf` with the condition that `global_step` is a multiple of `every_k_steps`, or `epoch_num` a
    multiple of `every_k_epochs`. To run a callback more often than once an epoch, use `PeriodicTrigger`.

    Args:
        callback: any callback: an instance, a class, a name, or `tpk.use`.
        every_k_steps: enable the callback when `global_step` is a multiple of it. If one run makes several steps, it
            is enabled for the whole run.
        every_k_epochs: enable the callback in epochs whose number is a multiple of it.

    Raises:
        ConfigError: if both are None, or one is not a positive integer; (in `setup_graph`) if `every_k_steps` is not a
            multiple of the steps in a run.
    """

    extra_hooks = ("setup_graph",)

    def __init__(self, callback: Any, every_k_steps: int | None = None, every_k_epochs: int | None = None) -> None:
        super().__init__(callback, PeriodicCallback._is_due)
        if every_k_steps is None and every_k_epochs is None:
            raise ConfigError(f"PeriodicCallback({callback!r}) would never run. Give every_k_steps or every_k_epochs.")
        check_at_least(self, 1, **given(every_k_steps=every_k_steps, every_k_epochs=every_k_epochs))
        self._every_k_steps, self._every_k_epochs = every_k_steps, every_k_epochs

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Check the period, then let the callback set up the graph."""
        steps, steps_per_run = self._every_k_steps, trainer.loop.steps_per_run
        if steps is not None and steps % steps_per_run:
            raise ConfigError(
                f"PeriodicCallback({self.cb!r}, every_k_steps={steps}): a run makes {steps_per_run} steps "
                f"(steps_per_run), and would skip most of the k-th steps. Use a multiple of {steps_per_run}."
            )
        self.call("setup_graph", trainer)

    def _is_due(self) -> bool:
        if self._every_k_steps is not None and self.global_step % self._every_k_steps == 0:
            return True
        return self._every_k_epochs is not None and self.epoch_num % self._every_k_epochs == 0
