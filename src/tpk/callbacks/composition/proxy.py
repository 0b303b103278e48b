"""Proxies: callbacks that stand in for another callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tpk.errors import PluginError
from tpk.plugin.callback import Callback, trigger_of
from tpk.plugin.catalog import get_catalog
from tpk.plugin.names.creation import Use

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
