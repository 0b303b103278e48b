"""Shuffling of a stream that is too long to shuffle as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tpk.checks import check_at_least
from tpk.dataflow.base import RNGDataFlow, may_refill
from tpk.dataflow.memory import copy_arrays
from tpk.dataflow.transforms.lookahead import LookaheadDataFlow


class LocallyShuffleData(LookaheadDataFlow, RNGDataFlow):
    """Shuffle within a buffer: each datapoint that is delivered is a random one of those in the buffer.

    Each epoch delivers every datapoint of the flow once. A datapoint comes at most `buffer_size` - 1 places
    before its turn. To use each of them several times, which costs less than to make as many, put a
    `RepeatedDataPoint` beneath.

    A resumed run fills the buffer again by going through the epoch's datapoints up to there.

    Args:
        flow: any iterable of datapoints.
        buffer_size: how many datapoints are held back.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: the buffer has no room, or the seed is not one.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], buffer_size: int, seed: int | None = None) -> None:
        LookaheadDataFlow.__init__(self, flow)
        RNGDataFlow.__init__(self, seed)
        check_at_least(self, 1, buffer_size=buffer_size)
        self.buffer_size = buffer_size

    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver an epoch, given what the flow beneath delivers."""
        rng = self.epoch_rng()
        room = self.buffer_size
        # Drawn many at once: a single number costs more than all the rest.
        chosen: list[int] = []
        buffer: list[Any] = []
        for datapoint in map(copy_arrays, datapoints) if may_refill(self.flow) else datapoints:
            if len(buffer) < room - 1:
                buffer.append(datapoint)
                continue
            if not chosen:
                chosen = rng.integers(room, size=_DRAWS_AT_ONCE).tolist()
            index = chosen.pop()
            if index == room - 1:
                yield datapoint
            else:
                taken, buffer[index] = buffer[index], datapoint
                yield taken
        for index in rng.permutation(len(buffer)).tolist():
            yield buffer[index]


_DRAWS_AT_ONCE = 1024
