"""Scalars in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.monitors.base import Monitor

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class ScalarPrinter(Monitor):
    """Logs a summary at the end of each epoch: the scalars, sorted by name, each with its latest value.

    Args:
        enable_step: log at the end of each step that reported any, too.
        enable_epoch: log at the end of each epoch.
        whitelist: regular expressions that match whole names: only these scalars are logged. None means all.
        blacklist: regular expressions that match whole names: these scalars are not logged.

    Raises:
        ConfigError: if one of the expressions is invalid.

    Example:
        ```python
        ScalarPrinter(blacklist=["learning_rate", "queue-.*"])
        ```
    """

    def __init__(
        self,
        enable_step: bool = False,
        enable_epoch: bool = True,
        whitelist: Iterable[str] | None = None,
        blacklist: Iterable[str] | None = None,
    ) -> None:
        self._enable_step = enable_step
        self._enable_epoch = enable_epoch
        self._whitelist = _compile("whitelist", [".*"] if whitelist is None else whitelist)
        self._blacklist = _compile("blacklist", [] if blacklist is None else blacklist)
        self._values: dict[str, int | float] = {}

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which something is logged."""
        wanted = {"trigger_step": self._enable_step, "trigger_epoch": self._enable_epoch}
        hooks = super().hook_implementations()
        return {name: hook for name, hook in hooks.items() if wanted.get(name, True)}

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take a value, to be logged unless a later one comes first."""
        if _matches(name, self._whitelist) and not _matches(name, self._blacklist):
            self._values[name] = value

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Log what this step reported; the last step of an epoch is logged with the epoch."""
        if trainer.local_step != trainer.steps_per_epoch - 1 or not self._enable_epoch:
            self._log(trainer)

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Log what was reported since the last time."""
        self._log(trainer)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Log what was reported after the last epoch."""
        self._log(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return what has not been logged yet."""
        return {"values": dict(self._values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._values = dict(state["values"])

    def _log(self, trainer: TrainerProtocol) -> None:
        if self._values:
            width = max(map(len, self._values))
            lines = [f"  {name:<{width}}  {_format(self._values[name])}" for name in sorted(self._values)]
            logger.info("epoch %d, step %d:\n%s", trainer.epoch_num, trainer.global_step, "\n".join(lines))
        self._values = {}


def _format(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5g}"


def _matches(name: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def _compile(option: str, patterns: Iterable[str]) -> list[re.Pattern[str]]:
    if isinstance(patterns, str):
        raise ConfigError(
            f"{option} takes a list of regular expressions; write {option}=[{patterns!r}] for a single one."
        )
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern, re.DOTALL))
        except re.error as error:
            raise ConfigError(f"{option}: {pattern!r} is no regular expression: {error}.") from error
    return compiled
