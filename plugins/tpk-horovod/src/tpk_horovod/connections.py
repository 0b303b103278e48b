"""The connections between processes that Horovod opens. It keeps them when it shuts down after a failure.

A process that waits for another one over such a connection notices that it has left only when the connection ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from contextlib import suppress

from tpk_distributed.connections import tcp_sockets


def open_connections() -> set[int]:
    """Return the inodes of the TCP sockets of this process."""
    found = set()
    for each in tcp_sockets():
        with each as held:
            found.add(os.fstat(held.fileno()).st_ino)
    return found


def end_connections(inodes: Collection[int]) -> None:
    """End the TCP connections of this process whose sockets have these inodes."""
    for each in tcp_sockets():
        with each as held, suppress(OSError):
            if os.fstat(held.fileno()).st_ino in inodes:
                held.shutdown(socket.SHUT_RDWR)
