"""Where datapoints come from: a list, an iterable, a function that returns an iterable."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tpk.dataflow.base import DataFlow, RNGDataFlow, check_iterable
from tpk.errors import ConfigError, InputError


class DataFromList(RNGDataFlow):
    """Deliver the items of a list, as they stand or in another random order each epoch.

    The share of a worker is part of each epoch's order, and only its items are touched.

    Args:
        items: the datapoints: anything with a length and ``[]``.
        shuffle: whether each epoch has an order of its own.
        seed: see [`RNGDataFlow`][tpk.dataflow.RNGDataFlow].

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
        self.shuffle = shuffle
        self._share = (0, 1)
        self._next: int | None = None
        self._resume_at: int | None = None

    def __len__(self) -> int:
        first, step = self._share
        return len(range(first, len(self.items), step))

    def __iter__(self) -> Iterator[Any]:
        rng = self.epoch_rng()
        begin, self._resume_at = self._resume_at or 0, None
        first, step = self._share
        # The workers shuffle alike, so that their shares have nothing in common.
        order = rng.permutation(len(self.items))[first::step] if self.shuffle else range(first, len(self.items), step)
        self._next = begin
        return self._deliver(order, begin)

    def _deliver(self, order: Any, begin: int) -> Iterator[Any]:
        for place in range(begin, len(order)):
            self._next = place + 1
            yield self.items[int(order[place])]
        self._next = None

    def shard(self, index: int, count: int) -> DataFlow:
        """Return a flow of every `count`-th item of each epoch's order."""
        share = copy.copy(self)
        first, step = self._share
        share._share = (first + index * step, step * count)
        return share

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands."""
        loaded = self._resume_at is not None
        return {
            "seed": self.seed,
            "epoch": self.epoch + loaded,
            "next": self._resume_at if loaded else self._next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self.seed, self._resume_at = state["seed"], state["next"]
        # An epoch that is under way begins again, further on.
        self.epoch = state["epoch"] - (self._resume_at is not None)
        self._next = None


class DataFromIterable(DataFlow):
    """Deliver what an iterable delivers.

    A one-shot iterator, such as a generator, can be iterated once: a second epoch is an error, not an empty
    one.

    Args:
        iterable: any iterable of datapoints; its length, if it has one, is the flow's.

    Raises:
        ConfigError: it cannot be iterated.
        InputError: a second epoch of a one-shot iterator begins.
    """

    def __init__(self, iterable: Iterable[Any]) -> None:
        check_iterable(iterable, type(self).__name__)
        self.iterable = iterable
        self._begun = False

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

    Args:
        generator: a function without arguments that returns an iterable of datapoints (a generator function),
            or an iterable, which is treated as [`DataFromIterable`][tpk.dataflow.DataFromIterable] does.

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
        elif callable(generator):
            self.generator = generator
        else:
            raise ConfigError(f"DataFromGenerator takes a generator function or an iterable, not {generator!r}")

    def __len__(self) -> int:
        return len(self.generator)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        source = self.generator
        yield from source if isinstance(source, Iterable) else source()
