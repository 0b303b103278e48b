"""Shuffle a stream that is too long to shuffle as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tpk.dataflow.base import ProxyDataFlow, RNGDataFlow
from tpk.errors import ConfigError


class LocallyShuffleData(ProxyDataFlow, RNGDataFlow):
    """Shuffle within a buffer: each datapoint that is delivered is a random one of those in the buffer.

    Each epoch delivers every datapoint of the flow once. A datapoint comes at most `buffer_size` - 1 places
    before its turn.

    Args:
        flow: any iterable of datapoints.
        buffer_size: how many datapoints are held back.
        seed: see [`RNGDataFlow`][tpk.dataflow.RNGDataFlow].

    Raises:
        ConfigError: the buffer has no room, or the seed is not one.
    """

    def __init__(self, flow: Iterable[Any], buffer_size: int, seed: int | None = None) -> None:
        ProxyDataFlow.__init__(self, flow)
        RNGDataFlow.__init__(self, seed)
        if buffer_size < 1:
            raise ConfigError(f"LocallyShuffleData: buffer_size must be 1 or more, not {buffer_size}")
        self.buffer_size = buffer_size

    def __iter__(self) -> Iterator[Any]:
        rng = self.epoch_rng()
        buffer: list[Any] = []
        for datapoint in self.flow:
            buffer.append(datapoint)
            if len(buffer) == self.buffer_size:
                # The last fills the gap, so that taking one out costs the same wherever it stood.
                chosen = int(rng.integers(len(buffer)))
                buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
                yield buffer.pop()
        for index in rng.permutation(len(buffer)).tolist():
            yield buffer[index]
