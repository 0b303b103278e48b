"""What happens to the files of a directory, as it happens (inotify)."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HEADER = struct.Struct("iIII")


class DirectoryEvents:
    """Tells of changes in a directory.

    Args:
        descriptor: of an inotify instance.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def names(self) -> list[str]:
        """Return the name of a file for each change since the last call."""
        if not select.select([self], [], [], 0)[0]:
            return []
        data, names = os.read(self._descriptor, 1 << 16), []
        while data:
            length = _HEADER.unpack_from(data)[3]
            names.append(data[_HEADER.size : _HEADER.size + length].rstrip(b"\0").decode())
            data = data[_HEADER.size + length :]
        return names


@contextmanager
def directory_events(directory: Path) -> Iterator[DirectoryEvents]:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(directory), _MASK) < 0:
        raise OSError(ctypes.get_errno(), f"inotify of {directory}")
    try:
        yield DirectoryEvents(descriptor)
    finally:
        os.close(descriptor)
