"""Trainers, by how a step is replicated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tpk
from tpk_tensorpack.input_source import FeedInput, QueueInput
from tpk_tensorpack.train.tower import SingleCostTrainer

__all__ = ["NoOpTrainer", "QueueInputTrainer", "SimpleTrainer"]


class SimpleTrainer(SingleCostTrainer):
    """Trains on one device; a data flow is fed with each step."""

    def __init__(self) -> None:
        super().__init__("single")

    def default_input(self, dataflow: Iterable[Any]) -> tpk.InputSource:
        """Return what feeds the data flow."""
        return FeedInput(dataflow)


class QueueInputTrainer(SimpleTrainer):
    """Trains on one device; a thread puts a data flow into a queue."""

    def default_input(self, dataflow: Iterable[Any]) -> tpk.InputSource:
        """Return what puts the data flow into a queue."""
        return QueueInput(dataflow)


class NoOpTrainer(SimpleTrainer):
    """Trains nothing: its steps run what callbacks ask for, and no more."""

    def run_step(self) -> None:
        """Run what callbacks ask for."""
        self.hooked_sess.run([])
