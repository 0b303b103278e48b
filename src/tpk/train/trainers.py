"""The named trainers: each is a strategy with the input that suits it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpk.input_source import FeedInput, InputSource
from tpk.train.tower_trainer import SingleCostTrainer


class SimpleTrainer(SingleCostTrainer):
    """Trains on one device; a dataflow is fed with each step.

    The simplest there is, and the easiest to debug: data code runs in the training thread.
    """

    def __init__(self) -> None:
        super().__init__("single")

    def default_input(self, dataflow: Iterable[Any]) -> InputSource:
        """Return a `FeedInput`."""
        return FeedInput(dataflow)


class QueueInputTrainer(SingleCostTrainer):
    """Trains on one device; a dataflow is put into a queue by a thread, while the step computes."""

    def __init__(self) -> None:
        super().__init__("single")
