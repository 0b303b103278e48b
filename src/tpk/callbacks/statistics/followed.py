"""Statistics that callbacks follow: each value is looked at once, and one that nobody reports is an error."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.callbacks.triggers import ProxyCallback, innermost
from tpk.errors import UnknownScalarError
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import MonitorsProtocol, TrainerProtocol


class Statistic:
    """Follows a scalar that the monitors know.

    Args:
        name: its name.
        reverse: it becomes better by growing.

    Attributes:
        name: its name.
        reverse: whether it becomes better by growing.
    """

    def __init__(self, name: str, reverse: bool = False) -> None:
        self.name = name
        self.reverse = reverse
        self._seen = 0

    def take_new(self, monitors: MonitorsProtocol) -> float | None:
        """Return the latest value, or None if there has been none since the last call."""
        if self.name not in monitors.names:
            return None
        history = monitors.get_history(self.name)
        seen, self._seen = self._seen, len(history)
        return history[-1][1] if len(history) > seen else None

    def state_dict(self) -> dict[str, Any]:
        """Return how many values have been looked at."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._seen = state["seen"]


class StatisticFollower:
    """What a callback derives from, besides `Callback`, that does something when a statistic changes.

    So it is told of one that nobody reports, and the end of the training tells its best value.

    Attributes:
        statistic: the statistic; set by the constructor.
    """

    statistic: Statistic

    @property
    def best_checkpoint(self) -> Path | None:
        """Where the model is for which the statistic was best, if the callback has saved one."""
        return None


class StatisticCheck(Callback):
    """Ends a training in which a callback follows a statistic that nobody reports, after the first epoch without it.

    The trainer registers it, in all processes. A statistic may come at the end of an epoch, so the check is made once
    all callbacks have done their part of it, and the checkpoint of that epoch is taken. What stands under a condition
    of its own (`PeriodicTrigger`, `PeriodicCallback`, `EnableCallbackIf`) may report it later: as long as one of these
    has not had its turn, the check waits. That a callback's own code reports every few epochs only, nobody can know;
    who follows such a statistic should look at it as often: ``PeriodicTrigger(MinSaver("score"), every_k_epochs=5)``.

    Args:
        followers: all callbacks of the training that follow a statistic, also those that only the chief runs.
    """

    chief_only = False

    def __init__(self, followers: Sequence[StatisticFollower]) -> None:
        self._followers = followers
        self._is_done = False

    @hookimpl(wrapper=True, tryfirst=True)
    def trigger_epoch(self, trainer: TrainerProtocol) -> Generator[None, Any, Any]:  # type: ignore[override]
        """Check, after everything else, and after the checkpoint, which whoever corrects the name can resume from.

        Raises:
            UnknownScalarError: in all processes, if a statistic should have come and has not.
        """
        result = yield
        self._check(trainer)
        return result

    def _check(self, trainer: TrainerProtocol) -> None:
        if self._is_done:
            return
        found = self._look(trainer) if trainer.is_chief else None
        # Only the chief has all statistics.
        self._is_done, problem = trainer.strategy.process_group.broadcast_object(
            "the statistics that callbacks follow", found
        )
        if problem:
            raise UnknownScalarError(problem)

    def _look(self, trainer: TrainerProtocol) -> tuple[bool, str]:
        """Return whether the check is over, and the problem, if there is one."""
        history = trainer.monitors.history
        missing = [each for each in self._followers if each.statistic.name not in history]
        if not missing or any(map(_is_awaited, trainer.hooks.plugins.values())):
            return not missing, ""
        name = missing[0].statistic.name
        owner = type(missing[0]).__name__
        return True, (
            f"{owner} follows the statistic {name!r}, which nobody has reported up to the end of epoch "
            f"{trainer.epoch_num}. {history.nearest(name)} If it comes only every few epochs, look at it as often: "
            f"PeriodicTrigger({owner}(...), every_k_epochs=...)."
        )


def statistic_followers(callbacks: Sequence[Any]) -> list[StatisticFollower]:
    """Return those of `callbacks` that follow a statistic; of a proxy what it stands for."""
    inner = [innermost(each) for each in callbacks if isinstance(each, Callback)]
    return [each for each in inner if isinstance(each, StatisticFollower)]


def _is_awaited(plugin: object) -> bool:
    while isinstance(plugin, ProxyCallback):
        if plugin.is_awaited:
            return True
        plugin = plugin.cb
    return False
