"""The log and log directory of a script.

``logger.info`` and similar functions write lines such as ``[0131 23:59:59 @train.py:12] message`` to standard output,
and to ``log.log`` in the directory set by `set_logger_dir` or `auto_set_dir`. The trainers also write to that
directory.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path

__all__ = [
    "addFilter",
    "auto_set_dir",
    "critical",
    "debug",
    "error",
    "exception",
    "get_logger_dir",
    "info",
    "setLevel",
    "set_logger_dir",
    "warn",
    "warning",
]

LOG_DIR: str | None = None
_ACTIONS = ("b", "d", "n", "k")
_file_handler: logging.FileHandler | None = None

_RED, _YELLOW, _GREEN, _CYAN, _PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[36m", "\033[0m"
_TAGS = {logging.WARNING: ("WRN", _YELLOW), logging.ERROR: ("ERR", _RED), logging.CRITICAL: ("ERR", _RED)}


class _Format(logging.Formatter):
    """Formats lines with the time and source location of the call, and colors on a terminal."""

    def __init__(self, in_colors: bool) -> None:
        super().__init__(datefmt="%m%d %H:%M:%S")
        self._in_colors = in_colors

    def format(self, record: logging.LogRecord) -> str:
        tag, color = _TAGS.get(record.levelno, ("DBG", _CYAN) if record.levelno < logging.INFO else ("", ""))
        stamp = f"[{self.formatTime(record, self.datefmt)} @{record.filename}:{record.lineno}]"
        if self._in_colors:
            stamp = f"{_GREEN}{stamp}{_PLAIN}"
            tag = f"{color}{tag}{_PLAIN}" if tag else ""
        line = " ".join(filter(None, [stamp, tag, record.getMessage()]))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _make_logger() -> logging.Logger:
    log = logging.getLogger("tpk_tensorpack")
    log.propagate = False
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Format(in_colors=sys.stdout.isatty()))
    log.addHandler(handler)
    return log


_logger = _make_logger()
info, warning, error, critical = _logger.info, _logger.warning, _logger.error, _logger.critical
exception, debug, setLevel, addFilter = _logger.exception, _logger.debug, _logger.setLevel, _logger.addFilter
warn = _logger.warning


def get_logger_dir() -> str | None:
    """Return the log directory, or None if it has not been set."""
    return LOG_DIR


def set_logger_dir(dirname: str, action: str | None = None) -> None:
    """Create the log directory of the script; the trainers also write to it.

    Args:
        dirname: the directory.
        action: what to do if the directory exists: ``"d"`` deletes it, ``"b"`` renames it (to a name with the time),
            ``"n"`` chooses a new name (with the time), ``"k"`` keeps its contents. By default, the user is asked on
            standard input.

    Raises:
        OSError: the directory exists, and neither `action` nor an answer is given.
        ValueError: `action` is invalid.
    """
    global LOG_DIR, _file_handler
    dirname = os.path.normpath(dirname)
    if _file_handler is not None:
        _logger.removeHandler(_file_handler)
        _file_handler.close()
        _file_handler = None
    exists = os.path.isdir(dirname) and os.listdir(dirname)
    if exists and action is None:
        action = _asked(dirname)
    if action not in (None, *_ACTIONS):
        raise ValueError(f"action={action!r}: expected one of {', '.join(map(repr, _ACTIONS))}")
    if exists and action == "d":
        shutil.rmtree(dirname)
    elif exists and action == "b":
        kept = _with_time(dirname)
        shutil.move(dirname, kept)
        info("The existing log directory %r was renamed to %r.", dirname, kept)
    elif exists and action == "n":
        dirname = _with_time(dirname)
    os.makedirs(dirname, exist_ok=True)
    LOG_DIR = dirname
    _file_handler = logging.FileHandler(os.path.join(dirname, "log.log"), encoding="utf-8")
    _file_handler.setFormatter(_Format(in_colors=False))
    _logger.addHandler(_file_handler)
    info("Argv: %s", " ".join(sys.argv))


def auto_set_dir(action: str | None = None, name: str | None = None) -> None:
    """Set the log directory to ``train_log/<name of the script>``.

    Args:
        action: as for `set_logger_dir`.
        name: what to append to the name, after a colon.
    """
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "interactive").stem
    set_logger_dir(os.path.join("train_log", f"{script}:{name}" if name else script), action)


def _asked(dirname: str) -> str:
    warning(
        f"Log directory {dirname} exists! Use 'd' to delete it. If you're resuming from a previous run, 'k' keeps it."
    )
    answer = ""
    while answer not in {*_ACTIONS, "q"}:
        try:
            answer = input("Select Action: k (keep) / d (delete) / b (backup) / n (new) / q (quit): ").strip().lower()
        except EOFError:
            raise OSError(
                f"The log directory {dirname!r} exists, and standard input gave no answer. Call set_logger_dir or "
                "auto_set_dir with action='k' to keep it, 'd' to delete it, 'b' to rename it, or 'n' for a new name."
            ) from None
    if answer == "q":
        raise OSError(f"the log directory {dirname!r} exists; you chose to quit")
    return answer


def _with_time(dirname: str) -> str:
    return f"{dirname}{datetime.now():_%m%d-%H%M%S}"
