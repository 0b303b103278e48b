"""Callbacks that fit nowhere else: statistics to a program, a shell, the time that is left."""

from __future__ import annotations

import tpk
from tpk_tensorpack.callbacks.base import Callback

__all__ = ["EstimatedTimeLeft", "InjectShell", "SendStat"]


class SendStat(Callback, tpk.SendStat):
    """Runs a command with statistics in it at each trigger; see `tpk.SendStat`.

    Args:
        command: the command, with ``{name}`` for each statistic.
        names: the statistics.
    """

    def __init__(self, command: str, names: str | list[str]) -> None:
        super().__init__(command, names)


class InjectShell(Callback, tpk.InjectShell):
    """Opens a shell at a trigger if a file exists; see `tpk.InjectShell`. Without IPython, it opens pdb."""

    def __init__(self, file: str = "INJECT_SHELL.tmp", shell: str = "ipython") -> None:
        super().__init__(file, None if shell == "ipython" else shell)


class EstimatedTimeLeft(Callback, tpk.EstimatedTimeLeft):
    """Logs at the end of each epoch how long the rest will take; see `tpk.EstimatedTimeLeft`."""

    def __init__(self, last_k_epochs: int = 5, median: bool = True) -> None:
        super().__init__(last_k_epochs, median)
