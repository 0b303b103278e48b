"""The directory of a run: its path, its log and configuration, and the checkpoint in it to resume from."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tpk.argument_checks import check_one_of
from tpk.checkpoint.files import Checkpoint, newest_complete
from tpk.durable_files import open_no_link, replace_file
from tpk.errors import CheckpointError, ConfigError
from tpk.plugin.recorded_options import leaves_of
from tpk.train.run.lock import run_lock
from tpk.train.run.names import CONFIG_NAME, RUN_FILE_NAME

logger = logging.getLogger(__name__)

RESUME: tuple[str, ...] = ("auto", "must", "never")
"""The values of the option `resume`."""

_FILE_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
_TERMINAL_FORMAT = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
_TERMINAL_FORMAT_OF_WARNINGS = logging.Formatter("%(asctime)s %(levelname)s: %(message)s", "%H:%M:%S")
_TRACES_OF_A_RUN = ("checkpoint", "stats.jsonl", CONFIG_NAME)


def default_run_dir(runs: Path | None = None) -> Path:
    """Return ``<runs>/<timestamp>``, a path that does not exist yet.

    Args:
        runs: the directory; by default ``runs/<script>`` under the current one.
    """
    runs = runs or Path("runs") / (Path(sys.argv[0]).stem or "python")
    base = runs / datetime.now().strftime("%Y%m%d-%H%M%S")
    candidate, number = base, 1
    while candidate.exists():
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate


def run_of_file(file: Path) -> Path | None:
    """Return the directory of the run that wrote a run file; None if the file was written by hand."""
    is_of_run = file.name == RUN_FILE_NAME and file.with_name(CONFIG_NAME).is_file()
    return file.parent if is_of_run else None


def check_resume(resume: str, run_dir: str | os.PathLike[str] | None) -> None:
    """Check the option `resume` of a training.

    Raises:
        ConfigError: if it is invalid, or the `run_dir` to resume from is missing.
    """
    check_one_of("train", RESUME, resume=resume)
    if resume != "never" and run_dir is None:
        raise ConfigError(
            f"resume={resume!r} needs a run_dir: the default one is new each time, so it never has a checkpoint. Give "
            "the directory of the run."
        )


def open_directory(directory: Path, resume: str, resources: ExitStack, *, may_hold_run: bool = False) -> None:
    """Create and lock the directory of a run.

    Raises:
        ConfigError: if it is a file, is not writable, is used by another process, or has a run that is not resumed.
        CheckpointError: if a run must be resumed, and the directory does not exist.
    """
    if resume == "must" and not directory.is_dir():
        raise _nothing_to_resume(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"run_dir {str(directory)!r} cannot be created: {error}. Name another directory.") from error
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"run_dir {str(directory)!r} cannot be written to. Name another directory.")
    resources.enter_context(run_lock(directory))
    held = [name for name in _TRACES_OF_A_RUN if (directory / name).exists()]
    if held and resume == "never" and not may_hold_run:
        raise ConfigError(
            f"run_dir {str(directory)!r} holds a run already ({', '.join(held)}). Name another directory, remove "
            "this one, or resume the run: resume='auto'."
        )


def find_start(resume: str, path: str | os.PathLike[str]) -> Checkpoint | None:
    """Return the newest checkpoint in the directory of a run from which a training can be resumed, or None.

    Raises:
        CheckpointError: if `resume` requires a checkpoint, and it is missing.
    """
    checkpoint = newest_complete(path)
    if checkpoint is None and resume == "must":
        raise _nothing_to_resume(path)
    return checkpoint


def _nothing_to_resume(path: str | os.PathLike[str]) -> CheckpointError:
    return CheckpointError(
        f"resume='must', but {os.fspath(path)!r} has no complete checkpoint. Name the directory of a run that "
        "saved one (ModelSaver), or give resume='auto' to start from the beginning without one."
    )


def check_is_there(directory: Path) -> None:
    """Check that the directory of a running training was not removed or moved.

    Otherwise open files, such as the log, would be lost, and new files would go to a new directory of the same name.

    Raises:
        CheckpointError: if it was removed or moved.
    """
    try:
        os.stat(directory / CONFIG_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"run_dir {str(directory)!r} was removed or moved while the training ran: its {CONFIG_NAME} is missing. "
            "The log, the statistics and the checkpoints are lost, too. Start the training again, and do not move the "
            "directory while it runs."
        ) from None


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write ``config.json``: the configuration of the run, as plain data.

    If the run was configured differently before, the differences are logged.
    """
    path = directory / CONFIG_NAME
    text = json.dumps(config, indent=2)
    before, now = leaves_of(_read_config(path)), leaves_of(json.loads(text))
    # Resuming a run does not change it.
    for name in sorted({*before, *now} - {"resume"}) if before else ():
        if before.get(name) != now.get(name):
            logger.info("config: %s was %r, and is %r now", name, before.get(name), now.get(name))
    with _writing(path):
        replace_file(path, f"{text}\n".encode())


def write_run_file(directory: Path, text: str) -> None:
    """Write ``config.toml``; without a text, remove the file of an earlier attempt."""
    path = directory / RUN_FILE_NAME
    with _writing(path):
        if text:
            replace_file(path, text.encode())
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be written: {error}. Remove what is in the way, or name another run_dir."
        ) from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8", opener=open_no_link) as file:
            config = json.load(file)
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


@contextmanager
def run_log(directory: Path | None, level_of_run: int = logging.INFO) -> Iterator[None]:
    """Within the context, write tpk's log to ``log.txt`` in `directory` and to the terminal.

    The terminal is used only if the application has not configured logging; the file then also has DEBUG messages. The
    handlers and the level are restored afterwards.

    Args:
        directory: the directory; None for the terminal only.
        level_of_run: the minimum level for the terminal, unless the application has set a level.

    Raises:
        ConfigError: if the file is a symbolic link.
    """
    root = logging.getLogger("tpk")
    level = root.level
    handlers: list[logging.Handler] = []
    if not root.hasHandlers():
        handlers.append(_TerminalHandler())
        if level == logging.NOTSET:
            handlers[-1].setLevel(level_of_run)
            level_of_run = logging.DEBUG
    if directory is not None:
        with _writing(directory / "log.txt"):
            handlers.append(_LogFile(directory / "log.txt", encoding="utf-8"))
        handlers[-1].setFormatter(_FILE_FORMAT)
    for handler in handlers:
        root.addHandler(handler)
    if level == logging.NOTSET and handlers:
        root.setLevel(level_of_run)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
            # On a full disk, closing fails too. That must not hide the error that ended the training.
            with suppress(OSError):
                handler.close()


class _LogFile(logging.FileHandler):
    """Writes to a file, but does not follow a symbolic link."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, errors=self.errors, opener=open_no_link)


class _TerminalHandler(logging.Handler):
    """Writes to stderr, above a progress bar, if any."""

    def format(self, record: logging.LogRecord) -> str:
        is_warning = record.levelno >= logging.WARNING
        return (_TERMINAL_FORMAT_OF_WARNINGS if is_warning else _TERMINAL_FORMAT).format(record)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # Write the line and its end at once: other threads and processes write there, too.
            tqdm.write(self.format(record) + "\n", file=sys.stderr, end="")
        except Exception:
            self.handleError(record)
