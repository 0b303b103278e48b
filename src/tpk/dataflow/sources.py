"""Sources of datapoints: lists, iterables, generator functions, queues and random arrays."""

from __future__ import annotations

import copy
import logging
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from tpk.argument_checks import check_at_least, check_positive, given
from tpk.dataflow.base import (
    DataFlow,
    RNGDataFlow,
    SequenceDataFlow,
    StatefulDataFlow,
    check_iterable,
    check_share,
    is_sequence,
    length_of_share,
    shard,
)
from tpk.dataflow.memory import aligned_empty
from tpk.dataflow.position import Count
from tpk.errors import ConfigError, InputError

logger = logging.getLogger(__name__)


class DataFromList(SequenceDataFlow, RNGDataFlow):
    """Deliver the items of a list, in order or in a new random order each epoch.

    A worker's share is part of each epoch's order; the worker reads only the items of its share.

    Args:
        items: the datapoints: any object with a length and ``[]``.
        shuffle: whether to shuffle anew in each epoch.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `items` has no length or no ``[]``, or the seed is invalid.
    """

    def __init__(self, items: Sequence[Any], shuffle: bool = False, seed: int | None = None) -> None:
        RNGDataFlow.__init__(self, seed)
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise ConfigError(
                f"DataFromList takes a sequence of datapoints, not {items!r}; "
                "wrap another iterable in DataFromIterable, or list() it"
            )
        SequenceDataFlow.__init__(self, items)
        self.shuffle = shuffle

    def _order(self) -> np.ndarray[Any, Any] | None:
        if not self.shuffle:
            self.epoch += 1
            return None
        # All workers draw the same order, so that their shares are disjoint.
        return self.epoch_rng().permutation(len(self.items))


class DataFromIterable(DataFlow):
    """Deliver the datapoints of an iterable.

    A one-shot iterator, such as a generator, lasts for one epoch; the second epoch is an error. A resumed run iterates
    from the start again to reach its position.

    Args:
        iterable: any iterable of datapoints. The flow has its length, if any.

    Raises:
        ConfigError: it is not iterable.
        InputError: a second epoch of a one-shot iterator begins.
    """

    refills_arrays = None

    def __init__(self, iterable: Iterable[Any]) -> None:
        check_iterable(iterable, type(self).__name__)
        self.iterable = iterable
        self._begun = False

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The iterable."""
        return (self.iterable,)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self.iterable)
        if iterator is self.iterable:
            if self._begun:
                raise InputError(
                    f"{type(self).__name__} cannot begin a second epoch: {self.iterable!r} is a one-shot "
                    "iterator; give DataFromGenerator the function that makes it"
                )
            self._begun = True
        yield from iterator

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of the iterable, if it can be divided."""
        if isinstance(self.iterable, DataFlow) or is_sequence(self.iterable):
            return shard(self.iterable, index, count, block)
        return super().shard_blocks(index, count, block)


class DataFromGenerator(DataFromIterable):
    """Deliver the datapoints of a generator function, which is called in each epoch.

    A resumed run calls it again for each epoch since the first to reach its position, so its datapoints should depend
    only on the number of calls.

    Args:
        generator: a function without arguments that returns an iterable of datapoints (a generator function), or an
            iterable, which is handled like in `DataFromIterable`.

    Raises:
        ConfigError: it is neither.

    Example:
        ```python
        def squares():
            for number in range(10):
                yield [number, number**2]

        flow = DataFromGenerator(squares)
        ```
    """

    def __init__(self, generator: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        if not isinstance(generator, Iterable) and not callable(generator):
            raise ConfigError(f"DataFromGenerator takes a generator function or an iterable, not {generator!r}")
        super().__init__(generator if isinstance(generator, Iterable) else _Calls(generator))
        self.generator = generator


@attrs.frozen
class _Calls:
    """An iterable each of whose iterations is a call of a function."""

    function: Callable[[], Iterable[Any]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function())


class GetsItems(Protocol):
    """The interface of the queues of `DataFromQueue`."""

    def get(self, block: bool = ..., timeout: float | None = ...) -> Any:
        """Return the next item; raise `queue.Empty` if none came within `timeout` seconds."""


class DataFromQueue(DataFlow):
    """Deliver datapoints from a queue, until it delivers None.

    None ends a pass; the next pass delivers the datapoints after it. Shutting down the queue also ends the pass.

    A resumed run continues with the current content of the queue; earlier datapoints are gone. Several workers may
    share a queue: each datapoint goes to one of them, and each of them needs its own None.

    Args:
        queue: a `queue.Queue`, a `multiprocessing.Queue`, or another object with their ``get(timeout=...)``.
        timeout: seconds without a datapoint after which an error is raised; None waits forever.

    Attributes:
        warn_after: seconds without a datapoint after which a warning is logged, repeatedly.

    Raises:
        ConfigError: `queue` has no ``get``, or a time is not positive.
        InputError: no datapoint came for `timeout` seconds.

    Example:
        ```python
        datapoints = queue.Queue(maxsize=100)
        flow = BatchData(DataFromQueue(datapoints, timeout=300), 32)
        # in another thread: datapoints.put([image, label]), and datapoints.put(None) in the end
        ```
    """

    warn_after: float = 60.0

    def __init__(self, queue: GetsItems, timeout: float | None = None) -> None:
        if not callable(getattr(queue, "get", None)):
            raise ConfigError(f"DataFromQueue: queue must have get(timeout=...) as queue.Queue has, not {queue!r}")
        check_positive(self, **given(timeout=timeout))
        self.queue = queue
        self.timeout = timeout

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while (datapoint := self._get(number)) is not None:
            number += 1
            yield datapoint

    def _get(self, number: int) -> Any:
        waited = 0.0
        while True:
            wait = self.warn_after if self.timeout is None else min(self.warn_after, self.timeout - waited)
            try:
                return self.queue.get(timeout=wait)
            except queue.Empty:
                waited += wait
            except _SHUT_DOWN:
                return None
            if self.timeout is not None and waited >= self.timeout:
                raise InputError(
                    f"DataFromQueue: datapoint {number} did not come within {self.timeout:g} seconds. Is the "
                    "thread or process that fills the queue still running? It ends the data by putting None."
                )
            logger.warning(
                "DataFromQueue has waited %g seconds for datapoint %d; is the thread or process that fills the queue "
                "still running?",
                waited,
                number,
            )

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow from the same queue: each datapoint goes to one of the workers."""
        check_share(index, count)
        return copy.copy(self)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: a queue has no position."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: a queue has no position."""


# Only Python 3.13 and later have it; an empty tuple catches nothing.
_SHUT_DOWN: Any = getattr(queue, "ShutDown", ())


class FakeData(StatefulDataFlow, RNGDataFlow):
    """Deliver arrays of given shapes: random arrays, or the same arrays in each datapoint.

    Args:
        shapes: the shape of each component.
        size: number of datapoints in a pass.
        random: whether to draw each datapoint. Otherwise all datapoints are the same list of aligned arrays, which
            costs no time, in order to measure everything else.
        dtype: the dtype of all components, or a list with the dtype of each: booleans, integers or floats.
        domain: the numbers are at least the first and less than the second; a pair, or a list with a pair for each
            component.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: the size is negative; or a shape, dtype or domain is invalid or missing.

    Example:
        ```python
        flow = FakeData([(224, 224, 3), ()], 1000, dtype=["uint8", "int64"], domain=[(0, 256), (0, 1000)])
        ```
    """

    refills_arrays = False

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        size: int = 1000,
        random: bool = True,
        dtype: Any = "float32",
        domain: Any = (0, 1),
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        check_at_least(self, 0, size=size)
        self.shapes = [_shape(shape) for shape in shapes]
        self._size = size
        self.random = random
        self.dtypes = [_dtype(each) for each in _for_each("dtype", dtype, len(self.shapes))]
        several = isinstance(domain, (list, tuple)) and all(isinstance(each, (list, tuple)) for each in domain)
        domains = _for_each("domain", domain if several else [domain] * len(self.shapes), len(self.shapes))
        self.domains = [_domain(each) for each in domains]
        for kind, (low, high) in zip(self.dtypes, self.domains, strict=True):
            if kind.kind in "iu" and not (np.iinfo(kind).min <= low and high - 1 <= np.iinfo(kind).max):
                raise ConfigError(f"FakeData: domain ({low}, {high}) does not fit into {kind}")

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        components = list(zip(self.shapes, self.dtypes, self.domains, strict=True))
        if not self.random:
            # Independent of the epoch and the worker.
            rng = np.random.default_rng(self.seed)
            fixed = [_array(rng, *component) for component in components]
        else:
            for _ in range(begin):
                [_array(rng, *component) for component in components]
        self.place = count = Count(begin)
        for _ in count.over(range(begin, self._size)):
            yield [_array(rng, *component) for component in components] if self.random else fixed
        self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow with the length of the share and its own random numbers."""
        check_share(index, count)
        share = copy.copy(self)
        share.worker = (*self.worker, index)
        share._size = length_of_share(self._size, index, count, block)
        return share


def _array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], domain: tuple[Any, Any]
) -> np.ndarray[Any, Any]:
    array = aligned_empty(shape, dtype)
    low, high = domain
    if dtype.kind in "iu":
        array[...] = rng.integers(low, high, shape, dtype)
    elif dtype.kind == "b":
        array[...] = rng.integers(0, 2, shape, np.uint8)
    elif domain == (0, 1) and dtype.itemsize in (4, 8):
        rng.random(dtype=dtype.type, out=array)
    else:
        array[...] = rng.random(shape, np.float64 if dtype.itemsize == 8 else np.float32) * (high - low) + low
        # Rounding may give the upper bound, which is excluded.
        np.minimum(array, np.nextafter(dtype.type(high), dtype.type(low)), out=array)
    return array


def _for_each(name: str, given: Any, count: int) -> list[Any]:
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ConfigError(f"FakeData: {name} has {len(given)} values for {count} shapes")
    return list(given)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Sequence) or not all(isinstance(side, (int, np.integer)) and side >= 0 for side in shape):
        raise ConfigError(
            f"FakeData: shapes must be one shape for each component, such as [(224, 224, 3), ()], not {shape!r}"
        )
    return tuple(int(side) for side in shape)


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise ConfigError(f"FakeData: {dtype!r} is not a dtype") from error
    if found.kind not in "biuf":
        raise ConfigError(f"FakeData: dtype must be boolean, integer or floating-point, not {found}")
    return found


def _domain(domain: Any) -> tuple[Any, Any]:
    if not (isinstance(domain, (list, tuple)) and len(domain) == 2 and domain[0] < domain[1]):
        raise ConfigError(f"FakeData: domain must be a pair of numbers, the first less than the second, not {domain!r}")
    return tuple(domain)
