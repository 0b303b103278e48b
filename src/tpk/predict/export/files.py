"""Files and directories that appear as a whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tpk.errors import ConfigError

_OF_PATTERNS = frozenset("[]*?\\")


@contextmanager
def new_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give another path in the same directory to write to, a file or a directory; it becomes `path` at the end.

    If anything fails in the context, nothing is left of it. Directories above are created.

    Args:
        path: what must not be there yet.

    Raises:
        ConfigError: if it is there, cannot be written, or TensorFlow could not read from there.
    """
    target = Path(os.path.abspath(path))
    _check_is_new(target)
    if set(str(target)) & _OF_PATTERNS:
        raise ConfigError(
            f"what is exported to {str(path)!r} could not be read again: TensorFlow takes a path with one of "
            f"{' '.join(sorted(_OF_PATTERNS))} for a pattern. Name another path."
        )
    above = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        _remove_empty(above)
        raise ConfigError(f"nothing can be written to {target.parent}: {error}") from error
    try:
        yield beside / target.name
        with _telling(target):
            _sync(beside / target.name)
            _check_is_new(target)
            os.rename(beside / target.name, target)
            _sync_one(target.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if not target.exists():
            _remove_empty(above)


def write_file(path: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        ConfigError: if it cannot be written.
    """
    with _telling(path):
        path.write_bytes(content)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} could not be written: {error}") from error


def _check_is_new(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already, and is left as it is. Export to another path, or remove it first.")


def _remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()


def _sync(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        _sync_one(each)


def _sync_one(path: Path) -> None:
    # Windows can open no directory.
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
