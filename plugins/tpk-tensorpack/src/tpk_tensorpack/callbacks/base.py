"""The base class of all callbacks, whose hooks have an underscore, and simple wrappers."""

from __future__ import annotations

from collections.abc import Callable as Function
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.plugin import HOOK_NAMES

__all__ = ["Callback", "CallbackFactory", "ProxyCallback"]


class Callback(tpk.Callback):
    """Base class of callbacks: a subclass overrides ``_setup_graph``, ``_before_train``, ….

    The hooks are called as `tpk.Callback` documents for their names without underscore. ``_before_run`` takes the
    context, ``_after_run`` the context and the results, and the others no arguments; the trainer is ``self.trainer``.
    Hooks that are not overridden are not called and cost nothing. Overriding a hook without underscore also works, with
    tpk's arguments.

    The built-in callbacks of this package have it as their first base class: by default, each underscored hook calls
    the hook of the next class, so that ``super()._trigger()`` in a subclass works as expected.

    Attributes:
        name_scope: the name scope of ``_setup_graph``; None means the name of the class.
        graph: the graph of the training run, available from ``_setup_graph`` on.

    Example:
        ```python
        class PrintCost(Callback):
            def _setup_graph(self):
                (self.cost,) = self.get_tensors_maybe_in_tower(["cost"])

            def _before_run(self, _):
                return tf.train.SessionRunArgs(self.cost)

            def _after_run(self, _, run_values):
                print(run_values.results)
        ```
    """

    name_scope: str = ""
    graph: Any = None
    _chief_only: bool | None = None

    @property
    def chief_only(self) -> bool:  # type: ignore[override]
        """Whether to call it only in the chief of several processes: `_chief_only`, if a class defines that."""
        return super().chief_only if self._chief_only is None else self._chief_only

    @chief_only.setter
    def chief_only(self, chief_only: bool) -> None:
        self._chief_only = chief_only

    def set_chief_only(self, v: bool = True) -> Callback:
        """Set whether to call it only in the chief; return self."""
        self._chief_only = bool(v)
        return self

    def get_tensors_maybe_in_tower(self, names: list[Any]) -> list[Any]:
        """Return tensors by name, from the main training tower or else from the graph; other items stay unchanged."""
        return [tpk.find_tensor(self.trainer, name) if isinstance(name, str) else name for name in names]

    def hook_implementations(self) -> dict[str, Function[..., Any]]:
        """Return the hooks overridden under either name, and the hooks of the next class."""
        hooks: dict[str, Function[..., Any]] = super().hook_implementations()
        for name in HOOK_NAMES:
            # Leave hooks that another class has wrapped unchanged.
            if self._is_ours(name) and not self._is_underscored(name) and hooks.get(name) == getattr(self, name):
                hooks[name] = getattr(super(), name)
        return hooks

    def _overrides(self, name: str) -> bool:
        if name in self.__dict__ or self._is_underscored(name):
            return True
        # Each hook of this class calls the same hook of the next class.
        found: Any = super(Callback, type(self)) if self._is_ours(name) else type(self)
        return getattr(found, name) is not getattr(tpk.Callback, name)

    def _is_ours(self, name: str) -> bool:
        return getattr(type(self), name) is vars(Callback).get(name)

    def _is_underscored(self, name: str) -> bool:
        underscored = f"_{name}"
        ours = vars(Callback).get(underscored)
        return underscored in self.__dict__ or (ours is not None and getattr(type(self), underscored) is not ours)

    # Both names of each hook are defined here: the one that is called and the one that is overridden.

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Called before the graph is finalized."""
        self.graph = tf.compat.v1.get_default_graph()
        is_own = self._is_underscored("setup_graph")
        with tf.name_scope(self.name_scope or type(self).__name__) if is_own else nullcontext():
            self._setup_graph()

    def _setup_graph(self) -> None:
        super().setup_graph(self.trainer)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Called before the first epoch, with the session initialized."""
        self._before_train()

    def _before_train(self) -> None:
        super().before_train(self.trainer)

    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Called before each epoch."""
        self._before_epoch()

    def _before_epoch(self) -> None:
        super().before_epoch(self.trainer)

    def before_run(self, run_context: Any) -> Any:
        """Called before each run of a step; returns additional fetches."""
        fetches = self._before_run(run_context)
        return self.get_tensors_maybe_in_tower(fetches) if isinstance(fetches, list) else fetches

    def _before_run(self, ctx: Any) -> Any:
        return super().before_run(ctx)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called after each run of a step."""
        self._after_run(run_context, run_values)

    def _after_run(self, run_context: Any, run_values: Any) -> None:
        super().after_run(run_context, run_values)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Called after each step."""
        self._trigger_step()

    def _trigger_step(self) -> None:
        super().trigger_step(self.trainer)

    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Called after the last step of each epoch."""
        self._after_epoch()

    def _after_epoch(self) -> None:
        super().after_epoch(self.trainer)

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Called after each epoch; by default calls the trigger."""
        self._trigger_epoch()

    def _trigger_epoch(self) -> None:
        super().trigger_epoch(self.trainer)

    # Scripts call this themselves without a trainer, which callbacks of tpk do not require.
    def trigger(self) -> None:  # type: ignore[override]
        """The action of the callback, called by `_trigger_epoch` or a periodic trigger."""
        self._trigger()

    def _trigger(self) -> None:
        super().trigger(self.trainer)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Called when the training run ends, whatever the reason."""
        self._after_train()

    def _after_train(self) -> None:
        super().after_train(self.trainer)


class ProxyCallback(tpk.ProxyCallback):
    """A callback that forwards to another one.

    Args:
        cb: the wrapped callback.
    """

    def __init__(self, cb: Any) -> None:
        super().__init__(cb)


class CallbackFactory(Callback):
    """A callback made of functions; each takes the callback as its argument.

    Args:
        setup_graph, before_train, trigger, after_train: the functions for these hooks.

    Example:
        ```python
        CallbackFactory(trigger=lambda self: self.trainer.monitors.put_scalar("epoch", self.epoch_num))
        ```
    """

    def __init__(
        self,
        setup_graph: Function[[Callback], Any] | None = None,
        before_train: Function[[Callback], Any] | None = None,
        trigger: Function[[Callback], Any] | None = None,
        after_train: Function[[Callback], Any] | None = None,
    ) -> None:
        hooks = {
            "setup_graph": setup_graph,
            "before_train": before_train,
            "trigger": trigger,
            "after_train": after_train,
        }
        for name, function in hooks.items():
            if function is not None:
                vars(self)[f"_{name}"] = function.__get__(self)

    def __repr__(self) -> str:
        return "CallbackFactory"


def file_in_log_dir(callback: tpk.Callback, name: str = "") -> Path:
    """Return the path of a file in the log directory, or the directory itself.

    Raises:
        ConfigError: the log directory has not been set.
    """
    if callback.trainer.run_dir is None:
        raise tpk.ConfigError(
            f"{type(callback).__name__} writes to the log directory, which is not set: call logger.set_logger_dir(...)"
        )
    return Path(callback.trainer.run_dir) / name
