"""Batches of consecutive datapoints, or of datapoints of the same shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from tpk.checks import check_at_least
from tpk.dataflow.base import DataFlow, StatefulProxyDataFlow, flow_length, shard
from tpk.dataflow.memory import Allocate, allocate_aligned
from tpk.dataflow.position import flows_within
from tpk.dataflow.transforms.lookahead import LookaheadDataFlow
from tpk.dataflow.transforms.map import describe_components
from tpk.dataflow.transforms.stack import Stack
from tpk.errors import InputError


class BatchData(StatefulProxyDataFlow):
    """Put each `batch_size` consecutive datapoints together; each component gets a new first dimension.

    Datapoints that are lists or tuples become a list, dicts a dict. Within a component, arrays and NumPy
    scalars must all have the same shape and dtype; Python numbers get the dtype that `numpy.asarray` gives
    them, text and bytes become an array of objects. Arrays are laid out so that TensorFlow takes them without
    another copy.

    The workers that share it make the batches that one would: each takes its datapoints in blocks of a batch.

    Args:
        flow: any iterable of datapoints.
        batch_size: how many.
        remainder: whether the last ones make a smaller batch if they are fewer; otherwise they are dropped.
        use_list: whether a component of a batch is the list of the values instead of an array, which takes
            any type and shape.

    Raises:
        ConfigError: the batch size is not 1 or more.
        InputError: datapoints of one batch do not fit together; it names the component, the shapes or dtypes,
            and the datapoints, counted from 0 in each iteration.

    Example:
        ```python
        flow = BatchData([[image, label] for image, label in data], 32)
        images, labels = next(iter(flow))  # images.shape == (32, *image.shape)
        ```
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], batch_size: int, remainder: bool = False, use_list: bool = False) -> None:
        super().__init__(flow)
        check_at_least(self, 1, batch_size=batch_size)
        self.batch_size = batch_size
        self.remainder = remainder
        self.use_list = use_list
        self._allocate: Allocate = allocate_aligned

    def __len__(self) -> int:
        batches, rest = divmod(super().__len__(), self.batch_size)
        return batches + (self.remainder and rest > 0)

    def __iter__(self) -> Iterator[Any]:
        if self.begin() == "end":
            self.place = None
            return
        datapoints = iter(self.upstream)
        for datapoint in datapoints:
            first = self.upstream.delivered - 1
            stack = self.begin_batch(datapoint, first)
            for number, following in enumerate(islice(datapoints, self.batch_size - 1), self.upstream.delivered):
                stack.add(following, number)
            # What a batch is made of may be as large as the batch itself; only one of them is kept.
            datapoint = following = None
            if len(stack) == self.batch_size:
                yield stack.take()
            elif self.remainder:
                # The flow beneath is at its end already, and there is one batch that does not show in its position.
                self.place = "end"
                yield stack.take()
                self.place = None

    def begin_batch(self, datapoint: Any, number: int) -> Stack:
        """Begin a batch; override it where datapoints are put together otherwise.

        Args:
            datapoint: its first one.
            number: the number of that in the iteration.
        """
        return Stack(type(self).__name__, datapoint, number, self.batch_size, self.use_list, self._allocate)

    def allocate_with(self, allocate: Allocate) -> None:
        """Put the batches together in memory from `allocate`."""
        self._allocate = allocate

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath, which has its datapoints in blocks of a batch."""
        return self.with_sources([shard(self.flow, index, count, block * self.batch_size)])


def left_out(flow: Iterable[Any]) -> int:
    """Return how many datapoints the `BatchData`s in a flow are known to drop at the end of each pass."""
    if isinstance(flow, BatchData):
        return 0 if flow.remainder else (flow_length(flow.flow) or 0) % flow.batch_size
    return sum(map(left_out, flows_within(flow)))


class BatchDataByShape(LookaheadDataFlow):
    """Put `batch_size` datapoints together whose component `idx` has the same shape, as soon as there are as many.

    Otherwise as `BatchData`. The workers that share it put the datapoints of their shares
    together, so each of them has a remainder of its own.

    Args:
        flow: any iterable of datapoints.
        batch_size: how many.
        idx: the index or the key of the component whose shape counts.
        remainder: whether what is left of each shape at the end of a pass makes smaller batches; otherwise it is
            dropped.

    Raises:
        ConfigError: the batch size is not 1 or more.
        InputError: a datapoint has no such component, or datapoints of one batch do not fit together elsewhere.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], batch_size: int, idx: int | str, remainder: bool = False) -> None:
        super().__init__(flow)
        check_at_least(self, 1, batch_size=batch_size)
        self.batch_size = batch_size
        self.idx = idx
        self.remainder = remainder
        self._allocate: Allocate = allocate_aligned

    def __len__(self) -> int:
        raise TypeError("how many batches there are of each shape is not known before the data was seen")

    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given what the flow beneath delivers."""
        held: dict[tuple[int, ...], Stack] = {}
        for number, datapoint in enumerate(datapoints, self.upstream.delivered):
            shape = self._shape(datapoint, number)
            stack = held.get(shape)
            if stack is None:
                stack = held[shape] = self.begin_batch(datapoint, number)
            else:
                stack.add(datapoint, number)
            if len(stack) == self.batch_size:
                yield held.pop(shape).take()
                if not held:
                    self.caught_up()
        if self.remainder:
            for stack in held.values():
                yield stack.take()

    def begin_batch(self, datapoint: Any, number: int) -> Stack:
        """Begin the batch of a shape, as `BatchData.begin_batch` does."""
        return Stack(type(self).__name__, datapoint, number, self.batch_size, use_list=False, allocate=self._allocate)

    def allocate_with(self, allocate: Allocate) -> None:
        """Put the batches together in memory from `allocate`."""
        self._allocate = allocate

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath."""
        return self.with_sources([shard(self.flow, index, count)])

    def _shape(self, datapoint: Any, number: int) -> tuple[int, ...]:
        try:
            return np.shape(datapoint[self.idx])
        except (LookupError, TypeError) as error:
            raise InputError(
                f"BatchDataByShape: datapoint {number} has no component {self.idx!r}, but "
                f"{describe_components(datapoint)}"
            ) from error
        except ValueError as error:
            raise InputError(
                f"BatchDataByShape: component {self.idx!r} of datapoint {number} has no shape: {error}"
            ) from error
