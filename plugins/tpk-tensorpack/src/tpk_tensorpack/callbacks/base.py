"""The base of all callbacks, whose hooks have an underscore, and a trigger that belongs to others."""

from __future__ import annotations

from collections.abc import Callable as Function
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import tpk
from tpk.plugin.callback import HOOK_NAMES

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

__all__ = ["Callback", "CallbackFactory", "ProxyCallback"]

_SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class Callback(tpk.Callback):
    """Something that happens besides training: a class that overrides ``_setup_graph``, ``_before_train``, ….

    What is called, and when, is what `tpk.Callback` says of the hooks without underscore; ``_before_run`` and
    ``_after_run`` take the context and the results, and the others nothing: the trainer is ``self.trainer``. A hook
    that is not overridden is not called, so that a callback costs what it does. The hooks may be overridden without
    underscore, too, but then they are those of tpk.

    The built-in callbacks of this package have it as their first base: each underscored hook does by default what the
    next class does in that hook, so that ``super()._trigger()`` in a subclass means what it says.

    Attributes:
        name_scope: the name scope of ``_setup_graph``; None is the name of the class.
        graph: that of the training, from ``_setup_graph`` on.

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
        """Whether it is called in the chief of several processes only: `_chief_only`, where a class says so."""
        return super().chief_only if self._chief_only is None else self._chief_only

    @chief_only.setter
    def chief_only(self, chief_only: bool) -> None:
        self._chief_only = chief_only

    def set_chief_only(self, v: bool = True) -> Callback:
        """Have it called in the chief only, or in all processes; return it."""
        self._chief_only = bool(v)
        return self

    def get_tensors_maybe_in_tower(self, names: list[str]) -> list[Any]:
        """Return tensors by their names in the main training tower, or else in the graph."""
        return [tpk.find_tensor(self.trainer, name) if isinstance(name, str) else name for name in names]

    def hook_implementations(self) -> dict[str, Function[..., Any]]:
        """Return the hooks that are overridden, by either of their names; of the others, those of the next class."""
        hooks: dict[str, Function[..., Any]] = super().hook_implementations()
        for name in HOOK_NAMES:
            # What another class has wrapped is left as it is.
            if self._is_ours(name) and not self._is_underscored(name) and hooks.get(name) == getattr(self, name):
                hooks[name] = getattr(super(), name)
        return hooks

    def _overrides(self, name: str) -> bool:
        if name in self.__dict__ or self._is_underscored(name):
            return True
        # What comes after this class in the order of resolution, where it is this one that defines the name.
        order = type(self).__mro__
        own = order[order.index(Callback) + 1 :] if self._is_ours(name) else order
        found = next(vars(each)[name] for each in own if name in vars(each))
        return found is not vars(tpk.Callback)[name]

    def _is_ours(self, name: str) -> bool:
        return getattr(type(self), name) is vars(Callback).get(name)

    def _is_underscored(self, name: str) -> bool:
        underscored = f"_{name}"
        ours = vars(Callback).get(underscored)
        return underscored in self.__dict__ or (ours is not None and getattr(type(self), underscored) is not ours)

    # Each hook by both of its names, in one class body. By the one it is called, by the other overridden.

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Called before the graph is finalized."""
        self.graph = tf.compat.v1.get_default_graph()
        with ExitStack() as scopes:
            if self._is_underscored("setup_graph"):
                scopes.enter_context(tf.name_scope(self.name_scope or type(self).__name__))
            self._setup_graph()

    def _setup_graph(self) -> None:
        super().setup_graph(self.trainer)

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Called before the first epoch, with the session initialized."""
        self._before_train()

    def _before_train(self) -> None:
        super().before_train(self.trainer)

    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Called before each epoch."""
        self._before_epoch()

    def _before_epoch(self) -> None:
        super().before_epoch(self.trainer)

    def before_run(self, run_context: Any) -> Any:
        """Called before each run of a step; returns what to run along with it."""
        fetches = self._before_run(run_context)
        if fetches is None or isinstance(fetches, _SessionRunArgs):
            return fetches
        return [self._fetch(each) for each in fetches] if isinstance(fetches, list) else fetches

    def _before_run(self, ctx: Any) -> Any:
        return super().before_run(ctx)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called after each run of a step."""
        self._after_run(run_context, run_values)

    def _after_run(self, run_context: Any, run_values: Any) -> None:
        super().after_run(run_context, run_values)

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Called after each step."""
        self._trigger_step()

    def _trigger_step(self) -> None:
        super().trigger_step(self.trainer)

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Called after the last step of each epoch."""
        self._after_epoch()

    def _after_epoch(self) -> None:
        super().after_epoch(self.trainer)

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Called after each epoch; triggers, unless it is overridden."""
        self._trigger_epoch()

    def _trigger_epoch(self) -> None:
        super().trigger_epoch(self.trainer)

    # Scripts call it by themselves, without a trainer, which a callback of tpk may leave out.
    def trigger(self) -> None:  # type: ignore[override]
        """What it does each time that its time has come."""
        self._trigger()

    def _trigger(self) -> None:
        super().trigger(self.trainer)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Called when the training is over, however it ends."""
        self._after_train()

    def _after_train(self) -> None:
        super().after_train(self.trainer)

    def _fetch(self, fetch: Any) -> Any:
        if not isinstance(fetch, str):
            return fetch
        return self.graph.as_graph_element(fetch if ":" in fetch else f"{fetch}:0")


class ProxyCallback(tpk.ProxyCallback):
    """A callback that stands in for another one.

    Args:
        cb: that one.
    """

    def __init__(self, cb: Any) -> None:
        super().__init__(cb)


class CallbackFactory(Callback):
    """A callback of functions, each of which takes the callback.

    Args:
        setup_graph, before_train, trigger, after_train: what to call in these hooks.

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
