"""Guard of ``tpk launch``, which ends its processes when that itself is killed, and can no longer do it.

A program of its own, run by its path: it leads the process group of all that was launched, with their workers, and
waits for the end of a pipe that only ``tpk launch`` can write to.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def guard(launcher: int, launched: int, grace: float) -> None:
    """Wait until the launcher is gone; then end the group, and this process with it.

    Args:
        launcher: the descriptor of a pipe that the launcher holds.
        launched: that of one that each launched process holds.
        grace: the seconds that these have between SIGTERM and SIGKILL.
    """
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    os.read(launcher, 1)
    os.killpg(0, signal.SIGTERM)
    select.select([launched], [], [], grace)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    guard(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
