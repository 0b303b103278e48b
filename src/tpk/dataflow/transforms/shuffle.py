"""Shuffling within a buffer, and datapoints kept in memory."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from tpk.argument_checks import check_at_least
from tpk.dataflow.base import LookaheadDataFlow, RNGDataFlow, StatefulProxyDataFlow, may_refill
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


CacheT = TypeVar("CacheT", bound="CacheData")


class CacheData(StatefulProxyDataFlow, RNGDataFlow):
    """Keep all datapoints of the first pass in memory, and deliver them in all later passes.

    The datapoints are not copied: a change of an array in place affects all later passes. A resumed run fills the
    memory again from the same pass of the flow. An incomplete first pass keeps nothing.

    Args:
        flow: any iterable of datapoints that fit into memory together.
        shuffle: whether each pass after the first has a new random order.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `flow` is not iterable, or the seed is invalid.
        InputError: the number of datapoints in the flow has changed since the position was saved.
    """

    refills_arrays = False

    def __init__(self, flow: Iterable[Any], shuffle: bool = False, seed: int | None = None) -> None:
        StatefulProxyDataFlow.__init__(self, flow)
        RNGDataFlow.__init__(self, seed)
        self.shuffle = shuffle
        self._kept: list[Any] | None = None
        self._source_state: dict[str, Any] | None = None
        self._kept_before: int | None = None

    def __len__(self) -> int:
        return super().__len__() if self._kept is None else len(self._kept)

    @in_parts
    def __iter__(self) -> Generator[Iterator[Any], None, None]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        if self._kept_before is not None:
            self._keep_again(self._kept_before)
        if self._kept is None:
            yield self._first_pass(begin)
        else:
            kept = self._kept
            if self.shuffle:
                kept = [kept[index] for index in rng.permutation(len(kept)).tolist()]
            self.place = count = Count(begin)
            yield count.over(islice(kept, begin, None))
        self.place = None

    def _first_pass(self, begin: int) -> Iterator[Any]:
        datapoints, kept = self._start_keeping(begin)
        self.place = count = Count(begin)
        for datapoint in count.over(datapoints):
            kept.append(datapoint)
            yield datapoint
        self._kept = kept

    def _keep_again(self, count: int) -> None:
        _, kept = self._start_keeping(None)
        if len(kept) != count:
            raise InputError(
                f"CacheData kept {count} datapoints of {type(self.flow).__name__} when this position was saved, but "
                f"finds {len(kept)} now; has the data changed?"
            )
        self._kept, self._kept_before = kept, None

    def _start_keeping(self, count: int | None) -> tuple[Iterator[Any], list[Any]]:
        """Begin the pass whose datapoints are kept; the first `count` (None: all) were delivered before."""
        datapoints: Iterator[Any] = iter(self.upstream)
        if may_refill(self.flow):
            datapoints = map(copy_arrays, datapoints)
        self._source_state = self.upstream.state_dict()
        kept = list(islice(datapoints, count))
        if kept:
            logger.info("CacheData: kept %d datapoints again that were delivered before", len(kept))
        return datapoints, kept

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        if self._kept is not None or self._kept_before is not None:
            self.place = None  # the flow beneath is not iterated, or only to keep the same pass again
            return
        if self._is_loaded and self.place is not None:
            self._start_keeping(self.place)  # to bring the flow beneath to its position in the pass
        super().break_off()
        self._source_state = None

    def with_sources(self: CacheT, sources: Sequence[Iterable[Any]]) -> CacheT:
        """Return a copy on top of another flow, with nothing kept."""
        same = super().with_sources(sources)
        same._kept = same._source_state = same._kept_before = None
        return same

    def __getstate__(self) -> dict[str, Any]:
        # The kept datapoints stay in their process; a copy keeps its own.
        nothing = {"_kept": None, "_source_state": None, "place": None}
        return {**self.__dict__, **nothing} if self._kept is not None else self.__dict__

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current iteration, and the number of datapoints kept."""
        state = super().state_dict()
        if self._source_state is not None:
            state["upstreams"] = [self._source_state]
        return {**state, "kept": self._kept_before if self._kept is None else len(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        super().load_state_dict(state)
        self._kept, self._kept_before = None, state["kept"]
        self._source_state = state["upstreams"][0] if self.place is not None or self._kept_before is not None else None
