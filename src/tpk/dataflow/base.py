"""Bases of the dataflows, and functions for whoever consumes any iterable as a dataflow."""

from __future__ import annotations

import copy
import logging
import secrets
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from tpk.dataflow.foreign import is_foreign_sequence
from tpk.dataflow.memory import Allocate
from tpk.dataflow.position import Position, flows_within
from tpk.errors import ConfigError, InputError
from tpk.plugin.description import RecordsOptions

logger = logging.getLogger(__name__)


ProxyT = TypeVar("ProxyT", bound="ProxyDataFlow")


class DataFlow(RecordsOptions, ABC):
    """Base of the dataflows: an iterable of datapoints that can be iterated again and again.

    Deriving from it is a convenience; every iterable of datapoints is a dataflow. A subclass that knows how
    many datapoints one iteration delivers defines ``__len__``.

    Attributes:
        refills_arrays: whether it may write again into an array that it has delivered, as a generator with one buffer
            does. Whoever needs a datapoint until after the next one is asked for, such as a queue, takes a copy then.
            None if it does so where one of its `sources` does. Say False, of a class or of an object, where each
            datapoint has arrays of its own: large ones that start on a multiple of 64 bytes, as
            `aligned_empty` makes them, get to TensorFlow without a copy.

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
        """Start a pass: deliver the datapoints from the first one on."""

    def __bool__(self) -> bool:
        """True, also of an empty flow: Python would ask for the length, which a flow need not know."""
        return True

    def reset_state(self) -> None:
        """Make ready to be iterated in this process: open files, connect.

        Whoever consumes a flow calls it once, in the process that iterates, before the first iteration.
        """

    def close(self) -> None:
        """Let go of what is kept from pass to pass, such as worker processes; a further pass gets it anew."""
        for flow in flows_within(self):
            close_dataflow(flow)

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The flows that this one takes its datapoints from.

        Dataflows that are attributes are found without it. Override it for those in a list or dict, so that they get
        the seed of the run, and are closed with this one.
        """
        return ()

    def allocate_with(self, allocate: Allocate) -> None:
        """Put the datapoints together in memory from `allocate`, if that is what this flow does; by default it is not.

        A worker process asks the flow that it runs for it: what lies in shared memory is sent without a copy, and is
        the receiver's then. So only a flow that delivers each datapoint of its sources once, as it is, and keeps none,
        may hand it on to them.
        """

    def shard(self, index: int, count: int) -> DataFlow:
        """Return the share of worker `index` of `count`: together, the shares are this flow, each datapoint once.

        By default every `count`-th datapoint, from the one numbered `index` on. So each worker makes all of them;
        override `shard_blocks` where a share can be had for less, or this one if it can be had for single datapoints
        only.
        """
        return self.shard_blocks(index, count, 1)

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a worker that takes whole blocks: of each `count` blocks of `block` datapoints one.

        What puts `block` datapoints together asks for it, so that the workers make the same batches as one would.
        """
        if block > 1:
            self.shard(index, count)  # one that cannot be divided says so
        return Share(self, index, count, block)


class ProxyDataFlow(DataFlow):
    """A dataflow on top of another one: delivers its datapoints unless ``__iter__`` is overridden.

    A share of it stands on a share of the flow beneath; its random numbers, if it has any, are the worker's own.

    Args:
        flow: any iterable of datapoints.

    Raises:
        ConfigError: `flow` cannot be iterated.
    """

    def __init__(self, flow: Iterable[Any]) -> None:
        check_iterable(flow, type(self).__name__)
        self.flow = flow

    def __iter__(self) -> Iterator[Any]:
        yield from self.flow

    def __len__(self) -> int:
        return len(self.flow)  # type: ignore[arg-type]  # a TypeError is what `len` owes where there is no length

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The flow beneath."""
        return (self.flow,)

    def reset_state(self) -> None:
        """Make the underlying flow ready."""
        reset_state(self.flow)

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
    """A dataflow with randomness: the same seed gives the same stream, and each epoch another part of it.

    The random numbers of an epoch are made from the seed, the worker and the number of the epoch.

    Args:
        seed: a non-negative number; None draws one from the operating system, unless the run has a seed, from which
            it is derived then (see `seed_dataflow`).

    Attributes:
        seed: what the randomness starts from; it is always known, so that a stream can be had again.
        worker: which of several workers iterates; empty where there is but one.
        epoch: how many epochs have begun.

    Raises:
        ConfigError: the seed is negative or not a whole number.

    Example:
        ```python
        class Noise(RNGDataFlow):
            def __iter__(self):
                rng = self.epoch_rng()  # once an iteration, at its beginning
                for _ in range(100):
                    yield [rng.standard_normal(8, dtype=np.float32)]
        ```
    """

    worker: tuple[int, ...] = ()

    def __init__(self, seed: int | None = None) -> None:
        self.seed_was_chosen = seed is not None
        if seed is None:
            seed = secrets.randbits(53)  # no more, so that it survives any JSON reader
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ConfigError(f"the seed of {type(self).__name__} must be a whole number from 0 on, not {seed!r}")
        self.seed = int(seed)
        self.epoch = 0

    def epoch_rng(self) -> np.random.Generator:
        """Begin an epoch and return its random numbers."""
        entropy = np.random.SeedSequence([self.seed, self.epoch], spawn_key=self.worker)
        self.epoch += 1
        return np.random.default_rng(entropy)

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a worker.

        A flow without a length that reads no other one is not divided: each worker draws its own random numbers.
        """
        check_share(index, count)
        if flow_length(self) is not None or flows_within(self):
            return Share(self, index, count, block)
        share = copy.copy(self)
        share.worker = (*self.worker, index)
        return share


class StatefulDataFlow(DataFlow):
    """A dataflow that can say where it stands: its place in the pass, and the positions of the flows beneath.

    `place` is plain data, None between two passes. A subclass sets it before it delivers, so that the rest of the pass
    depends on nothing but the place and the positions; an iteration begins with `begin`.

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
        """Where the flows beneath stand."""
        return ()

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The flows beneath, of which `positions` tells."""
        return [position.flow for position in self.positions]

    @property
    def _random(self) -> RNGDataFlow | None:
        """This flow, if it has randomness."""
        return self if isinstance(self, RNGDataFlow) else None

    def begin(self) -> Any:
        """Begin an iteration: return the place where the pass goes on, None if a new one begins."""
        if not self._is_loaded:
            self.break_off()
        elif self.place is not None and self._random is not None:
            self._random.epoch -= 1  # it begins again, further on
        self._is_loaded = False
        return self.place

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        self.place = None
        for position in self.positions:
            position.break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current iteration."""
        state: dict[str, Any] = {"place": self.place}
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
    """A `ProxyDataFlow` that can say where it stands, because it holds nothing back between two datapoints.

    A subclass iterates `self.upstream`, never `self.flow`: what it delivers next must depend on nothing but where the
    upstream stands, and on its `place`, if it has one.

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
        """The flow beneath; setting it starts at its beginning."""
        return self.upstream.flow

    @flow.setter
    def flow(self, flow: Iterable[Any]) -> None:
        self.upstream = Position(flow)
        self.place, self._is_loaded = None, False

    @property
    def positions(self) -> Sequence[Position]:
        """Where the flow beneath stands."""
        return (self.upstream,)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.upstream)


class Share(StatefulProxyDataFlow):
    """Of each `count` blocks of `block` datapoints of a flow the one numbered `index`.

    Args:
        flow: any iterable of datapoints, which must deliver the same to each worker.
        index: from 0 on, less than `count`.
        count: how many workers there are.
        block: how many consecutive datapoints belong together.

    Raises:
        ConfigError: there is no such share.
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
        if self.block > 1:
            return (datapoint for datapoint in datapoints if self._is_mine(self.upstream.delivered - 1))
        # A resumed pass goes on somewhere between two datapoints of this share.
        first = (self.index - self.upstream.delivered) % self.count
        return islice(datapoints, first, None, self.count)

    def _is_mine(self, number: int) -> bool:
        return number // self.block % self.count == self.index

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of a share: beneath, other datapoints would be each other's neighbours."""
        return Share(self, index, count, block)


class SequenceDataFlow(StatefulDataFlow):
    """Deliver the items of a sequence; of those, a share touches its own only.

    Args:
        items: the datapoints: anything with a length and ``[]``.
    """

    def __init__(self, items: Any) -> None:
        self.items = items
        self.refills_arrays = may_refill(items)
        self._shares: tuple[tuple[int, int, int], ...] = ()

    def reset_state(self) -> None:
        """Make the items ready."""
        reset_state(self.items)

    def __len__(self) -> int:
        length = len(self.items)
        for index, count, block in self._shares:
            length = length_of_share(length, index, count, block)
        return length

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        order = self._order()
        self.place = begin
        return self._deliver(order, begin)

    def _order(self) -> np.ndarray[Any, Any] | None:
        """Return the numbers of all items in the order of the pass that begins; None if they come as they stand."""
        return None

    def _deliver(self, order: np.ndarray[Any, Any] | None, begin: int) -> Iterator[Any]:
        items, length = self.items, len(self)
        for start in range(begin, length, _PLACES_AT_ONCE):
            places = np.arange(start, min(start + _PLACES_AT_ONCE, length))
            for index, count, block in reversed(self._shares):
                places = places // block * (count * block) + index * block + places % block
            if order is not None:
                places = order[places]
            # Lists take the numbers of Python far faster than those of NumPy.
            for place, item in enumerate(places.tolist(), start + 1):
                self.place = place
                yield items[item]
        self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow of some blocks of each pass's order."""
        check_share(index, count)
        share = copy.copy(self)
        share._shares = (*self._shares, (index, count, block))
        return share


_PLACES_AT_ONCE = 4096


def reset_state(flow: Iterable[Any]) -> None:
    """Call the flow's ``reset_state()`` if it has one, as a consumer does once before the first iteration."""
    reset = getattr(flow, "reset_state", None)
    if reset is not None:
        reset()


def close_dataflow(flow: Iterable[Any]) -> None:
    """Call ``close()`` of a `DataFlow`; what else can be iterated (a file, say) is its owner's to close."""
    if isinstance(flow, DataFlow):
        flow.close()


def allocate_with(flow: Iterable[Any], allocate: Allocate) -> None:
    """Call ``allocate_with(allocate)`` of a `DataFlow`; what else can be iterated has memory of its own."""
    if isinstance(flow, DataFlow):
        flow.allocate_with(allocate)


def may_refill(flow: Iterable[Any]) -> bool:
    """Tell whether a flow may write again into an array that it has delivered; what does not say so may do it.

    See `DataFlow.refills_arrays`, which any iterable may have.
    """
    if type(flow) is list or type(flow) is tuple:
        return False
    refills = getattr(flow, "refills_arrays", True)
    if refills is None and isinstance(flow, DataFlow):
        return any(map(may_refill, flow.sources))
    return bool(refills)


def error_of_data(error: BaseException, owner: str) -> BaseException:
    """Return what data code raised, or an error in its place if whoever asked for the data would take it otherwise.

    `sys.exit` ends the process, without a sign of failure perhaps, and others end an iteration or a generator. Only the
    user ends the process: in the main thread, by Ctrl-C or a handler of a signal.

    Args:
        error: what the data code raised, in this thread.
        owner: who ran it, for the message.

    Returns:
        `error` itself, or an `InputError` whose cause it is.
    """
    if not isinstance(error, _ENDS) or _is_of_the_user(error):
        return error
    place = traceback.extract_tb(error.__traceback__)[-1]
    failure = InputError(
        f"{owner}: the data code raised {error!r} in {place.name}, line {place.lineno} of {place.filename}. "
        "Data code does not end the process: let it raise an ordinary exception if the data is wrong, or return at its "
        "end."
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
    """Return the share of worker `index` of `count`; the shares together are the flow, each datapoint once a pass.

    Args:
        flow: any iterable of datapoints; its own ``shard(index, count)`` is asked if it has one. HuggingFace datasets
            have one of other arguments, so only dataflows are asked. Of a sequence, a share touches its own items only;
            of what else can be iterated, it makes all datapoints, and drops those of the others.
        index: from 0 on, less than `count`.
        count: how many workers there are.
        block: how many consecutive datapoints stay together.

    Raises:
        ConfigError: there is no such share.
    """
    if not isinstance(flow, DataFlow):
        if not is_sequence(flow):
            return Share(flow, index, count, block)
        flow = SequenceDataFlow(flow)
    return flow.shard(index, count) if block == 1 else flow.shard_blocks(index, count, block)


def is_sequence(flow: Any) -> bool:
    """Tell whether ``flow[i]``, for each i below its length, is what iterating it delivers: not so of a mapping."""
    if isinstance(flow, (Sequence, np.ndarray)) or is_foreign_sequence(flow):
        return True
    kind = type(flow)
    # Python itself iterates by index what defines nothing else, such as the data sets of torch.
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not hasattr(kind, "__iter__")


def check_share(index: int, count: int) -> None:
    """Make sure that `index` is the number of one of `count` workers.

    Raises:
        ConfigError: it is not.
    """
    if not 0 <= index < count:
        raise ConfigError(f"a share must have a number from 0 to {count - 1}, not {index}")


def length_of_share(length: int, index: int, count: int, block: int = 1) -> int:
    """Return how many of `length` datapoints are in a share of theirs."""
    rounds, rest = divmod(length, count * block)
    return rounds * block + min(max(rest - index * block, 0), block)


def divides_evenly(flow: Iterable[Any], parts: int) -> bool:
    """Tell whether the length of a flow is known, and a multiple of `parts`."""
    length = flow_length(flow)
    return length is not None and length % parts == 0


def seed_dataflow(flow: Iterable[Any], seed: int) -> None:
    """Give every `RNGDataFlow` in `flow` whose seed was not chosen one that is derived from `seed`.

    Each gets another one: it depends on the seed, and on where in the flow it stands.

    Args:
        flow: any iterable of datapoints.
        seed: a non-negative number, such as the seed of the run.
    """
    _seed(flow, np.random.SeedSequence(seed))


def _seed(flow: Iterable[Any], entropy: np.random.SeedSequence) -> None:
    if isinstance(flow, RNGDataFlow) and not flow.seed_was_chosen:
        flow.seed = int(entropy.generate_state(1, np.uint64)[0]) >> 11
    within = flows_within(flow)
    for source, child in zip(within, entropy.spawn(len(within)), strict=True):
        _seed(source, child)


def flow_length(flow: Iterable[Any]) -> int | None:
    """Return how many datapoints a pass over a flow has, or None where it has no length or knows none."""
    try:
        return len(flow)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def why_empty(flow: Iterable[Any]) -> str:
    """Return why a flow that has delivered nothing has no datapoint: the flow at fault, and what to do about it."""
    kind, sources = type(flow).__name__, flow.sources if isinstance(flow, DataFlow) else ()
    empty = [source for source in sources if flow_length(source) == 0]
    if empty:
        return why_empty(empty[0])
    batch_size = getattr(flow, "batch_size", None)
    if batch_size is not None and sources:
        count = flow_length(sources[0])
        return (
            f"{kind} makes no batch of {batch_size} from {'too few' if count is None else count} datapoints. Lower "
            "batch_size, or give it remainder=True"
        )
    if isinstance(flow, Share):
        return f"there are fewer datapoints than processes or workers ({flow.count}), and none is left for this one"
    return f"the dataflow {kind} has no datapoint"


def check_iterable(flow: object, owner: str) -> None:
    """Make sure that `flow` can be iterated, without starting an iteration (which may start workers).

    Args:
        flow: what was given as a dataflow.
        owner: who was given it, for the message.

    Raises:
        ConfigError: it is no iterable; the message says what to do with a generator function.
    """
    kind = type(flow)
    if hasattr(kind, "__iter__") or hasattr(kind, "__getitem__"):
        return
    what = f"{owner} takes an iterable of datapoints, not {flow!r}"
    if callable(flow):
        what += "; wrap a function that returns an iterable in DataFromGenerator"
    raise ConfigError(what)


class LookaheadDataFlow(StatefulProxyDataFlow):
    """A proxy that takes datapoints ahead of what it delivers; a resumed one takes them again, and delivers in silence.

    Its state is where the flow beneath stood when all that was taken had been delivered, and how many datapoints were
    delivered since. So it is at the beginning of a pass; a subclass that has caught up at other times, too, says so.

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

    @abstractmethod
    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given the datapoints of the flow beneath."""

    def caught_up(self) -> None:
        """Say that what was taken from the flow beneath so far has been delivered."""
        self.place = {"caught_up": self.upstream.state_dict(), "since": 0}

    def __iter__(self) -> Iterator[Any]:
        for datapoint in self._start():
            self.place["since"] += 1
            yield datapoint
        self.place = None

    def _start(self) -> Iterator[Any]:
        """Return what is to be delivered in this pass: all, or what comes after the place that was loaded."""
        place = self.begin()
        datapoints = iter(self.upstream)
        self.caught_up()
        delivered = self.deliver(datapoints)
        if place is not None and place["since"]:
            for _ in islice(delivered, place["since"]):
                self.place["since"] += 1
            logger.info(
                "%s goes on in the middle of a pass: made %d datapoints again that had been delivered",
                type(self).__name__,
                place["since"],
            )
        return delivered

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even in the middle of a pass."""
        if self._is_loaded and self.place is not None:
            self._start()  # so that the flow beneath is as far in the pass as it was
        super().break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current iteration."""
        state = super().state_dict()
        if self.place is not None:
            del state["upstreams"]  # it is further on, by what was taken ahead
            state["place"] = dict(self.place)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        place = state["place"]
        super().load_state_dict({"upstreams": [place["caught_up"]], **state} if place is not None else state)
