"""Combinations of several flows: in sequence, side by side, or in random order."""

from __future__ import annotations

import copy
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from tpk.dataflow.base import (
    DataFlow,
    RNGDataFlow,
    SequenceDataFlow,
    StatefulDataFlow,
    check_iterable,
    check_share,
    flow_length,
    is_sequence,
    shard,
)
from tpk.dataflow.position import Count, Position, has_state, in_parts
from tpk.errors import ConfigError, InputError

CombinedT = TypeVar("CombinedT", bound="CombinedDataFlow")


class CombinedDataFlow(StatefulDataFlow):
    """Base of the flows on top of several flows; a subclass iterates `self.upstreams`.

    Args:
        flows: one or more iterables of datapoints.

    Raises:
        ConfigError: `flows` is empty, one is not iterable, or the same flow occurs twice: it has only one position.
    """

    def __init__(self, flows: Iterable[Iterable[Any]]) -> None:
        owner = type(self).__name__
        check_iterable(flows, owner)
        flows = list(flows)
        if not flows:
            raise ConfigError(f"{owner} takes a list of one flow or more, not an empty one")
        for flow in flows:
            check_iterable(flow, owner)
        check_distinct(flows, owner)
        self.upstreams = [Position(flow) for flow in flows]

    @property
    def positions(self) -> Sequence[Position]:
        """The positions of the flows beneath."""
        return self.upstreams

    def with_sources(self: CombinedT, sources: Sequence[Iterable[Any]]) -> CombinedT:
        """Return the same on top of other flows."""
        same = copy.copy(self)
        same.upstreams = [Position(flow) for flow in sources]
        same.place, same._is_loaded = None, False
        return same

    def share_of_each(self: CombinedT, index: int, count: int, block: int = 1) -> CombinedT:
        """Return the same on top of a share of each flow, with its own random numbers if it has any."""
        share = self.with_sources([shard(flow, index, count, block) for flow in self.sources])
        if share._random is not None:
            share._random.worker = (*share._random.worker, index)
        return share

    def lengths(self) -> list[int]:
        """Return the length of each flow beneath.

        Raises:
            TypeError: a flow has no length.
        """
        return [len(flow) for flow in self.sources]  # type: ignore[arg-type]


class ConcatData(CombinedDataFlow):
    """Deliver the datapoints of several flows in sequence.

    Args:
        flows: one or more iterables of datapoints.

    Raises:
        ConfigError: `flows` is not a list of different flows.
    """

    refills_arrays = None

    def __len__(self) -> int:
        return sum(self.lengths())

    @in_parts
    def __iter__(self) -> Generator[Iterable[Any], None, None]:
        for index in range(self.begin() or 0, len(self.upstreams)):
            self.place = index
            yield self.upstreams[index]
        self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a worker: the same on top of a share of each flow if the lengths allow it."""
        check_share(index, count)
        shares = []
        before = 0
        for flow in self.sources:
            if before % block:
                return super().shard_blocks(index, count, block)
            shares.append(shard(flow, (index - before // block) % count, count, block))
            length = flow_length(flow)
            if length is None and block > 1:
                return super().shard_blocks(index, count, block)
            before += length or 0
        return self.with_sources(shares)


class JoinData(CombinedDataFlow):
    """Join a datapoint of each flow to one datapoint with all their components, until a flow ends.

    Args:
        flows: one or more iterables of datapoints: all lists or tuples, which give a list, or all dicts, which give a
            dict.

    Raises:
        ConfigError: `flows` is not a list of different flows.
        InputError: the datapoints are lists and dicts, or two dicts have the same key.

    Example:
        ```python
        flow = JoinData([DataFromList([[1], [2]]), DataFromList([["a"], ["b"]])])
        list(flow)  # [[1, "a"], [2, "b"]]
        ```
    """

    refills_arrays = None

    def __len__(self) -> int:
        return min(self.lengths())

    def __iter__(self) -> Iterator[Any]:
        self.place = count = Count(self.begin() or 0)
        first: list[Any] = []
        iterators: list[Iterator[Any]] = []
        for upstream in self.upstreams:
            # A flow begins only after the flows before it have delivered a datapoint.
            iterators.append(iter(upstream))
            first.extend(islice(iterators[-1], 1))
            if len(first) < len(iterators):
                break
        else:
            for datapoints in count.over(chain([tuple(first)], zip(*iterators, strict=False))):
                yield _join(datapoints, count)
        self.break_off()  # the longer flows start again in the next pass

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a worker: for sequences, the same on top of a share of each."""
        # Other flows may drop datapoints, so datapoints of the same number may be in different shares.
        if all(is_sequence(flow) or isinstance(flow, SequenceDataFlow) for flow in self.sources):
            return self.share_of_each(index, count, block)
        return super().shard_blocks(index, count, block)


def _join(datapoints: tuple[Any, ...], count: Count) -> Any:
    components: list[Any] = []
    for datapoint in datapoints:
        if not isinstance(datapoint, (list, tuple)):
            break
        components += datapoint
    else:
        return components
    number = count.value - 1
    if all(isinstance(datapoint, Mapping) for datapoint in datapoints):
        joined: dict[Any, Any] = {}
        for datapoint in datapoints:
            for key in datapoint:
                if key in joined:
                    raise InputError(f"JoinData: two flows have a component {key!r} in datapoint {number}")
            joined.update(datapoint)
        return joined
    kinds = [type(datapoint).__name__ for datapoint in datapoints]
    raise InputError(
        f"JoinData: datapoint {number} is {', '.join(kinds)} in the flows; it must be a list or tuple in all flows, "
        "or a dict in all flows"
    )


class RandomMixData(CombinedDataFlow, RNGDataFlow):
    """Mix several flows at random; a pass delivers every datapoint once.

    The datapoints of each flow keep their order, and are spread evenly over the pass.

    Args:
        flows: one or more iterables of datapoints, each with a length.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `flows` is not a list of different flows, or a flow has no length.
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
        begin, ended = self.begin() or (0, [])
        rng = self.epoch_rng()
        lengths = self.lengths()
        turns = np.repeat(np.arange(len(lengths)), lengths)
        rng.shuffle(turns)
        under_way: dict[int, Iterator[Any]] = {}
        for number, index in enumerate(turns[begin:].tolist(), begin + 1):
            if index in ended:
                continue
            if index not in under_way:
                under_way[index] = iter(self.upstreams[index])
            for datapoint in under_way[index]:
                self.place = [number, ended]
                yield datapoint
                break
            else:
                ended = [*ended, index]  # it delivers fewer than its length says
        # Flows with more datapoints than their length, and the end of each pass beneath.
        for index, upstream in enumerate(self.upstreams):
            for datapoint in () if index in ended else under_way.get(index) or upstream:
                self.place = [len(turns), ended]
                yield datapoint
            ended = [*ended, index]
        self.place = None

    def shard(self, index: int, count: int) -> DataFlow:
        """Return the same on top of a share of each flow, with its own random numbers."""
        return self.share_of_each(index, count)


class RandomChooseData(CombinedDataFlow, RNGDataFlow):
    """Draw a flow for each datapoint at random, until the drawn flow is exhausted.

    Args:
        flows: iterables of datapoints, which are equally likely, or pairs of an iterable and its probability.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `flows` is not a list of different flows, or the probabilities are negative or do not sum to 1.

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
                f"RandomChooseData: the probabilities of the flows must not be negative and must sum to 1, not "
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
        self.break_off()  # the other flows start again in the next pass

    def _choices(self, rng: np.random.Generator, begin: int) -> Iterator[int]:
        """Draw the indices of flows, endlessly, from draw number `begin` on."""
        # A sum of 1 - 2**-53 would leave a gap at the top.
        bounds = np.cumsum(self.probabilities)[:-1]
        for _ in range(begin // _DRAWS_AT_ONCE):
            rng.random(_DRAWS_AT_ONCE)
        skip = begin % _DRAWS_AT_ONCE
        while True:
            yield from np.searchsorted(bounds, rng.random(_DRAWS_AT_ONCE), side="right")[skip:].tolist()
            skip = 0

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of each flow, with its own random numbers."""
        return self.share_of_each(index, count, block)


_DRAWS_AT_ONCE = 1024


def _is_pair(flow: Any) -> bool:
    return (
        isinstance(flow, tuple)
        and len(flow) == 2
        and isinstance(flow[1], (int, float))
        and not isinstance(flow[0], (int, float))
    )


def check_distinct(flows: Iterable[Any], owner: str) -> None:
    """Check that no flow with a position occurs twice in `flows` or in the flows beneath.

    Raises:
        ConfigError: a flow occurs twice.
    """
    seen: set[int] = set()
    waiting = list(flows)
    while waiting:
        flow = waiting.pop()
        if has_state(flow) or isinstance(flow, RNGDataFlow):
            if id(flow) in seen:
                raise ConfigError(
                    f"{owner}: the same {type(flow).__name__} occurs twice in its flows, but a flow has only one "
                    "position. Make one for each."
                )
            seen.add(id(flow))
        if isinstance(flow, DataFlow):
            waiting.extend(flow.sources)
