"""Leftovers: threads, processes, open files and sockets that something has left behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from tpk.testing.rules import Broken

PATIENCE = 10.0
"""For how many seconds a thread or process may take to end that was told to."""

_DESCRIPTORS = Path("/proc/self/fd")
_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/", "anon_inode:", "pipe:", "/memfd:")


@attrs.define
class Leftovers:
    """What was left behind.

    Attributes:
        found: each of them, in words.
    """

    found: list[str] = attrs.field(factory=list)

    def check(self, what: str) -> None:
        """See to it that there are none.

        Raises:
            Broken: if there are.
        """
        if self.found:
            raise Broken(f"nothing that {what} leaves behind", ", ".join(self.found))


@contextmanager
def watching() -> Iterator[Leftovers]:
    """Find what is left behind by what is done within the context.

    Open files are seen on Linux. The monitoring thread that tqdm starts once for all bars does not count.
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
        except OSError:  # The one by which the directory is read.
            continue
        if not target.startswith(_OF_THE_SYSTEM):
            found[descriptor] = target
    return found
