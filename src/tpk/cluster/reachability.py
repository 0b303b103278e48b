"""Whether other processes of a training listen at their addresses."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable

_SECONDS_BETWEEN_LOOKS = 0.2


def is_listening(address: str, seconds: float = 2.0) -> bool:
    """Return whether something listens at an address.

    Args:
        address: ``"host:port"``.
        seconds: how long to wait for an answer.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds):
            return True
    except OSError:
        return False


def wait_until_listening(addresses: Iterable[str], seconds: float) -> list[str]:
    """Wait until something listens at each of the addresses; return those where nothing does after that time."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    silent = list(addresses)
    while True:
        silent = [address for address in silent if not is_listening(address)]
        if not silent or time.monotonic() >= deadline:
            return silent
        pause.wait(_SECONDS_BETWEEN_LOOKS)
