"""Output of the processes of ``tpk launch``: line by line as it comes, each tagged by who wrote it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import tty
from collections import deque
from collections.abc import Callable

LONGEST_LINE = 1 << 16
TAIL_LINES = 200
_TRACEBACK = b"Traceback (most recent call last)"


class Console:
    """Standard output and error, and below them a line that changes: the progress bar of rank 0.

    Args:
        stdout: a descriptor.
        stderr: a descriptor.
    """

    def __init__(self, stdout: int = 1, stderr: int = 2) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self._bar = b""

    @property
    def has_terminal(self) -> bool:
        """Whether a progress bar can be shown."""
        return os.isatty(self.stderr)

    def write(self, descriptor: int, lines: bytes) -> None:
        """Write whole lines to one of the two."""
        if self._bar:
            _write_all(self.stderr, b"\r\x1b[K")
        _write_all(descriptor, lines)
        if self._bar:
            _write_all(self.stderr, self._bar)

    def say(self, message: str) -> None:
        """Write a line of the launcher's own to stderr."""
        self.write(self.stderr, f"tpk: {message}\n".encode())

    def show_bar(self, bar: bytes) -> None:
        """Show this as the last line, in place of the bar that was there; nothing for none."""
        if bar != self._bar:
            _write_all(self.stderr, b"\r\x1b[K" + bar)
            self._bar = bar


class TaggedLines:
    """The lines of one stream of one process.

    What was overwritten by a carriage return, as progress bars are, is not shown again in each state.

    Args:
        tag: what they begin with.
        write: takes whole lines.
        show_bar: takes a line that is not complete yet and will be overwritten; None if none can be shown.
    """

    def __init__(self, tag: str, write: Callable[[bytes], None], show_bar: Callable[[bytes], None] | None) -> None:
        self._tag = f"[{tag}] ".encode()
        self._write = write
        self._show_bar = show_bar
        self._begun = b""
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > LONGEST_LINE:
            lines.append(self._begun)
            self._begun = b""
        if self._show_bar is not None:
            self._show_bar(b"")
        if lines:
            seen = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
            self._tail.extend(seen)
            self._write(b"".join(self._tag + line + b"\n" for line in seen))
        if self._show_bar is not None and b"\r" in self._begun:
            self._show_bar(self._tag + self._begun.rstrip(b"\r").rpartition(b"\r")[2])

    def end(self) -> None:
        """Write what is left without the end of its line."""
        if self._begun:
            self.feed(b"\n")

    @property
    def last_line(self) -> bytes:
        """The last line that is not empty."""
        return next((line for line in reversed(self._tail) if line.strip()), b"")

    def error(self) -> bytes:
        """Return the last traceback, with those that led to it, or else the last lines."""
        lines = list(self._tail)
        first = next((number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)), None)
        shown = lines[-20:] if first is None else lines[first:]
        return b"".join(line + b"\n" for line in shown)


def terminal_like(terminal: int, narrower: int) -> tuple[int, int]:
    """Return the two ends of a pseudo-terminal, the second for a process that shall believe in it.

    Args:
        terminal: the terminal whose size it has.
        narrower: by how many columns it is narrower.
    """
    ours, theirs = pty.openpty()
    # What is written passes as it is.
    tty.setraw(theirs)
    rows, columns, *pixels = struct.unpack("4H", fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, max(columns - narrower, 1), *pixels))
    return ours, theirs


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
