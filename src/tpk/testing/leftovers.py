"""Leftovers: threads, processes, open files and sockets that a training leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from tpk.testing.comparison import Broken

PATIENCE = 10.0
"""How many seconds a thread or process gets to end."""

_DESCRIPTORS = Path("/proc/self/fd")
_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/", "anon_inode:", "pipe:", "/memfd:")


@attrs.define
class Leftovers:
    """What was left behind.

    Attributes:
        found: a description of each leftover.
    """

    found: list[str] = attrs.field(factory=list)

    def check(self, what: str) -> None:
        """Raise `Broken` if there are leftovers of `what`."""
        if self.found:
            raise Broken(f"nothing that {what} leaves behind", ", ".join(self.found))


@contextmanager
def leaving_nothing(what: str) -> Iterator[None]:
    """Raise `Broken` if the code within the context leaves something behind; `what` names that code in the message."""
    with watching() as leftovers:
        yield
    leftovers.check(what)


@contextmanager
def watching() -> Iterator[Leftovers]:
    """Record what the code within the context leaves behind.

    Open files are detected on Linux. The monitoring thread that tqdm starts once for all bars is ignored.
    """
    threads, processes, files = set(threading.enumerate()), set(multiprocessing.active_children()), _open_files()
    leftovers = Leftovers()
    yield leftovers
    for thread in set(threading.enumerate()) - threads:
        if type(thread).__module__.startswith("tqdm"):
            continue
        thread.join(PATIENCE)
        if thread.is_alive():
            leftovers.found.append(f"the thread {thread.name!r}")
    for process in set(multiprocessing.active_children()) - processes:
        process.join(PATIENCE)
        if process.is_alive():
            leftovers.found.append(f"the process {process.name!r}")
    for descriptor, target in _open_files().items():
        if files.get(descriptor) != target:
            leftovers.found.append(f"{target!r}, which is open")


def _open_files() -> dict[str, str]:
    if not _DESCRIPTORS.is_dir():
        return {}
    found = {}
    for descriptor in os.listdir(_DESCRIPTORS):
        try:
            target = os.readlink(_DESCRIPTORS / descriptor)
        except OSError:  # The descriptor that `listdir` used.
            continue
        if not target.startswith(_OF_THE_SYSTEM):
            found[descriptor] = target
    return found
