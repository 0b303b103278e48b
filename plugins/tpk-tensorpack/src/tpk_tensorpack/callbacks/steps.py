"""Callbacks that print tensors, show progress or limit the time of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tpk
from tpk_tensorpack.callbacks.base import Callback
from tpk_tensorpack.missing import not_here

__all__ = ["ProgressBar", "SessionRunTimeout", "TensorPrinter"]

__getattr__ = not_here(__name__, {"MaintainStepCounter": "self.global_step: trainers count their steps themselves"})


class TensorPrinter(Callback, tpk.TensorPrinter):
    """Print the values of tensors in each step; see `tpk.TensorPrinter`.

    Args:
        names: names of tensors, or tensors.
    """

    def __init__(self, names: Sequence[Any]) -> None:
        super().__init__(names)


class ProgressBar(Callback, tpk.ProgressBar):
    """Show the progress of the epoch and tensors of the main tower; see `tpk.ProgressBar`.

    Args:
        names: names of tensors, or tensors.
    """

    def __init__(self, names: Sequence[Any] = ()) -> None:
        super().__init__(tuple(names))


class SessionRunTimeout(Callback, tpk.SessionRunTimeout):
    """Raise an error if a step takes too long; see `tpk.SessionRunTimeout`."""
