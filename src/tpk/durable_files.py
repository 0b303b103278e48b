"""Writing files of a run: a crash leaves the old content or the new, and symbolic links are not followed.

Other users may be able to write to the directory of a run. If one of them put a symbolic link there, tpk could
overwrite any file of the user who trains. Needs no TensorFlow.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

from tpk.errors import ConfigError


def replace_file(path: Path, content: bytes, temporary: Path | None = None) -> None:
    """Replace the content of a file, so that readers, also after a crash, see all of the old content or all of the new.

    After a crash of the machine it may be either, unless `sync_directory` was called.

    Args:
        path: the file. A symbolic link of that name is replaced, not followed.
        content: the new content.
        temporary: the file to write first, in the same directory; it is overwritten. By default, ``.<name>.new``.

    Raises:
        OSError: if the file could not be written; it is unchanged.
    """
    temporary = temporary or path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # "x" follows no link
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def open_no_link(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does, but do not follow a symbolic link; an ``opener`` for `open`.

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
    """Check that a file that is about to be written is not a symbolic link.

    Raises:
        ConfigError: if it is one.
    """
    if os.path.islink(path):
        raise ConfigError(
            f"{os.fspath(path)!r} is a symbolic link. tpk does not write to its target, {os.readlink(path)!r}. "
            "Remove it, or name another directory."
        )


def free_name(directory: Path, stem: str, suffix: str = "") -> Path:
    """Return the first of ``<stem>-1<suffix>``, ``<stem>-2<suffix>``, … that does not exist in a directory."""
    candidates = (directory / f"{stem}-{number}{suffix}" for number in itertools.count(1))
    return next(path for path in candidates if not os.path.lexists(path))


def sync_file(path: Path) -> None:
    """Flush the content of a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the list of files in a directory to disk."""
    if os.name == "nt":  # Windows cannot do this.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
