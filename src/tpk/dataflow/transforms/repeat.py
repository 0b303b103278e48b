"""Repetitions of a flow, or of each of its datapoints."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice, repeat
from operator import mul
from typing import Any

from tpk.argument_checks import check_at_least
from tpk.dataflow.base import (
    DATAPOINTS_TO_REPLAY,
    ContinuingDataFlow,
    DataFlow,
    LookaheadDataFlow,
    Share,
    StatefulProxyDataFlow,
    flow_length,
)
from tpk.dataflow.position import Count, in_parts
from tpk.errors import ConfigError, InputError


class RepeatedData(StatefulProxyDataFlow):
    """Deliver all datapoints of a flow `num` times, pass after pass.

    Args:
        flow: any iterable of datapoints.
        num: number of repetitions; -1 repeats forever.

    Raises:
        ConfigError: `num` is less than -1.
        InputError: an endless repetition of an empty flow, or of a one-shot iterator.
    """

    refills_arrays = None
    delivers_unchanged = True

    def __init__(self, flow: Iterable[Any], num: int) -> None:
        super().__init__(flow)
        if num < -1:
            raise ConfigError(f"RepeatedData: num must be -1 (forever), 0 or more, not {num}")
        self.num = num

    def __len__(self) -> int:
        if self.num == -1:
            raise TypeError("a flow that is repeated forever has no length")
        return super().__len__() * self.num

    @in_parts
    def __iter__(self) -> Generator[Iterable[Any], None, None]:
        upstream = self.upstream
        repetition = self.begin() or 0
        delivered_before = repetition > 0
        while repetition != self.num:
            self.place = repetition
            yield upstream
            if not upstream.delivered and (self.num == -1 or delivered_before):
                raise InputError(
                    f"RepeatedData: repetition {repetition} of {type(self.flow).__name__} has no datapoint"
                    + ("; is it a one-shot iterator, such as a generator?" if delivered_before else "")
                )
            delivered_before = upstream.delivered > 0
            repetition += 1
        self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, unless blocks cross repetitions."""
        if block > 1 and self.num not in (-1, 0, 1) and (flow_length(self.flow) or 1) % (count * block):
            return Share(self, index, count, block)
        return super().shard_blocks(index, count, block)


class RepeatedDataPoint(LookaheadDataFlow):
    """Deliver each datapoint `num` times in a row.

    Args:
        flow: any iterable of datapoints.
        num: number of repetitions.

    Raises:
        ConfigError: `num` is less than 1.
    """

    refills_arrays = None

    def __init__(self, flow: Iterable[Any], num: int) -> None:
        super().__init__(flow)
        check_at_least(self, 1, num=num)
        self.num = num

    def __len__(self) -> int:
        return super().__len__() * self.num

    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given the datapoints of the flow beneath."""
        # Tuples of the repetitions: faster than a `repeat` for each datapoint.
        return chain.from_iterable(map(mul, zip(self._some(datapoints)), repeat(self.num)))

    @in_parts
    def _some(self, datapoints: Iterator[Any]) -> Generator[Iterator[Any], None, None]:
        """Deliver the datapoints of the flow beneath, and note every now and then that none is held back."""
        for datapoint in datapoints:
            yield chain([datapoint], islice(datapoints, DATAPOINTS_TO_REPLAY - 1))
            self.caught_up()

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, unless a block would divide a datapoint's copies."""
        if block > 1 and block % self.num:
            return Share(self, index, count, block)
        return super().shard_blocks(index, count, max(block // self.num, 1))


class FixedSizeData(ContinuingDataFlow):
    """Deliver `size` datapoints in each pass: part of a longer flow, or a shorter flow several times.

    Workers that share it make all of its datapoints, so put it on top of a runner rather than into one.

    Args:
        flow: any iterable of datapoints.
        size: number of datapoints in a pass.
        keep_state: whether a pass continues where the previous one stopped, so that all datapoints are used. Otherwise
            each pass starts the flow from the beginning.

    Raises:
        ConfigError: the size is less than 1.
        InputError: the flow is empty.
    """

    refills_arrays = None
    delivers_unchanged = True

    def __init__(self, flow: Iterable[Any], size: int, keep_state: bool = True) -> None:
        super().__init__(flow)
        check_at_least(self, 1, size=size)
        self._size = size
        self.keep_state = keep_state

    def __len__(self) -> int:
        return self._size

    @in_parts
    def __iter__(self) -> Generator[Iterator[Any], None, None]:
        self.place = count = Count(self.begin() or 0)
        while missing := self._size - count.value:
            # `islice` and `Count` leave the iterator open for the next pass.
            yield count.over(islice(self.pass_beneath(), missing))
            if count.value < self._size:
                self._under_way = None
                if not self.upstream.delivered:
                    raise InputError(
                        f"FixedSizeData: a pass of {type(self.flow).__name__} has no datapoint; it is empty, or a "
                        "one-shot iterator, such as a generator, which cannot be iterated twice"
                    )
        if not self.keep_state:
            self.break_off()
        self.place = None

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        super().break_off()
        if not self.keep_state:
            self._under_way = None
            self.upstream.break_off()

    # Some blocks of each pass: passes over a share of the flow beneath would have other datapoints.
    shard_blocks = DataFlow.shard_blocks
