"""Deliver a flow several times, or forever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from tpk.dataflow.base import ProxyDataFlow
from tpk.errors import ConfigError, InputError


class RepeatedData(ProxyDataFlow):
    """Deliver all datapoints of a flow, then all again, `num` times over.

    Args:
        flow: any iterable of datapoints.
        num: how many times; -1 is forever.

    Raises:
        ConfigError: `num` is neither -1 nor a number from 0 on.
        InputError: an endless repetition of nothing, or of a one-shot iterator, which has nothing the second
            time.
    """

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
        delivered_before = False
        for repetition in count() if self.num == -1 else range(self.num):
            delivered = False
            for datapoint in self.flow:
                delivered = True
                yield datapoint
            if not delivered and (self.num == -1 or delivered_before):
                raise InputError(
                    f"RepeatedData: repetition {repetition} of {type(self.flow).__name__} has no datapoint"
                    + ("; is it a one-shot iterator, such as a generator?" if delivered_before else "")
                )
            delivered_before = delivered
