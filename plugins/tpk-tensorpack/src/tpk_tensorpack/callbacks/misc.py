"""Callbacks that send statistics, open a shell or estimate the remaining time."""

from __future__ import annotations

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["EstimatedTimeLeft", "InjectShell", "SendStat"]


class SendStat(Callback, tpk.SendStat):
    """Run a command with statistics as arguments at each trigger; see `tpk.SendStat`.

    Args:
        command: the command, with ``{name}`` placeholders for statistics.
        names: the names of the statistics.
    """


class InjectShell(Callback, tpk.InjectShell):
    """Open a shell at a trigger if a file exists; see `tpk.InjectShell`. Without IPython, it opens pdb."""

    def __init__(self, file: str = "INJECT_SHELL.tmp", shell: str = "ipython") -> None:
        super().__init__(file, None if shell == "ipython" else shell)


class EstimatedTimeLeft(Callback, tpk.EstimatedTimeLeft):
    """Log the estimated remaining time at the end of each epoch; see `tpk.EstimatedTimeLeft`."""
