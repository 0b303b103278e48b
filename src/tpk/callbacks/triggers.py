"""Proxies: callbacks that stand in for another callback."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import attrs

from tpk.errors import ConfigError, HookError, PluginError
from tpk.plugin.callback import HOOK_NAMES, Callback, trigger_of
from tpk.plugin.catalog import get_catalog
from tpk.plugin.creation import Use

if TYPE_CHECKING:
    from tpk.plugin.run_options import RunOptions
    from tpk.plugin.trainer import TrainerProtocol


class ProxyCallback(Callback):
    """The base of callbacks that change when or whether another callback runs.

    It has the hooks, the state, the name and the trainer of the callback that it stands for. Subclasses override
    `hook_implementations` and return fewer, more or changed ones.

    Args:
        callback: the callback that it stands for: an instance, a class, a name, ``"module:attr"``, or `tpk.use`. It is
            made of what it is named by when the training is set up.

    Raises:
        PluginError: if `callback` is, or later leads to, something else than a `Callback`.
    """

    def __init__(self, callback: Any) -> None:
        self._given = callback
        if not isinstance(callback, str | type | Use):
            self._take(callback)

    def resolve_plugins(self) -> None:
        """Make the callback of what it was named by.

        Raises:
            PluginError: if it leads to something else than a `Callback`, or to nothing.
        """
        # An instance is resolved as well: it may hold what is not.
        self._take(get_catalog().resolve("callback", vars(self).get("cb", self._given)))

    def _take(self, callback: Any) -> None:
        if not isinstance(callback, Callback):
            raise PluginError(f"{type(self).__name__} stands in for a tpk.Callback, but got {callback!r}.")
        self.cb = callback
        # What is named within is not known before it is resolved.
        if not isinstance(innermost(self), ProxyCallback):
            self.check_callback(callback)

    def check_callback(self, callback: Callback) -> None:
        """See to it that a callback can be stood in for; raise an error if not."""

    cb: Callback
    """The callback that it stands for, once that is known."""

    @property
    def is_awaited(self) -> bool:
        """Whether the callback has yet to have its turn for the first time, so that it may still report something."""
        return False

    @property
    def trainer(self) -> TrainerProtocol:
        """The trainer, which is that of the callback."""
        return self.cb.trainer

    @trainer.setter
    def trainer(self, trainer: TrainerProtocol) -> None:
        self.cb.trainer = trainer

    @property
    def plugin_name(self) -> str:
        """The unique name under which both were registered."""
        return self.cb.plugin_name

    @plugin_name.setter
    def plugin_name(self, name: str) -> None:
        self.cb.plugin_name = name

    @property
    def chief_only(self) -> bool:
        """Whether only the chief runs the callback."""
        return self.cb.chief_only

    @chief_only.setter
    def chief_only(self, chief_only: bool) -> None:
        self.cb.chief_only = chief_only

    def configure_run(self, run: RunOptions) -> None:
        """Let the callback change the run."""
        self.cb.configure_run(run)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Trigger the callback."""
        trigger_of(self.cb)(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the callback."""
        return self.cb.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the callback its state back."""
        self.cb.load_state_dict(state)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the callback."""
        return self.cb.hook_implementations()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self).get('cb', self._given)!r})"


def innermost(callback: Callback) -> Callback:
    """Return the callback for which proxies, however many, stand in; or `callback` itself, if it is no proxy."""
    while isinstance(callback, ProxyCallback) and "cb" in vars(callback):
        callback = callback.cb
    return callback


logger = logging.getLogger(__name__)

_REPORTING_HOOKS = ("after_run", "trigger_step", "after_epoch", "trigger_epoch")
_GATED_HOOKS = ("before_epoch", "before_run", *_REPORTING_HOOKS)

Implementation = Callable[..., Any]


def _check_count(every: Every, attribute: Any, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigError(f"every {value!r} {attribute.name}: expected a positive int, or None.")


def _check_minutes(every: Every, attribute: Any, value: Any) -> None:
    if value is not None and not value > 0:
        raise ConfigError(f"every {value!r} minutes: expected a positive number, or None.")


@attrs.frozen(kw_only=True)
class Every:
    """The times at which a callback is triggered, apart from what it does then; of several, each counts.

    Attributes:
        steps: whenever `global_step` has passed a multiple of it; where one run makes several steps, after the run that
            passes it.
        epochs: at the end of epochs whose number is a multiple of it.
        minutes: after the step in which so many minutes have passed since the last time, or since the start.
        before_train: also once before the first epoch.
        clock: returns the time in seconds, for `minutes`.

    Raises:
        ConfigError: if no time is given, or a period is not positive.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(when=tpk.Every(steps=1000, minutes=10))]
        ```
    """

    steps: int | None = attrs.field(default=None, validator=_check_count)
    epochs: int | None = attrs.field(default=None, validator=_check_count)
    minutes: float | None = attrs.field(default=None, validator=_check_minutes)
    before_train: bool = False
    clock: Callable[[], float] = attrs.field(default=time.monotonic, repr=False)

    def __attrs_post_init__(self) -> None:
        if not (self.steps or self.epochs or self.minutes or self.before_train):
            raise ConfigError(
                "A callback for which no time is given would never trigger. Give it a number of steps or of epochs, or "
                "before_train=True."
            )

    def hooks(self, callback: Callback, implementations: Mapping[str, Implementation]) -> dict[str, Implementation]:
        """Return the hooks of a callback, with its `trigger` called at these times and no others.

        Args:
            callback: the callback.
            implementations: the hooks that it has otherwise, which stay, but for ``trigger_epoch``.

        Raises:
            HookError: if one of them that comes together with a trigger is a hook wrapper.
        """
        return _Triggering(self, callback).hooks(implementations)


class _Triggering:
    """Triggers one callback in one training at the times of an `Every`."""

    def __init__(self, when: Every, callback: Callback) -> None:
        self._when = when
        self._callback = callback
        self._trigger_callback = trigger_of(callback)
        self._period_of_steps = 0
        self._triggered_at = 0.0

    def hooks(self, implementations: Mapping[str, Implementation]) -> dict[str, Implementation]:
        hooks = {name: implementation for name, implementation in implementations.items() if name != "trigger_epoch"}
        counts = self._when.steps is not None or self._when.minutes is not None
        if self._when.epochs is not None:
            hooks["trigger_epoch"] = self._then(None, self._after_epoch)
        if counts:
            hooks["trigger_step"] = self._then(hooks.get("trigger_step"), self._after_step)
        if counts or self._when.before_train:
            hooks["before_train"] = self._then(hooks.get("before_train"), self._before_train)
        return hooks

    def _then(self, implementation: Implementation | None, trigger: Callable[[], None]) -> Implementation:
        """Return an implementation that calls `trigger`, after `implementation` if there is one."""
        if implementation is None:
            # Wrapping leads the hook manager to the options of `trigger`: what must come last after an epoch
            # must come last at other times, too.
            @wraps(innermost(self._callback).trigger)
            def triggered(*_: Any) -> None:
                trigger()

            return triggered

        _check_plain(self._callback, implementation)

        @wraps(implementation)
        def followed(*arguments: Any) -> None:
            implementation(*arguments)
            trigger()

        return followed

    def _before_train(self) -> None:
        if self._when.steps is not None:
            self._period_of_steps = self._callback.global_step // self._when.steps
            self._say_if_it_comes_late(self._when.steps, self._callback.trainer.loop.steps_per_run)
        self._start_clock()
        if self._when.before_train:
            self._trigger()

    def _say_if_it_comes_late(self, every: int, steps_per_run: int) -> None:
        if every % steps_per_run:
            logger.info(
                "%s every %d steps comes after the run that passes such a step: a run makes %d (steps_per_run)",
                type(innermost(self._callback)).__name__,
                every,
                steps_per_run,
            )

    def _after_step(self) -> None:
        is_due = False
        if self._when.steps is not None:
            # A run may make several steps, so `global_step` may jump over a multiple.
            period = self._callback.global_step // self._when.steps
            is_due, self._period_of_steps = period != self._period_of_steps, period
        if self._when.minutes is not None and not is_due:
            is_due = self._when.clock() - self._triggered_at >= 60 * self._when.minutes
        if is_due:
            self._trigger()

    def _after_epoch(self) -> None:
        if self._callback.epoch_num % self._when.epochs == 0:  # type: ignore[operator]
            self._trigger()

    def _trigger(self) -> None:
        self._start_clock()
        self._trigger_callback(self._callback.trainer)

    def _start_clock(self) -> None:
        if self._when.minutes is not None:
            self._triggered_at = self._when.clock()


class PeriodicTrigger(ProxyCallback):
    """Calls `trigger` of a callback every k steps, every k epochs, or before the training.

    Most callbacks that do something at the end of each epoch do it in `trigger`, so this chooses other times
    for them. All other hooks of the callback run as ever.

    Args:
        callback: a callback that implements `trigger`: an instance, a class, a name, or `tpk.use`.
        every_k_steps: trigger when `global_step` has passed a multiple of it.
        every_k_epochs: trigger at the end of epochs whose number is a multiple of it.
        before_train: also trigger once before the first epoch.

    Raises:
        ConfigError: if no time is given, or a period is not a positive int.
        HookError: if the callback does not implement `trigger`.

    Example:
        ```python
        PeriodicTrigger(ModelSaver(), every_k_epochs=5)
        PeriodicTrigger(InferenceRunner(validation, ScalarStats("cost")), every_k_steps=500, before_train=True)
        ```
    """

    def __init__(
        self,
        callback: Any,
        every_k_steps: int | None = None,
        every_k_epochs: int | None = None,
        before_train: bool = False,
    ) -> None:
        super().__init__(callback)
        self._when = Every(steps=every_k_steps, epochs=every_k_epochs, before_train=before_train)
        self._is_awaited = True

    @property
    def is_awaited(self) -> bool:
        """Whether the callback has not been triggered yet."""
        return self._is_awaited

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Trigger the callback."""
        self._is_awaited = False
        super().trigger(trainer)

    def check_callback(self, callback: Callback) -> None:
        """See to it that there is something to trigger.

        Raises:
            HookError: if the callback does not implement `trigger`.
        """
        _check_trigger(callback)

    def hook_implementations(self) -> dict[str, Implementation]:
        """Return the hooks of the callback, with `trigger` called at the chosen times only."""
        return self._when.hooks(self, self.cb.hook_implementations())


class EnableCallbackIf(ProxyCallback):
    """Runs the hooks of a callback that belong to epochs and steps only while a condition holds.

    These are ``before_epoch``, ``before_run``, ``after_run``, ``trigger_step``, ``after_epoch``,
    ``trigger_epoch`` and `trigger`. The condition is evaluated anew for each of them, except that
    ``after_run`` runs exactly when ``before_run`` did. ``setup_graph``, ``before_train`` and ``after_train``
    always run.

    Args:
        callback: any callback: an instance, a class, a name, or `tpk.use`.
        predicate: takes this `EnableCallbackIf` (which has `trainer`, `epoch_num`, `local_step` and
            `global_step`) and returns whether the callback is enabled now. It must not have side effects.

    Example:
        ```python
        EnableCallbackIf(InferenceRunner(...), lambda self: self.epoch_num > 10)
        ```
    """

    def __init__(self, callback: Any, predicate: Callable[[Any], bool]) -> None:
        super().__init__(callback)
        self._predicate = predicate
        self._enabled_in_run = False
        self._awaited: set[str] = set()

    @property
    def is_awaited(self) -> bool:
        """Whether one of the hooks in which the callback may report something has never been enabled yet."""
        return bool(self._awaited)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Trigger the callback if it is enabled."""
        if self._predicate(self):
            self._awaited.discard("trigger_epoch")
            super().trigger(trainer)

    def hook_implementations(self) -> dict[str, Implementation]:
        """Return the hooks of the callback, those of epochs and steps under the condition."""
        hooks = self.cb.hook_implementations()
        before_run, after_run = hooks.get("before_run"), hooks.get("after_run")
        self._awaited = {name for name in _REPORTING_HOOKS if name in hooks}
        for name in _GATED_HOOKS:
            if name in hooks:
                hooks[name] = self._gate(name, hooks[name])
        if after_run is not None:
            hooks["before_run"] = self._gate_before_run(before_run)
            hooks["after_run"] = self._gate_after_run(after_run)
        return hooks

    def _gate(self, name: str, implementation: Implementation) -> Implementation:
        _check_plain(self.cb, implementation)

        @wraps(implementation)
        def gated(*arguments: Any) -> Any:
            if not self._predicate(self):
                return None
            self._awaited.discard(name)
            return implementation(*arguments)

        return gated

    def _gate_before_run(self, implementation: Implementation | None) -> Implementation:
        if implementation is None:

            def decide() -> None:
                self._enabled_in_run = self._predicate(self)

            return decide

        @wraps(implementation)
        def gated(*arguments: Any) -> Any:
            self._enabled_in_run = self._predicate(self)
            return implementation(*arguments) if self._enabled_in_run else None

        return gated

    def _gate_after_run(self, implementation: Implementation) -> Implementation:
        @wraps(implementation)
        def gated(*arguments: Any) -> None:
            if self._enabled_in_run:
                self._awaited.discard("after_run")
                implementation(*arguments)

        return gated


class PeriodicCallback(EnableCallbackIf):
    """Makes a callback run less often: only in every k-th step or epoch.

    It is `EnableCallbackIf` with the condition that `global_step` is a multiple of `every_k_steps`, or
    `epoch_num` one of `every_k_epochs`. To run a callback more often than once an epoch, use
    `PeriodicTrigger`.

    Args:
        callback: any callback: an instance, a class, a name, or `tpk.use`.
        every_k_steps: enable the callback when `global_step` is a multiple of it. Where one run makes several steps, it
            is enabled for the whole run.
        every_k_epochs: enable the callback in epochs whose number is a multiple of it.

    Raises:
        ConfigError: if both are None, or one is not a positive int; (in `setup_graph`) if `every_k_steps` is no
            multiple of the steps in a run.
    """

    def __init__(self, callback: Any, every_k_steps: int | None = None, every_k_epochs: int | None = None) -> None:
        super().__init__(callback, PeriodicCallback._is_due)
        if every_k_steps is None and every_k_epochs is None:
            raise ConfigError(f"PeriodicCallback({callback!r}) would never run. Give every_k_steps or every_k_epochs.")
        self._every = Every(steps=every_k_steps, epochs=every_k_epochs)

    def hook_implementations(self) -> dict[str, Implementation]:
        """Return the hooks of the callback, under the condition, which is checked before any of them is called."""
        hooks = super().hook_implementations()
        setup_graph: Implementation = hooks.get("setup_graph", self.cb.setup_graph)

        @wraps(setup_graph)
        def checked(*arguments: Any) -> None:
            self._check_period()
            setup_graph(*arguments)

        return {**hooks, "setup_graph": checked}

    def _check_period(self) -> None:
        steps, steps_per_run = self._every.steps, self.trainer.loop.steps_per_run
        if steps is not None and steps % steps_per_run:
            raise ConfigError(
                f"PeriodicCallback({self.cb!r}, every_k_steps={steps}): a run makes {steps_per_run} steps "
                f"(steps_per_run), and would pass most of these by. Take a multiple of {steps_per_run}."
            )

    def _is_due(self) -> bool:
        if self._every.steps is not None and self.global_step % self._every.steps == 0:
            return True
        return self._every.epochs is not None and self.epoch_num % self._every.epochs == 0


def _check_trigger(callback: Callback) -> None:
    inner = innermost(callback)
    trigger_of(inner)
    if not inner._overrides("trigger"):
        hooks = [name for name in HOOK_NAMES if inner._overrides(name)]
        raise HookError(
            f"PeriodicTrigger calls `trigger`, which {inner!r} does not implement (it implements "
            f"{', '.join(hooks) or 'no hook'}). Move what it does to `trigger`, or use PeriodicCallback."
        )


def _check_plain(callback: Callback, implementation: Implementation) -> None:
    if getattr(implementation, "tpk_impl", {}).get("wrapper"):
        raise HookError(
            f"{implementation.__name__} of {callback!r} is a hook wrapper, which can neither go along with a trigger "
            "nor stand under a condition. Make it an ordinary hook, or decide inside of it."
        )
