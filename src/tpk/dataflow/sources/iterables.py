"""Sources of datapoints: a list, an iterable, a function that returns an iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpk.dataflow.base import (
    DataFlow,
    RNGDataFlow,
    SequenceDataFlow,
    check_iterable,
    is_sequence,
    reset_state,
    shard,
)
from tpk.errors import ConfigError, InputError


class DataFromList(SequenceDataFlow, RNGDataFlow):
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
        RNGDataFlow.__init__(self, seed)
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise ConfigError(
                f"DataFromList takes a sequence of datapoints, not {items!r}; "
                "wrap another iterable in DataFromIterable, or list() it"
            )
        SequenceDataFlow.__init__(self, items)
        self.shuffle = shuffle

    def _order(self) -> np.ndarray[Any, Any] | None:
        rng = self.epoch_rng()
        # The workers shuffle alike, so that their shares have nothing in common.
        return rng.permutation(len(self.items)) if self.shuffle else None


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

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of the iterable, if it can be divided."""
        if isinstance(self.iterable, DataFlow) or is_sequence(self.iterable):
            return shard(self.iterable, index, count, block)
        return super().shard_blocks(index, count, block)


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

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return the share of the iterable, if it was given one."""
        if isinstance(self.generator, Iterable):
            return shard(self.generator, index, count, block)
        return super().shard_blocks(index, count, block)
