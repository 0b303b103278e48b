"""Callbacks that stand in for another callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tpk.errors import PluginError
from tpk.plugin import Callback, get_catalog

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

_BESIDES_HOOKS = frozenset({"before_checkpoint", "translate_error", "recover"})


class ProxyCallback(Callback):
    """The base of callbacks that change when or whether another callback runs.

    It has the hooks, the state, the name and the trainer of the callback that it stands for, and what that one has
    besides (`before_checkpoint`, `translate_error`, `recover`). Subclasses override `hook_implementations` and return
    fewer, more or changed ones.

    Args:
        callback: the callback that it stands for: an instance, a class, a name, ``"module:attr"``, or `tpk.use`.

    Attributes:
        cb: that callback.

    Raises:
        PluginError: if `callback` leads to something else than a `Callback`, or to nothing.
    """

    def __init__(self, callback: Any) -> None:
        resolved = get_catalog().resolve("callback", callback)
        if not isinstance(resolved, Callback):
            raise PluginError(f"{type(self).__name__} stands in for a tpk.Callback, but got {resolved!r}.")
        self.cb: Callback = resolved

    @property
    def trainer(self) -> Trainer:
        """The trainer, which is that of the callback."""
        return self.cb.trainer

    @trainer.setter
    def trainer(self, trainer: Trainer) -> None:
        self.cb.trainer = trainer

    @property
    def name(self) -> str:
        """The unique name under which both were registered."""
        return self.cb.name

    @name.setter
    def name(self, name: str) -> None:
        self.cb.name = name

    @property
    def chief_only(self) -> bool:
        """Whether only the chief runs the callback."""
        return self.cb.chief_only

    @chief_only.setter
    def chief_only(self, chief_only: bool) -> None:
        self.cb.chief_only = chief_only

    def trigger(self) -> None:
        """Trigger the callback."""
        self.cb.trigger()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the callback."""
        return self.cb.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the callback its state back."""
        self.cb.load_state_dict(state)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the callback."""
        return self.cb.hook_implementations()

    def __getattr__(self, name: str) -> Any:
        if name in _BESIDES_HOOKS:
            return getattr(self.cb, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cb!r})"


def innermost(callback: Callback) -> Callback:
    """Return the callback for which proxies, however many, stand in; or `callback` itself, if it is no proxy."""
    while isinstance(callback, ProxyCallback):
        callback = callback.cb
    return callback
