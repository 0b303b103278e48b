"""A text file that grows by whole lines, whatever interrupts the writing."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable
from pathlib import Path

from tpk.durable_files import open_no_link

logger = logging.getLogger(__name__)


class AppendFile:
    """Appends lines to a file, each by one write of the operating system: a killed process loses none.

    A line without an end, torn by a process that died while it wrote or by a full disk, is cut off, so that
    the next line does not become part of it.

    Args:
        path: the file; it and the folders above it are created if need be.
        is_whole: tells of a last line without a line end whether it is complete all the same.

    Raises:
        ConfigError: if the file is a symbolic link.
    """

    def __init__(self, path: Path, is_whole: Callable[[bytes], bool] = lambda line: False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: io.FileIO = io.FileIO(path, "a", opener=open_no_link)
        self._mend(is_whole)

    def append(self, line: str) -> None:
        """Append `line`, which has no line end.

        Raises:
            OSError: if it cannot be written; nothing of it is in the file then.
        """
        data = line.encode() + b"\n"
        before = self._file.seek(0, io.SEEK_END)
        try:
            if self._file.write(data) != len(data):
                raise OSError(f"{self._path}: a line could be written in part only; the disk may be full")
        except OSError:
            self._file.truncate(before)
            raise

    def sync(self) -> int:
        """Bring what was appended to the disk, and return the size of the file in bytes."""
        os.fsync(self._file.fileno())
        return self._file.seek(0, io.SEEK_END)

    def truncate(self, size: int) -> None:
        """Cut off what comes after `size` bytes, which were all that counted when `sync` returned that number."""
        found = self._file.seek(0, io.SEEK_END)
        if found < size:
            logger.warning("%s has %d bytes, but had %d at the checkpoint; lines are missing", self._path, found, size)
        elif found > size:
            logger.info("%s: cutting off %d bytes that were written after the checkpoint", self._path, found - size)
            self._file.truncate(size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _mend(self, is_whole: Callable[[bytes], bool]) -> None:
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        tail = content[whole:]
        if not tail:
            return
        if is_whole(tail):
            self._file.write(b"\n")
        else:
            logger.warning("%s ends in the middle of a line; cutting off %d bytes of it", self._path, len(tail))
            self._file.truncate(whole)
