"""Scalars in the log: a line for each epoch."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.monitors.base import Monitor

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class ScalarPrinter(Monitor):
    """Logs a line at the end of each epoch: the scalars, sorted by name, each with its latest value.

    Learning rates, speeds and the checkpoints of the epoch come last::

        epoch 3/20, step 135 | cost 0.0123 | validation_error 0.021 | lr 0.001 | 37.5 steps/s | saving model-135

    Columns are aligned with those of the lines before; what is too long for a terminal goes on in the next line.
    ``lr`` is short for ``learning_rate``. Moving averages (``cost/EMA``), which stand beside the means of the epoch,
    are logged at the level ``DEBUG``, which ``log.txt`` of the `run_dir` has, unless `whitelist` names them.

    Args:
        enable_step: log at the end of each step that reported any, too.
        enable_epoch: log at the end of each epoch.
        whitelist: regular expressions that match whole names: only these scalars are logged. None means all but moving
            averages.
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
        self._whitelist = _compile("whitelist", [_ALL_BUT_AVERAGES] if whitelist is None else whitelist)
        self._blacklist = _compile("blacklist", [] if blacklist is None else blacklist)
        self._values: dict[str, int | float] = {}
        self._hidden: dict[str, int | float] = {}
        self._widths: dict[str, int] = {}

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which something is logged."""
        wanted = {"trigger_step": self._enable_step, "trigger_epoch": self._enable_epoch}
        hooks = super().hook_implementations()
        return {name: hook for name, hook in hooks.items() if wanted.get(name, True)}

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take a value, to be logged unless a later one comes first."""
        if _matches(name, self._blacklist):
            return
        (self._values if _matches(name, self._whitelist) else self._hidden)[name] = value

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Log what this step reported; the last step of an epoch is logged with the epoch."""
        if trainer.local_step != trainer.loop.steps_per_epoch - 1 or not self._enable_epoch:
            self._log(trainer)

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Log what was reported since the last time, and what is being saved."""
        self._log(trainer, trainer.checkpoints.take_announcements())

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Log what was reported after the last epoch."""
        self._log(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return what has not been logged yet."""
        return {"values": dict(self._values), "hidden": dict(self._hidden)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._values, self._hidden = dict(state["values"]), dict(state["hidden"])

    def _log(self, trainer: TrainerProtocol, saving: Sequence[str] = ()) -> None:
        values, hidden = self._values, self._hidden
        self._values, self._hidden = {}, {}
        if not values and not saving:
            return
        title = self._align("", f"{_title(trainer)}, step {trainer.global_step}")
        parts = [self._align(name, _part(name, values[name])) for name in sorted(values, key=_place)]
        if saving:
            parts.append(f"saving {', '.join(saving)}")
        logger.info("%s", "\n".join(_lines(title, parts)))
        if hidden:
            logger.debug("%s | %s", title, " | ".join(_part(name, hidden[name]) for name in sorted(hidden)))

    def _align(self, name: str, part: str) -> str:
        """Return the part as wide as it ever was."""
        self._widths[name] = max(len(part), self._widths.get(name, 0))
        return part.ljust(self._widths[name])


_ALL_BUT_AVERAGES = "(?!.*/EMA$).*"
_SPEED = "_per_second"
_RATE = "learning_rate"
_LINE_LENGTH = 120
"""How long a line may be, behind the time."""


def _title(trainer: TrainerProtocol) -> str:
    if trainer.loop.max_epoch >= sys.maxsize:
        return f"epoch {trainer.epoch_num}"
    return f"epoch {trainer.epoch_num:{len(str(trainer.loop.max_epoch))}}/{trainer.loop.max_epoch}"


def _place(name: str) -> tuple[int, int, str]:
    """Return what scalars are sorted by: learning rates and speeds come last."""
    return name.endswith(_SPEED), name.endswith(_RATE), name.replace("steps", "") if name.endswith(_SPEED) else name


def _part(name: str, value: int | float) -> str:
    if name.endswith(_SPEED):
        return f"{_format_large(value)} {name.removesuffix(_SPEED)}/s"
    return f"{f'{name.removesuffix(_RATE)}lr' if name.endswith(_RATE) else name} {_format(value)}"


def _format(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _format_large(value: int | float) -> str:
    return f"{value:,.0f}" if value >= 1000 else _format(value)


def _lines(title: str, parts: Sequence[str]) -> list[str]:
    """Return the parts behind the title, in as many lines as they need."""
    lines = [title]
    for part in parts:
        longer = f"{lines[-1]} | {part}"
        if len(longer.rstrip()) <= _LINE_LENGTH or lines[-1] == title:
            lines[-1] = longer
        else:
            lines.append(f"{'':<{len(title)}} | {part}")
    return [line.rstrip() for line in lines]


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
