"""The bases of data flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tpk.dataflow
from tpk_tensorpack.utils.utils import get_rng

__all__ = ["DataFlow", "DataFlowTerminated", "ProxyDataFlow", "RNGDataFlow"]

DataFlow = tpk.dataflow.DataFlow


class DataFlowTerminated(BaseException):
    """A data flow is over, and cannot begin anew."""


class RNGDataFlow(tpk.dataflow.DataFlow):
    """A data flow with random numbers of its own.

    Attributes:
        rng: a `numpy.random.RandomState`, other than in any other process; made by `reset_state`.
    """

    rng: np.random.RandomState

    def reset_state(self) -> None:
        """Begin with other random numbers."""
        self.rng = get_rng(self)


class ProxyDataFlow(tpk.dataflow.ProxyDataFlow):
    """A data flow of what another one delivers, as long as that.

    Args:
        ds: the other one.
    """

    def __init__(self, ds: Any) -> None:
        super().__init__(ds)
        self.ds = ds

    def __iter__(self) -> Iterator[Any]:
        yield from self.ds
