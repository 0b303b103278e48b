"""The guard of ``tpk launch``: it ends the launched processes if the launcher itself is killed.

A separate program, run by its path. It leads the process group of everything that was launched, and waits until a
pipe that only ``tpk launch`` can write to is closed.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def guard(launcher: int, launched: int, grace: float) -> None:
    """Wait until the launcher is gone; then end the process group, including this process.

    Args:
        launcher: the descriptor of a pipe that the launcher holds.
        launched: the descriptor of a pipe that each launched process holds.
        grace: the seconds between SIGTERM and SIGKILL.
    """
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    os.read(launcher, 1)
    os.killpg(0, signal.SIGTERM)
    select.select([launched], [], [], grace)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    guard(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
