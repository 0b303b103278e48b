"""Shuffling within a buffer, and datapoints kept in memory."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from tpk.argument_checks import check_at_least
from tpk.dataflow.base import ContinuingDataFlow, LookaheadDataFlow, RNGDataFlow, may_refill
from tpk.dataflow.memory import copy_arrays
from tpk.dataflow.position import Count, in_parts
from tpk.errors import InputError

logger = logging.getLogger(__name__)


class LocallyShuffleData(LookaheadDataFlow, RNGDataFlow):
    """Shuffle within a buffer: deliver a random datapoint of the buffer each time.

    Each epoch delivers every datapoint of the flow once. A datapoint comes at most `buffer_size` - 1 places early. To
    use each datapoint several times, put a `RepeatedDataPoint` beneath.

    A resumed run refills the buffer from the epoch's datapoints up to its position.

    Args:
        flow: any iterable of datapoints.
        buffer_size: number of datapoints in the buffer.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: the buffer size is less than 1, or the seed is invalid.
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
        # Draw many numbers at once: a single draw costs more than everything else.
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


class CacheData(ContinuingDataFlow, RNGDataFlow):
    """Keep the datapoints of the first pass in memory, and deliver them in all later passes.

    The datapoints are not copied: a change of an array in place affects all later passes. If the first pass is left in
    the middle, the next one delivers its datapoints again, and then the rest. A resumed run fills the memory again from
    the same pass of the flow.

    Args:
        flow: any iterable of datapoints that fit into memory together.
        shuffle: whether each pass has a new random order once all datapoints are in memory.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `flow` is not iterable, or the seed is invalid.
        InputError: the number of datapoints in the flow has changed since the position was saved.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], shuffle: bool = False, seed: int | None = None) -> None:
        ContinuingDataFlow.__init__(self, flow)
        RNGDataFlow.__init__(self, seed)
        self.shuffle = shuffle
        self._size: int | None = None  # of a pass, once all its datapoints were kept
        self._forget()

    def _forget(self) -> None:
        self._kept: list[Any] = []
        self._start: dict[str, Any] | None = None  # the position of the flow beneath before what is kept
        self._under_way = None

    def __len__(self) -> int:
        return super().__len__() if self._size is None else self._size

    @in_parts
    def __iter__(self) -> Generator[Iterator[Any], None, None]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        if self._start is None:
            self._keep_again(begin if self._size is None else self._size)
        kept = self._kept
        if self.shuffle and self._size is not None:
            kept = [kept[index] for index in rng.permutation(len(kept)).tolist()]
        self.place = count = Count(begin)
        yield count.over(islice(kept, begin, None))
        if self._size is None:
            yield count.over(self._keep())
            self._size = len(kept)
        self.place = None

    def _keep(self) -> Iterator[Any]:
        """Deliver and keep the datapoints of the pass beneath that are not kept yet."""
        kept, datapoints = self._kept, self.pass_beneath()
        try:
            for datapoint in map(copy_arrays, datapoints) if may_refill(self.flow) else datapoints:
                kept.append(datapoint)
                yield datapoint
        except Exception:
            self._forget()
            raise
        self._under_way = None

    def _keep_again(self, count: int) -> None:
        """Keep the datapoints that were delivered before the position was saved, or all if a pass was complete."""
        self._start = self.upstream.state_dict()
        found = sum(1 for _ in islice(self._keep(), count if self._size is None else None))
        if found != count:
            self._forget()
            raise InputError(
                f"CacheData kept {count} datapoints of {type(self.flow).__name__} when this position was saved, but "
                f"finds {found} now; has the data changed?"
            )
        if count:
            logger.info("CacheData: kept %d datapoints again that were delivered before", count)

    def __getstate__(self) -> dict[str, Any]:
        # The kept datapoints stay in their process; a copy keeps its own.
        return {**super().__getstate__(), "_kept": [], "_start": None, "_size": None, "place": None}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current iteration, and from which position on datapoints are kept."""
        state = {**super().state_dict(), "size": self._size}
        return state if self._start is None else {**state, "upstreams": [self._start]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        super().load_state_dict(state)
        self._size = state["size"]
        self._forget()
