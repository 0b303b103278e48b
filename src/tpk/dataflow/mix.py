"""Random mixtures of several flows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpk.dataflow.base import DataFlow, RNGDataFlow, shard
from tpk.dataflow.combine import CombinedDataFlow
from tpk.errors import ConfigError


class RandomMixData(CombinedDataFlow, RNGDataFlow):
    """Deliver the datapoints of several flows in random turns, so that a pass has each of them once.

    The datapoints of one flow keep their order. The turns are drawn so that each flow runs through the whole pass.

    Args:
        flows: one iterable of datapoints or more, each with a length.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `flows` is not a list of different flows, or one has no length.
    """

    refills_arrays = None

    def __init__(self, flows: Iterable[Iterable[Any]], seed: int | None = None) -> None:
        CombinedDataFlow.__init__(self, flows)
        RNGDataFlow.__init__(self, seed)
        try:
            self.lengths()
        except TypeError as error:
            raise ConfigError(
                f"RandomMixData: flows must have a length each, to be mixed evenly: {error}. RandomChooseData draws "
                "from flows without one"
            ) from error

    def __len__(self) -> int:
        return sum(self.lengths())

    def __iter__(self) -> Iterator[Any]:
        begin, already_ended = self.begin() or (0, ())
        rng = self.epoch_rng()
        lengths = self.lengths()
        turns = np.repeat(np.arange(len(lengths)), lengths)
        rng.shuffle(turns)
        ended = set(already_ended)
        under_way: dict[int, Iterator[Any]] = {}
        for turn in range(begin, len(turns)):
            index = int(turns[turn])
            if index in ended:
                continue
            if index not in under_way:
                under_way[index] = iter(self.upstreams[index])
            for datapoint in under_way[index]:
                self.place = [turn + 1, sorted(ended)]
                yield datapoint
                break
            else:
                ended.add(index)  # it delivers fewer than its length says
        # What more there is, and so that each pass beneath comes to its end.
        for index, upstream in enumerate(self.upstreams):
            for datapoint in () if index in ended else under_way.get(index) or upstream:
                self.place = [len(turns), sorted(ended)]
                yield datapoint
            ended.add(index)
        self.place = None

    def shard(self, index: int, count: int) -> DataFlow:
        """Return the same on top of a share of each flow, with random turns of its own."""
        share = self.with_sources([shard(flow, index, count) for flow in self.sources])
        share.worker = (*self.worker, index)
        return share


class RandomChooseData(CombinedDataFlow, RNGDataFlow):
    """Deliver a datapoint of a flow that is drawn at random each time, until that flow has no more.

    Args:
        flows: iterables of datapoints, which are equally likely; or a pair of such an iterable and its probability for
            each.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `flows` is not a list of different flows, or the probabilities are none, or not 1 in all.

    Example:
        ```python
        flow = RandomChooseData([(RepeatedData(common, -1), 0.9), (RepeatedData(rare, -1), 0.1)])
        ```
    """

    refills_arrays = None

    def __init__(self, flows: Sequence[Any], seed: int | None = None) -> None:
        pairs = [flow for flow in flows if _is_pair(flow)]
        if pairs and len(pairs) < len(flows):
            raise ConfigError("RandomChooseData: flows must have a probability each, or none of them")
        CombinedDataFlow.__init__(self, [flow for flow, _ in pairs] if pairs else flows)
        RNGDataFlow.__init__(self, seed)
        self.probabilities = [float(probability) for _, probability in pairs] or [1 / len(flows)] * len(flows)
        if min(self.probabilities) < 0 or not math.isclose(sum(self.probabilities), 1, abs_tol=1e-6):
            raise ConfigError(
                f"RandomChooseData: the probabilities of the flows must be from 0 on and 1 in all, not "
                f"{self.probabilities}"
            )

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        iterators: dict[int, Iterator[Any]] = {}
        for number, index in enumerate(self._choices(rng, begin), begin + 1):
            if index not in iterators:
                iterators[index] = iter(self.upstreams[index])
            for datapoint in iterators[index]:
                self.place = number
                yield datapoint
                break
            else:
                break
        self.break_off()  # the others begin anew with the next pass

    def _choices(self, rng: np.random.Generator, begin: int) -> Iterator[int]:
        """Draw numbers of flows, endlessly, from the draw numbered `begin` on."""
        # A sum of 1 - 2**-53 would leave a gap at the top.
        bounds = np.cumsum(self.probabilities)[:-1]
        for _ in range(begin // _DRAWS_AT_ONCE):
            rng.random(_DRAWS_AT_ONCE)
        skip = begin % _DRAWS_AT_ONCE
        while True:
            yield from np.searchsorted(bounds, rng.random(_DRAWS_AT_ONCE), side="right")[skip:].tolist()
            skip = 0

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of each flow, with draws of its own."""
        share = self.with_sources([shard(flow, index, count, block) for flow in self.sources])
        share.worker = (*self.worker, index)
        return share


_DRAWS_AT_ONCE = 1024


def _is_pair(flow: Any) -> bool:
    return (
        isinstance(flow, tuple)
        and len(flow) == 2
        and isinstance(flow[1], (int, float))
        and not isinstance(flow[0], (int, float))
    )
