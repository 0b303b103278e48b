"""The bases of dataflows, and the two things that whoever consumes an iterable as a dataflow must do."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tpk.errors import ConfigError


class DataFlow(ABC):
    """Base of the dataflows: an iterable of datapoints that can be iterated again and again.

    Deriving from it is a convenience; every iterable of datapoints is a dataflow. A subclass that knows how
    many datapoints one iteration delivers defines ``__len__``.

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

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: deliver the datapoints from the first one on."""

    def reset_state(self) -> None:  # noqa: B027 - most have nothing to make ready
        """Make ready to be iterated in this process: open files, connect.

        Whoever consumes a flow calls it once, in the process that iterates, before the first iteration.
        """


class ProxyDataFlow(DataFlow):
    """A dataflow on top of another one: delivers its datapoints unless ``__iter__`` is overridden.

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

    def reset_state(self) -> None:
        """Make the underlying flow ready."""
        reset_state(self.flow)


class RNGDataFlow(DataFlow):
    """A dataflow with randomness: the same seed gives the same stream, and each epoch another part of it.

    Args:
        seed: a non-negative number; None draws one from the operating system. It is kept in the attribute
            `seed`, so that a stream can be had again.

    Attributes:
        seed: what the randomness starts from.
        epoch: how many epochs have begun since construction.

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

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            seed = secrets.randbits(53)  # no more, so that it survives any JSON reader
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ConfigError(f"the seed of {type(self).__name__} must be a whole number from 0 on, not {seed!r}")
        self.seed = int(seed)
        self.epoch = 0

    def epoch_rng(self) -> np.random.Generator:
        """Begin an epoch and return its random numbers, made from the seed and the number of the epoch."""
        rng = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        return rng


def reset_state(flow: Iterable[Any]) -> None:
    """Call the flow's ``reset_state()`` if it has one, as a consumer does once before the first iteration."""
    reset = getattr(flow, "reset_state", None)
    if reset is not None:
        reset()


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
