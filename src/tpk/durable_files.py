"""Files of a run that are written so that a crash leaves the old content or the new, and that no link leads elsewhere.

Others may be able to write to the directory of a run, and may have put a symbolic link where a file is about to be
written: it would lead to any file of the user who trains. Needs no TensorFlow.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

from tpk.errors import ConfigError


def replace_file(path: Path, content: bytes, beside: Path) -> None:
    """Give a file new content: who reads it, and a crash, finds all of the old or all of the new.

    Which of the two a crash of the machine leaves is settled by `sync_directory`.

    Args:
        path: the file. A link of that name is replaced, not followed.
        content: what it is to hold.
        beside: where to write first, in the same directory; what is there is removed.

    Raises:
        OSError: it could not be written, and is as it was.
    """
    try:
        beside.unlink(missing_ok=True)
        with beside.open("xb") as file:  # "x" follows no link
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def open_no_link(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does, but not where a link leads; an ``opener`` for `open`.

    Raises:
        ConfigError: if `path` is a symbolic link.

    Example:
        ```python
        with open(run_dir / "notes.txt", "a", opener=open_no_link) as file:
            file.write("…")
        ```
    """
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), mode)
    except OSError:
        refuse_link(path)
        raise


def refuse_link(path: str | os.PathLike[str]) -> None:
    """See to it that a file that is to be written is no link.

    Raises:
        ConfigError: if it is one.
    """
    if os.path.islink(path):
        raise ConfigError(
            f"{os.fspath(path)!r} is a symbolic link. What tpk writes there would go to {os.readlink(path)!r}, so it "
            "writes nothing. Remove it, or name another directory."
        )


def free_name(directory: Path, stem: str, suffix: str = "") -> Path:
    """Return the first of ``<stem>-1<suffix>``, ``<stem>-2<suffix>``, … that does not exist in a directory."""
    candidates = (directory / f"{stem}-{number}{suffix}" for number in itertools.count(1))
    return next(path for path in candidates if not os.path.lexists(path))


def sync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Bring to the disk which files a directory has."""
    if os.name == "nt":  # Windows has no such thing.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
