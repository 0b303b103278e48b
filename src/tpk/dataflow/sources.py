"""Sources of datapoints: a list, an iterable, a function that returns an iterable."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpk.dataflow.base import (
    DataFlow,
    RNGDataFlow,
    StatefulDataFlow,
    check_iterable,
    check_share,
    length_of_share,
    reset_state,
)
from tpk.errors import ConfigError, InputError


class DataFromList(StatefulDataFlow, RNGDataFlow):
    """Deliver the items of a list, as they stand or in another random order each epoch.

    The share of a worker is part of each epoch's order, and only its items are touched.

    Args:
        items: the datapoints: anything with a length and ``[]``.
        shuffle: whether each epoch has an order of its own.
        seed: see `RNGDataFlow`.

    Raises:
        ConfigError: `items` has no length or no ``[]``, or the seed is not one.
    """

    def __init__(self, items: Sequence[Any], shuffle: bool = False, seed: int | None = None) -> None:
        super().__init__(seed)
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise ConfigError(
                f"DataFromList takes a sequence of datapoints, not {items!r}; "
                "wrap another iterable in DataFromIterable, or list() it"
            )
        self.items = items
        if type(items) is list or type(items) is tuple:
            self.refills_arrays = False
        self.shuffle = shuffle
        self._shares: tuple[tuple[int, int, int], ...] = ()

    def __len__(self) -> int:
        length = len(self.items)
        for index, count, block in self._shares:
            length = length_of_share(length, index, count, block)
        return length

    def __iter__(self) -> Iterator[Any]:
        begin = self.begin() or 0
        rng = self.epoch_rng()
        # The workers shuffle alike, so that their shares have nothing in common.
        order = rng.permutation(len(self.items)) if self.shuffle else range(len(self.items))
        for index, count, block in self._shares:
            order = order[index::count] if block == 1 else _blocks(order, index, count, block)
        self.place = begin
        return self._deliver(order, begin)

    def _deliver(self, order: Any, begin: int) -> Iterator[Any]:
        items = self.items
        for start in range(begin, len(order), _PLACES_AT_ONCE):
            places = order[start : start + _PLACES_AT_ONCE]
            # Lists take the numbers of Python far faster than those of NumPy.
            for place, item in enumerate(places if isinstance(places, range) else places.tolist(), start + 1):
                self.place = place
                yield items[item]
        self.place = None

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow of some blocks of each epoch's order."""
        check_share(index, count)
        share = copy.copy(self)
        share._shares = (*self._shares, (index, count, block))
        return share


_PLACES_AT_ONCE = 4096


def _blocks(order: Any, index: int, count: int, block: int) -> np.ndarray[Any, Any]:
    places = np.asarray(order)
    mine: np.ndarray[Any, Any] = places[np.arange(len(places)) // block % count == index]
    return mine


class DataFromIterable(DataFlow):
    """Deliver what an iterable delivers.

    A one-shot iterator, such as a generator, can be iterated once: a second epoch is an error, not an empty
    one. A resumed run gets to where it was by iterating again from the start.

    Args:
        iterable: any iterable of datapoints; its length, if it has one, is the flow's.

    Raises:
        ConfigError: it cannot be iterated.
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

    def reset_state(self) -> None:
        """Make the iterable ready, if it is a dataflow."""
        if isinstance(self.iterable, DataFlow):
            self.iterable.reset_state()

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


class DataFromGenerator(DataFlow):
    """Deliver what a generator function yields; each epoch calls it anew.

    A resumed run gets to where it was by calling it again for each epoch from the first on, so what it yields should
    depend on nothing but how often it was called.

    Args:
        generator: a function without arguments that returns an iterable of datapoints (a generator function),
            or an iterable, which is treated as `DataFromIterable` does.

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
        if isinstance(generator, Iterable):
            self.generator: Callable[[], Iterable[Any]] | Iterable[Any] = DataFromIterable(generator)
            self.refills_arrays = None
        elif callable(generator):
            self.generator = generator
        else:
            raise ConfigError(f"DataFromGenerator takes a generator function or an iterable, not {generator!r}")

    @property
    def sources(self) -> Sequence[Iterable[Any]]:
        """The iterable, if it was given one."""
        return (self.generator,) if isinstance(self.generator, Iterable) else ()

    def reset_state(self) -> None:
        """Make the iterable ready, if it was given one that is a dataflow."""
        for source in self.sources:
            reset_state(source)

    def __len__(self) -> int:
        if not isinstance(self.generator, Iterable):
            raise TypeError("how many datapoints a generator function yields is not known")
        return len(self.generator)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        source = self.generator
        yield from source if isinstance(source, Iterable) else source()
