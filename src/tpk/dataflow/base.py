"""Base classes of the dataflows, and functions for consumers of any iterable of datapoints."""

from __future__ import annotations

import copy
import logging
import secrets
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, cycle, islice
from typing import Any, TypeVar

import numpy as np

from tpk.argument_checks import check_at_least
from tpk.dataflow.foreign import is_foreign_sequence
from tpk.dataflow.memory import Allocate
from tpk.dataflow.position import Count, Parts, Position, flows_within, has_state, in_parts
from tpk.errors import ConfigError, InputError
from tpk.plugin.recorded_options import RecordsOptions

logger = logging.getLogger(__name__)


ProxyT = TypeVar("ProxyT", bound="ProxyDataFlow")


class DataFlow(RecordsOptions, ABC):
    """Base of the dataflows: an iterable of datapoints that can be iterated again and again.

    Deriving from it is a convenience; every iterable of datapoints is a dataflow. A subclass defines ``__len__`` if it
    knows the number of datapoints in a pass.

    Attributes:
        refills_arrays: whether it may overwrite an array after delivering it, like a generator with one buffer.
            Consumers that keep a datapoint while the next one is made, such as queues, copy it in that case. None means
            that it depends on the `sources`. Set it to False, in a class or an object, if each datapoint has new
            arrays: large arrays that are aligned to 64 bytes, see `aligned_empty`, get to TensorFlow without a copy.

    Example:
        ```python
        class Squares(DataFlow):
            def __iter__(self):
                for number in range(10):
                    yield [number, number**2]

            def __len__(self):
                return 10
        ```
    """

    refills_arrays: bool | None = True

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Start a pass from the first datapoint."""

    def __bool__(self) -> bool:
        """True, even if the flow is empty: Python would call `len`, which a flow need not have."""
        return True

    def reset_state(self) -> None:
        """Prepare for iteration in this process: open files, connect. By default, reset the `sources`.

        The consumer of a flow calls it once, in the process that iterates, before the first iteration.
        """
        for flow in self.sources:
            reset_state(flow)

    def close(self) -> None:
        """Release resources kept from pass to pass, such as worker processes; the next pass acquires them again."""
        for flow in flows_within(self):
            close_dataflow(flow)

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The flows that this flow reads.

        Dataflows in attributes are found without it. Override it for flows in a list or dict, so that they get the seed
        of the run, and are closed with this flow.
        """
        return ()

    def allocate_with(self, allocate: Allocate) -> None:
        """Build datapoints in memory from `allocate`, if this flow builds any; by default, do nothing.

        A worker process calls it on its flow: datapoints in shared memory are sent without a copy, and belong to the
        receiver then. So a flow may pass it on to its sources only if it delivers each of their datapoints once,
        unchanged, and keeps none.
        """

    def shard(self, index: int, count: int) -> DataFlow:
        """Return the share of worker `index` of `count`: together, the shares have each datapoint of this flow once.

        By default every `count`-th datapoint from number `index` on, so each worker makes all datapoints. Override
        `shard_blocks` if a worker can skip the others, or this method if it can do so for single datapoints only.
        """
        return self.shard_blocks(index, count, 1)

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a worker in whole blocks: one of each `count` blocks of `block` datapoints.

        Flows that join `block` datapoints call it, so that workers make the same batches as a single process.
        """
        if block > 1:
            self.shard(index, count)  # raises if it cannot be divided
        return Share(self, index, count, block)


class ProxyDataFlow(DataFlow):
    """A dataflow on top of another one, whose datapoints it delivers unless ``__iter__`` is overridden.

    A share of it is based on a share of the flow beneath, with random numbers that depend on the worker.

    Args:
        flow: any iterable of datapoints.

    Attributes:
        delivers_unchanged: whether it delivers each datapoint of the flow beneath once, unchanged, and keeps none. Then
            `allocate_with` is passed on.

    Raises:
        ConfigError: `flow` is not iterable.
    """

    delivers_unchanged: bool = False

    def __init__(self, flow: Iterable[Any]) -> None:
        check_iterable(flow, type(self).__name__)
        self.flow = flow

    def __iter__(self) -> Iterator[Any]:
        yield from self.flow

    def __len__(self) -> int:
        return len(self.flow)  # type: ignore[arg-type]  # raises TypeError without a length

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The flow beneath."""
        return (self.flow,)

    def allocate_with(self, allocate: Allocate) -> None:
        """Pass it on if the datapoints are delivered unchanged."""
        if self.delivers_unchanged:
            allocate_with(self.flow, allocate)

    def with_sources(self: ProxyT, sources: Sequence[Iterable[Any]]) -> ProxyT:
        """Return the same on top of another flow."""
        (flow,) = sources
        same = copy.copy(self)
        same.flow = flow
        return same

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the same on top of a share of the flow beneath."""
        share = self.with_sources([shard(self.flow, index, count, block)])
        if isinstance(share, RNGDataFlow):
            share.worker = (*share.worker, index)
        return share


class RNGDataFlow(DataFlow):
    """A dataflow with random numbers: the same seed gives the same datapoints, which differ from epoch to epoch.

    The random numbers of an epoch depend on the seed, the worker and the number of the epoch.

    Args:
        seed: a non-negative integer. None draws a seed, or derives it from the seed of the run if there is one (see
            `seed_dataflow`).

    Attributes:
        seed: the seed, which is always known, so that a stream can be reproduced.
        worker: the index of the worker that iterates; empty if there is only one.
        epoch: number of epochs that have begun.

    Raises:
        ConfigError: the seed is negative or not an integer.

    Example:
        ```python
        class Noise(RNGDataFlow):
            def __iter__(self):
                rng = self.epoch_rng()  # once per iteration, at its start
                for _ in range(100):
                    yield [rng.standard_normal(8, dtype=np.float32)]
        ```
    """

    worker: tuple[int, ...] = ()

    def __init__(self, seed: int | None = None) -> None:
        self.seed_was_chosen = seed is not None
        if seed is None:
            seed = secrets.randbits(53)  # no more, so that it survives any JSON reader
        check_at_least(self, 0, seed=seed)
        self.seed = int(seed)
        self.epoch = 0

    def epoch_rng(self) -> np.random.Generator:
        """Begin an epoch and return its random numbers."""
        entropy = np.random.SeedSequence([self.seed, self.epoch], spawn_key=self.worker)
        self.epoch += 1
        return np.random.default_rng(entropy)

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a worker.

        A flow that has no length and no sources is not divided: each worker draws its own random numbers.
        """
        check_share(index, count)
        if flow_length(self) is not None or flows_within(self):
            return Share(self, index, count, block)
        share = copy.copy(self)
        share.worker = (*self.worker, index)
        return share


class StatefulDataFlow(DataFlow):
    """A dataflow with a position: its place in the pass, and the positions of the flows beneath.

    `place` is plain data, None between passes. A subclass calls `begin` at the start of an iteration, and sets `place`
    before each datapoint, so that the rest of the pass depends only on the place and the positions.

    Example:
        ```python
        class Squares(StatefulDataFlow):
            def __iter__(self):
                for number in range(self.begin() or 0, 10):
                    self.place = number + 1
                    yield [number, number**2]
                self.place = None
        ```
    """

    place: Any = None
    _is_loaded = False

    @property
    def positions(self) -> Sequence[Position]:
        """The positions of the flows beneath."""
        return ()

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The flows beneath, from `positions`."""
        return [position.flow for position in self.positions]

    @property
    def _random(self) -> RNGDataFlow | None:
        """This flow, if it has randomness."""
        return self if isinstance(self, RNGDataFlow) else None

    def begin(self) -> Any:
        """Begin an iteration: return the place at which the pass continues, or None for a new pass."""
        if not self._is_loaded:
            self.break_off()
        elif self.place is not None and self._random is not None:
            self._random.epoch -= 1  # the same epoch continues
        self._is_loaded = False
        return self.place

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        self.place = None
        for position in self.positions:
            position.break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current iteration."""
        place = self.place
        state: dict[str, Any] = {"place": place.value if isinstance(place, Count) else place}
        if self._random is not None:
            state["seed"], state["epoch"] = self._random.seed, self._random.epoch
        if self.positions:
            state["upstreams"] = [position.state_dict() for position in self.positions]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        self.place, self._is_loaded = state["place"], True
        if self._random is not None:
            self._random.seed, self._random.epoch = state["seed"], state["epoch"]
        for position, upstream in zip(self.positions, state.get("upstreams", ()), strict=True):
            position.load_state_dict(upstream)


class StatefulProxyDataFlow(StatefulDataFlow, ProxyDataFlow):
    """A `ProxyDataFlow` with a position, because it holds back no datapoints.

    A subclass iterates `self.upstream`, never `self.flow`. Its next datapoint must depend only on the position of
    `upstream`, and on its `place`, if it has one.

    Example:
        ```python
        class OnlyBright(StatefulProxyDataFlow):
            def __iter__(self):
                for image, label in self.upstream:
                    if image.mean() > 0.5:
                        yield [image, label]
        ```
    """

    upstream: Position

    @property
    def flow(self) -> Iterable[Any]:
        """The flow beneath; a new one starts from its beginning."""
        return self.upstream.flow

    @flow.setter
    def flow(self, flow: Iterable[Any]) -> None:
        self.upstream = Position(flow)
        self.place, self._is_loaded = None, False

    @property
    def positions(self) -> Sequence[Position]:
        """The position of the flow beneath."""
        return (self.upstream,)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.upstream)


class ContinuingDataFlow(StatefulProxyDataFlow):
    """A proxy whose pass may end in the middle of a pass over the flow beneath, which its next pass continues.

    A subclass iterates what `pass_beneath` returns.
    """

    _under_way: Iterator[Any] | None = None

    def pass_beneath(self) -> Iterator[Any]:
        """Return the iterator of the pass that is under way beneath, or of a new pass."""
        if self._under_way is None:
            self._under_way = iter(self.upstream)
        return self._under_way

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        self.place = None

    def close(self) -> None:
        """Release the resources of the flow beneath; the next pass continues at the same position."""
        if self._under_way is not None and has_state(self.flow):
            self.break_off()
            self.load_state_dict(self.state_dict())
        super().close()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        super().load_state_dict(state)
        self._under_way = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy, here or in another process, starts from the beginning.
        return {**self.__dict__, "_under_way": None}


class Share(StatefulProxyDataFlow):
    """Block number `index` of each `count` blocks of `block` datapoints of a flow.

    Args:
        flow: any iterable of datapoints, which must be the same in each worker.
        index: from 0 to `count` - 1.
        count: number of workers.
        block: number of consecutive datapoints that stay together.

    Raises:
        ConfigError: `index` is out of range.
    """

    refills_arrays = None

    def __init__(self, flow: Iterable[Any], index: int, count: int, block: int = 1) -> None:
        super().__init__(flow)
        check_share(index, count)
        self.index = index
        self.count = count
        self.block = block

    def __len__(self) -> int:
        return length_of_share(super().__len__(), self.index, self.count, self.block)

    def __iter__(self) -> Iterator[Any]:
        datapoints = iter(self.upstream)
        is_mine = [number == self.index for number in range(self.count) for _ in range(self.block)]
        # A resumed pass may continue between two datapoints of this share.
        return compress(datapoints, islice(cycle(is_mine), self.upstream.delivered % len(is_mine), None))

    # A share of this share: a share of the flow beneath would have different blocks.
    shard_blocks = DataFlow.shard_blocks


class SequenceDataFlow(StatefulDataFlow):
    """Deliver the items of a sequence; a share reads only its own items.

    Args:
        items: the datapoints: any object with a length and ``[]``.
    """

    def __init__(self, items: Any) -> None:
        self.items = items
        self.refills_arrays = may_refill(items)
        self._shares: tuple[tuple[int, int, int], ...] = ()

    def reset_state(self) -> None:
        """Reset the items, if they are a dataflow."""
        reset_state(self.items)

    def __len__(self) -> int:
        length = len(self.items)
        for index, count, block in self._shares:
            length = length_of_share(length, index, count, block)
        return length

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        order = self._order()
        self.place = Count(begin)
        return Parts(self._deliver(order, self.place))

    def _order(self) -> np.ndarray[Any, Any] | None:
        """Return the indices of all items in the order of the next pass; None for the order of the items."""
        return None

    def _deliver(self, order: np.ndarray[Any, Any] | None, delivered: Count) -> Generator[Iterator[Any], None, None]:
        yield delivered.over(chain.from_iterable(self._some_items(order, delivered.value)))
        self.place = None

    def _some_items(self, order: np.ndarray[Any, Any] | None, begin: int) -> Iterator[Iterator[Any]]:
        items, length = self.items, len(self)
        if type(items) is list and order is None and not self._shares:
            yield islice(items, begin, None)  # much faster than by index
            return
        for start in range(begin, length, _PLACES_AT_ONCE):
            places = np.arange(start, min(start + _PLACES_AT_ONCE, length))
            for index, count, block in reversed(self._shares):
                places = places // block * (count * block) + index * block + places % block
            if order is not None:
                places = order[places]
            # Indexing a list by Python integers is far faster than by NumPy's.
            yield map(items.__getitem__, places.tolist())

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow of some blocks of each pass."""
        check_share(index, count)
        share = copy.copy(self)
        share._shares = (*self._shares, (index, count, block))
        return share


_PLACES_AT_ONCE = 4096


DATAPOINTS_TO_REPLAY = 256
"""Number of datapoints after which a flow that looks ahead keeps its state again."""


def reset_state(flow: Iterable[Any]) -> None:
    """Call the flow's ``reset_state()`` if it has one, as a consumer does once before the first iteration."""
    reset = getattr(flow, "reset_state", None)
    if reset is not None:
        reset()


def close_dataflow(flow: Iterable[Any]) -> None:
    """Call ``close()`` of a `DataFlow`; other iterables, such as files, are closed by their owners."""
    if isinstance(flow, DataFlow):
        flow.close()


def allocate_with(flow: Iterable[Any], allocate: Allocate) -> None:
    """Call ``allocate_with(allocate)`` of a `DataFlow`; ignore other iterables."""
    if isinstance(flow, DataFlow):
        flow.allocate_with(allocate)


def may_refill(flow: Iterable[Any]) -> bool:
    """Return whether a flow may overwrite arrays that it has delivered; True if it does not say.

    See `DataFlow.refills_arrays`, which any iterable may have.
    """
    if type(flow) is list or type(flow) is tuple:
        return False
    refills = getattr(flow, "refills_arrays", True)
    if refills is None and isinstance(flow, DataFlow):
        return any(map(may_refill, flow.sources))
    return bool(refills)


def error_of_data(error: BaseException, owner: str) -> BaseException:
    """Return an exception of data code, or an `InputError` instead if it would end more than the data code.

    `sys.exit` would end the process, perhaps with status 0, and `StopIteration` an iteration. Only the user may end the
    process: in the main thread, by Ctrl-C or a signal handler.

    Args:
        error: the exception that the data code raised in this thread.
        owner: the object that ran it, for the message.

    Returns:
        `error` itself, or an `InputError` whose cause it is.
    """
    if not isinstance(error, _ENDS) or _is_of_the_user(error):
        return error
    place = traceback.extract_tb(error.__traceback__)[-1]
    failure = InputError(
        f"{owner}: the data code raised {error!r} in {place.name}, line {place.lineno} of {place.filename}. "
        "Data code must not end the process: raise an ordinary exception if the data is wrong, or return to end the "
        "data."
    )
    failure.__cause__ = error
    return failure


_ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration)


def _is_of_the_user(error: BaseException) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = [getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()]
    return isinstance(error, KeyboardInterrupt) or any(
        frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def shard(flow: Iterable[Any], index: int, count: int, block: int = 1) -> DataFlow:
    """Return the share of worker `index` of `count`; together, the shares have each datapoint of the flow once.

    Args:
        flow: any iterable of datapoints. A dataflow's own ``shard(index, count)`` is called (Hugging Face datasets have
            a ``shard`` with other arguments). A share of a sequence reads only its own items; a share of another
            iterable makes all datapoints, and drops the datapoints of other workers.
        index: from 0 to `count` - 1.
        count: number of workers.
        block: number of consecutive datapoints that stay together.

    Raises:
        ConfigError: `index` is out of range.
    """
    if not isinstance(flow, DataFlow):
        if not is_sequence(flow):
            return Share(flow, index, count, block)
        flow = SequenceDataFlow(flow)
    return flow.shard(index, count) if block == 1 else flow.shard_blocks(index, count, block)


def is_sequence(flow: Any) -> bool:
    """Return whether iterating a flow delivers ``flow[i]`` for each index; False for a mapping."""
    if isinstance(flow, (Sequence, np.ndarray)) or is_foreign_sequence(flow):
        return True
    kind = type(flow)
    # Python iterates classes without `__iter__` by index, such as the datasets of torch.
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not hasattr(kind, "__iter__")


def check_share(index: int, count: int) -> None:
    """Check that `index` is from 0 to `count` - 1.

    Raises:
        ConfigError: it is not.
    """
    if not 0 <= index < count:
        raise ConfigError(f"the index of a share must be from 0 to {count - 1}, not {index}")


def length_of_share(length: int, index: int, count: int, block: int = 1) -> int:
    """Return the length of a share of `length` datapoints."""
    rounds, rest = divmod(length, count * block)
    return rounds * block + min(max(rest - index * block, 0), block)


def seed_dataflow(flow: Iterable[Any], seed: int) -> None:
    """Derive the seed of every `RNGDataFlow` in `flow` from `seed`, unless the user has chosen it.

    Each flow gets a different seed, which depends on `seed` and its place in the tree of flows.

    Args:
        flow: any iterable of datapoints.
        seed: a non-negative integer, such as the seed of the run.
    """
    _seed(flow, np.random.SeedSequence(seed))


def _seed(flow: Iterable[Any], entropy: np.random.SeedSequence) -> None:
    if isinstance(flow, RNGDataFlow) and not flow.seed_was_chosen:
        flow.seed = int(entropy.generate_state(1, np.uint64)[0]) >> 11
    within = flows_within(flow)
    for source, child in zip(within, entropy.spawn(len(within)), strict=True):
        _seed(source, child)


def flow_length(flow: Iterable[Any]) -> int | None:
    """Return the number of datapoints in a pass over a flow, or None if it is unknown."""
    try:
        return len(flow)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def why_empty(flow: Iterable[Any]) -> str:
    """Return why a flow is empty: which flow is the reason, and what to do about it."""
    kind, sources = type(flow).__name__, flow.sources if isinstance(flow, DataFlow) else ()
    empty = [source for source in sources if flow_length(source) == 0]
    if empty:
        return why_empty(empty[0])
    batch_size = getattr(flow, "batch_size", None)
    count = flow_length(sources[0]) if sources else None
    if batch_size is not None and sources and (count or 0) < batch_size:
        return (
            f"{kind} makes no batch of {batch_size} from {'too few' if count is None else count} datapoints. Lower "
            "batch_size, or set remainder=True"
        )
    if isinstance(flow, Share) and not flow_length(flow):
        return f"there are fewer datapoints than processes or workers ({flow.count}), so this share is empty"
    return _why_dropped(flow) or f"the dataflow {kind} has no datapoint"


def _why_dropped(flow: Iterable[Any]) -> str:
    """Return which function in a flow drops its datapoints, or nothing if it has none."""
    func = getattr(flow, "func", None)
    if func is not None:
        return f"{type(flow).__name__} drops datapoints, because {name_of(func)} returns None for them"
    return next(filter(None, map(_why_dropped, flow.sources if isinstance(flow, DataFlow) else ())), "")


def name_of(func: Any) -> str:
    """Return the name of a function that a flow applies, for messages."""
    inner = getattr(func, "func", func)  # That of a `functools.partial`, or a function of a component.
    return str(getattr(inner, "__qualname__", type(inner).__name__))


def check_iterable(flow: object, owner: str) -> None:
    """Check that `flow` is iterable, without starting an iteration (which may start workers).

    Args:
        flow: the argument that should be a dataflow.
        owner: the object that takes it, for the message.

    Raises:
        ConfigError: it is not iterable; the message says what to do with a generator function.
    """
    kind = type(flow)
    if hasattr(kind, "__iter__") or hasattr(kind, "__getitem__"):
        return
    what = f"{owner} takes an iterable of datapoints, not {flow!r}"
    if callable(flow):
        what += "; wrap a function that returns an iterable in DataFromGenerator"
    raise ConfigError(what)


class LookaheadDataFlow(StatefulProxyDataFlow):
    """A proxy that holds datapoints back, such as a buffer.

    Its state is the last position of the flow beneath at which it held nothing back, and the number of datapoints
    delivered since; a resumed flow makes those again, and drops them. It holds nothing back at the start of a pass; a
    subclass calls `caught_up` at other such times.

    Example:
        ```python
        class Pairs(LookaheadDataFlow):
            def deliver(self, datapoints):
                for first in datapoints:
                    second = next(datapoints, None)
                    yield [first, second]
                    self.caught_up()
        ```
    """

    _caught_up: Mapping[str, Any]
    _caught_up_at: int

    @abstractmethod
    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given the datapoints of the flow beneath."""

    def caught_up(self) -> None:
        """Record that nothing is held back now."""
        # Not each time: the state of a deep flow may cost more than a datapoint.
        if self.upstream.delivered - self._caught_up_at >= DATAPOINTS_TO_REPLAY:
            self._keep_state()

    def _keep_state(self) -> None:
        self._caught_up, self._caught_up_at = self.upstream.state_dict(), self.upstream.delivered
        self.place.value = 0

    @in_parts
    def __iter__(self) -> Generator[Iterator[Any], None, None]:
        yield self._start()
        self.place = None

    def _start(self) -> Iterator[Any]:
        """Return the datapoints of this pass, from the loaded place on if there is one."""
        since = self.begin() or 0
        datapoints = iter(self.upstream)
        self.place = count = Count()
        self._keep_state()
        delivered = count.over(self.deliver(datapoints))
        for _ in islice(delivered, since):
            pass
        if since:
            logger.info(
                "%s continues in the middle of a pass: it made %d datapoints again that were delivered before",
                type(self).__name__,
                since,
            )
        return delivered

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        if self._is_loaded and self.place is not None:
            self._start()  # to bring the flow beneath to its position in the pass
        super().break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current iteration."""
        state = super().state_dict()
        if isinstance(self.place, Count):
            state["upstreams"] = [self._caught_up]  # the flow beneath is ahead
        return state
