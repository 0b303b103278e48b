"""Scalars in the log: a line for each epoch."""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

import tpk
from tpk.argument_checks import compiled
from tpk.errors import ConfigError
from tpk.monitors.base import Monitor

logger = logging.getLogger(__name__)

_ALL_BUT_AVERAGES = "(?s)(?!.*/EMA$).*"
_SPEED = "_per_second"
_RATE = "learning_rate"
_WIDTH_OF_TIME = len("12:00:00 ")
_WIDE_TERMINAL = 100
"""The number of columns from which on an epoch is one line; in a narrower terminal it is two."""


class ScalarPrinter(Monitor):
    """Logs a line at the end of each epoch, with the latest value of each scalar.

    The statistics that callbacks such as `MinSaver` follow come first, then the others by name, then learning rates,
    speeds and the checkpoints of the epoch::

        epoch 3/20, step 135 | validation_error 0.021 | cost 0.0123 | lr 0.001 | 37.5 steps/s | saving model-135

    The line fits the terminal; if that has fewer than 100 columns, there are two. The rest is logged at the
    level ``DEBUG``, as are moving averages (``cost/EMA``) unless `whitelist` names them: ``log.txt`` of the `run_dir`
    has all of it. A log that is not written to a terminal has everything in one line. Columns are aligned with the
    lines before. ``lr`` is short for ``learning_rate``.

    Args:
        enable_step: also log at the end of each step that reported a scalar.
        enable_epoch: log at the end of each epoch.
        whitelist: regular expressions that match whole names: only these scalars are logged. None means all but moving
            averages.
        blacklist: regular expressions that match whole names: these scalars are never logged.

    Raises:
        ConfigError: if one of the expressions is invalid.

    Example:
        ```python
        ScalarPrinter(blacklist=["learning_rate", "queue-.*"])
        ```
    """

    state_attributes = ("_values",)

    def __init__(
        self,
        enable_step: bool = False,
        enable_epoch: bool = True,
        whitelist: Iterable[str] | None = None,
        blacklist: Iterable[str] | None = None,
    ) -> None:
        self._enable_epoch = enable_epoch
        self._whitelist = _compile("whitelist", [_ALL_BUT_AVERAGES] if whitelist is None else whitelist)
        self._blacklist = _compile("blacklist", [] if blacklist is None else blacklist)
        self._values: dict[str, int | float] = {}
        self._widths: dict[str, int] = {}
        wanted = {"trigger_step": enable_step, "trigger_epoch": enable_epoch}
        self.unused_hooks = [hook for hook, is_wanted in wanted.items() if not is_wanted]

    def process_scalar(self, name: str, value: int | float) -> None:
        """Keep a value until the next line is logged."""
        if not _matches(name, self._blacklist):
            self._values[name] = value

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Log the scalars that this step reported."""
        # The last step of an epoch is logged with the epoch.
        if trainer.local_step != trainer.loop.steps_per_epoch - 1 or not self._enable_epoch:
            self._log(trainer)

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Log the scalars that were reported since the last line, and the checkpoints."""
        self._log(trainer, trainer.checkpoints.take_announcements())

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Log the scalars that were reported after the last epoch."""
        self._log(trainer)

    def _log(self, trainer: tpk.Trainer, saving: Sequence[str] = ()) -> None:
        """Log the values that were reported since the last time."""
        values, self._values = self._values, {}
        hidden = sorted(name for name in values if not _matches(name, self._whitelist))
        followed = trainer.monitors.followed
        names = sorted(values.keys() - set(hidden), key=lambda name: (name not in followed, *_place(name)))
        if not names and not saving:
            return
        parts = [self._align(name, _part(name, values[name])) for name in names]
        if saving:
            parts.append(f"saving {', '.join(saving)}")
        title = self._align("", f"{_title(trainer)}, step {trainer.global_step}")
        lines, left_out = _fit(title, parts, *_room())
        logger.info("%s", "\n".join(lines))
        left_out += [_part(name, values[name]) for name in hidden]
        if left_out:
            logger.debug("%s | %s", title, " | ".join(left_out))

    def _align(self, name: str, part: str) -> str:
        """Pad `part` to the greatest width that it ever had."""
        self._widths[name] = max(len(part), self._widths.get(name, 0))
        return part.ljust(self._widths[name])


def _room() -> tuple[int, int]:
    """Return the width and the number of the lines that an epoch may take."""
    columns = shutil.get_terminal_size((0, 0)).columns
    if not columns:
        return sys.maxsize, 1
    return columns - _WIDTH_OF_TIME, 1 if columns >= _WIDE_TERMINAL else 2


def _fit(title: str, parts: Iterable[str], width: int, number: int) -> tuple[list[str], list[str]]:
    """Put as many parts as possible into a number of lines; return the lines, and the parts that are left out."""
    lines, left_out = [title], []
    for part in parts:
        longer = f"{lines[-1]} | {part}"
        if len(longer.rstrip()) <= width:
            lines[-1] = longer
        elif len(lines) < number:
            lines.append(f"{'':<{len(title)}} | {part}")
        else:
            left_out.append(part.rstrip())
    return [line.rstrip() for line in lines], left_out


def _title(trainer: tpk.Trainer) -> str:
    if trainer.loop.max_epoch >= sys.maxsize:
        return f"epoch {trainer.epoch_num}"
    return f"epoch {trainer.epoch_num:{len(str(trainer.loop.max_epoch))}}/{trainer.loop.max_epoch}"


def _place(name: str) -> tuple[int, int, str]:
    """Return the key that scalars are sorted by: learning rates and speeds come last."""
    return name.endswith(_SPEED), name.endswith(_RATE), name.replace("steps", "") if name.endswith(_SPEED) else name


def _part(name: str, value: int | float) -> str:
    if name.endswith(_SPEED):
        return f"{f'{value:,.0f}' if value >= 1000 else _format(value)} {name.removesuffix(_SPEED)}/s"
    return f"{f'{name.removesuffix(_RATE)}lr' if name.endswith(_RATE) else name} {_format(value)}"


def _format(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _matches(name: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def _compile(option: str, patterns: Iterable[str]) -> list[re.Pattern[str]]:
    if isinstance(patterns, str):
        raise ConfigError(
            f"{option} takes a list of regular expressions; write {option}=[{patterns!r}] for a single one."
        )
    return [compiled(option, pattern) for pattern in patterns]
