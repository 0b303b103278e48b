"""Sources of datapoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tpk.dataflow
from tpk.dataflow import DataFromGenerator, DataFromIterable, DataFromQueue, FakeData

__all__ = ["DataFromGenerator", "DataFromIterable", "DataFromList", "DataFromQueue", "FakeData"]


class DataFromList(tpk.dataflow.DataFromList):
    """The items of a list; see `tpk.dataflow.DataFromList`.

    Args:
        lst: the list.
        shuffle: whether each epoch has an order of its own.
    """

    def __init__(self, lst: Sequence[Any], shuffle: bool = True) -> None:
        super().__init__(lst, shuffle)
