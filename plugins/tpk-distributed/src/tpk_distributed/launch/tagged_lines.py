"""The output of the processes of ``tpk launch``: each line as it comes, with a tag that says who wrote it."""

from __future__ import annotations

import os
from collections import deque

MAX_LINE_LENGTH = 1 << 16
_TAIL_LINES = 200
_TRACEBACK = b"Traceback (most recent call last)"


class TaggedLines:
    """The lines of one stream of one process. Of a progress bar, only the last state is shown.

    Args:
        tag: what the lines begin with, in brackets; empty for lines that have a tag already.
        descriptor: where to write them.
    """

    def __init__(self, tag: str, descriptor: int) -> None:
        self._tag = f"[{tag}] ".encode() if tag else b""
        self._descriptor = descriptor
        self._begun = b""
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)

    def feed(self, data: bytes) -> None:
        """Add data, and write the lines that are complete."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > MAX_LINE_LENGTH:
            lines.append(self._begun)
            self._begun = b""
        visible = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
        self._tail.extend(visible)
        write(self._descriptor, b"".join(self._tag + line + b"\n" for line in visible))

    def end(self) -> None:
        """Write a last line that has no newline."""
        if self._begun:
            self.feed(b"\n")

    @property
    def last_line(self) -> bytes:
        """The last line that is not empty."""
        return next((line for line in reversed(self._tail) if line.strip()), b"")

    def error(self) -> bytes:
        """Return the last tracebacks, or without any the last lines."""
        lines = list(self._tail)
        first = next((number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)), None)
        shown = lines[-20:] if first is None else lines[first:]
        return b"".join(line + b"\n" for line in shown)


def say(message: str) -> None:
    """Write a line of the launcher to stderr."""
    write(2, f"tpk: {message}\n".encode())


def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    while data:
        data = data[os.write(descriptor, data) :]
