"""Repetitions of a flow, or of each of its datapoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from tpk.checks import check_at_least
from tpk.dataflow.base import DataFlow, Share, StatefulProxyDataFlow, allocate_with, divides_evenly
from tpk.dataflow.memory import Allocate
from tpk.dataflow.transforms.lookahead import LookaheadDataFlow
from tpk.errors import ConfigError, InputError


class RepeatedData(StatefulProxyDataFlow):
    """Deliver all datapoints of a flow, then all again, `num` times over.

    Args:
        flow: any iterable of datapoints.
        num: how many times; -1 is forever.

    Raises:
        ConfigError: `num` is neither -1 nor a number from 0 on.
        InputError: an endless repetition of nothing, or of a one-shot iterator, which has nothing the second
            time.
    """

    refills_arrays = None

    def __init__(self, flow: Iterable[Any], num: int) -> None:
        super().__init__(flow)
        if num < -1:
            raise ConfigError(f"RepeatedData: num must be -1 (forever) or a number from 0 on, not {num}")
        self.num = num

    def __len__(self) -> int:
        if self.num == -1:
            raise TypeError("a flow that is repeated forever has no length")
        return super().__len__() * self.num

    def __iter__(self) -> Iterator[Any]:
        upstream = self.upstream
        repetition = self.begin() or 0
        delivered_before = repetition > 0
        while repetition != self.num:
            self.place = repetition
            yield from upstream
            if not upstream.delivered and (self.num == -1 or delivered_before):
                raise InputError(
                    f"RepeatedData: repetition {repetition} of {type(self.flow).__name__} has no datapoint"
                    + ("; is it a one-shot iterator, such as a generator?" if delivered_before else "")
                )
            delivered_before = upstream.delivered > 0
            repetition += 1
        self.place = None

    def allocate_with(self, allocate: Allocate) -> None:
        """Hand it on: each datapoint is delivered as it comes."""
        allocate_with(self.flow, allocate)

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, unless blocks cross repetitions."""
        if block > 1 and self.num not in (-1, 0, 1) and not divides_evenly(self.flow, count * block):
            return Share(self, index, count, block)
        return super().shard_blocks(index, count, block)


class RepeatedDataPoint(LookaheadDataFlow):
    """Deliver each datapoint `num` times, one after the other.

    Args:
        flow: any iterable of datapoints.
        num: how many times.

    Raises:
        ConfigError: `num` is not 1 or more.
    """

    refills_arrays = None

    def __init__(self, flow: Iterable[Any], num: int) -> None:
        super().__init__(flow)
        check_at_least(self, 1, num=num)
        self.num = num

    def __len__(self) -> int:
        return super().__len__() * self.num

    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given what the flow beneath delivers."""
        for number, datapoint in enumerate(datapoints, 1):
            yield from repeat(datapoint, self.num)
            # Not each time: to ask a deep flow where it stands may cost more than the datapoint.
            if number % _DATAPOINTS_TO_REPLAY == 0:
                self.caught_up()

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, unless a block would divide a datapoint's copies."""
        if block > 1 and block % self.num:
            return Share(self, index, count, block)
        return super().shard_blocks(index, count, max(block // self.num, 1))


_DATAPOINTS_TO_REPLAY = 16
