"""Base classes of data flows."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np

import tpk.dataflow
from tpk.dataflow.base import reset_state
from tpk_tensorpack.utils.utils import get_rng

__all__ = ["DataFlow", "DataFlowTerminated", "ProxyDataFlow", "RNGDataFlow"]


Constructor = TypeVar("Constructor", bound=Callable[..., None])


def with_older_names(init: Constructor) -> Constructor:
    """Decorate a constructor so that it also accepts each ``num_*`` argument as ``nr_*``, the name before 2019."""

    @functools.wraps(init)
    def construct(*args: Any, **kwargs: Any) -> None:
        init(*args, **{re.sub("^nr_", "num_", name): value for name, value in kwargs.items()})

    return cast(Constructor, construct)


class DataFlowTerminated(BaseException):
    """Raised when a data flow is exhausted and cannot restart."""


class DataFlowReentrantGuard:
    """A context manager for the ``__iter__`` of a data flow that cannot be iterated twice at a time.

    Raises:
        RuntimeError: another iteration has not finished.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "this DataFlow is already being iterated and supports one iteration at a time: finish the other one or "
                "create another DataFlow"
            )

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class LengthUnknownError(NotImplementedError, TypeError):
    """Raised when a data flow has no known length; also a `TypeError`, because `list` ignores that."""


class DataFlow(tpk.dataflow.DataFlow):
    """Base class of data flows: iterables of lists or dicts that can be iterated repeatedly.

    A subclass defines `__iter__` (or `get_data`, as before 2019), and `__len__` if it has a length. Before the first
    iteration, call `reset_state` once in the process that iterates.
    """

    def __iter__(self) -> Iterator[Any]:
        if type(self).get_data is DataFlow.get_data:
            raise NotImplementedError(f"{type(self).__name__} does not define __iter__, which delivers its datapoints")
        yield from self.get_data()

    def get_data(self) -> Iterator[Any]:
        """Iterate; the method's name before 2019."""
        return iter(self)

    def __len__(self) -> int:
        if type(self).size not in (DataFlow.size, ProxyDataFlow.size):
            return self.size()
        raise LengthUnknownError(f"{type(self).__name__} has no length")

    def size(self) -> int:
        """Return the length. Scripts from before 2019 call or override this instead of ``__len__``."""
        return len(self)


class ProxyDataFlow(tpk.dataflow.ProxyDataFlow, DataFlow):
    """A data flow that wraps another one and has its length; subclasses override the rest.

    Args:
        ds: the data flow to wrap.
    """

    def __init__(self, ds: Iterable[Any]) -> None:
        super().__init__(ds)

    def __len__(self) -> int:
        return self.size() if type(self).size is not ProxyDataFlow.size else len(self.flow)

    @property
    def ds(self) -> Any:
        """The wrapped data flow."""
        return self.flow

    @ds.setter
    def ds(self, ds: Iterable[Any]) -> None:
        self.flow = ds

    def __iter__(self) -> Iterator[Any]:
        yield from self.flow if type(self).get_data is ProxyDataFlow.get_data else self.get_data()

    def get_data(self) -> Iterator[Any]:
        """Iterate; the method's name before 2019."""
        return iter(self.flow if type(self).__iter__ is ProxyDataFlow.__iter__ else self)


class RNGDataFlow(DataFlow):
    """A data flow with its own random number generator.

    Attributes:
        rng: a `numpy.random.RandomState`, different in each process; created by `reset_state`.
    """

    rng: Any = None

    def reset_state(self) -> None:
        """Reseed the random numbers."""
        self.rng = get_rng(self)


class DrawsFromRandomState(tpk.dataflow.StatefulDataFlow):
    """First base class of tpk flows that draw from `rng` as tensorpack's do, but can also save their position.

    The state holds two states of `rng`: the one at the start of the current pass, from which to replay that pass, and
    the current one, from which the next pass begins if this one is abandoned. Between two passes they are the same.
    """

    rng: Any
    _at_beginning: Any = None
    _loaded: Any = None
    _loaded_now: Any = None

    def reset_state(self) -> None:
        """Reseed the random numbers and reset the wrapped flows."""
        self.rng = get_rng(self)
        for flow in self.sources:
            reset_state(flow)

    def epoch_rng(self) -> Any:
        """Begin a pass and return its random number generator."""
        if self.rng is None:
            self.rng = get_rng(self)
        if self._loaded is not None:
            set_random_state(self.rng, self._loaded)
            self._loaded = None
        self._at_beginning = random_state(self.rng)
        return self.rng

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the current iteration."""
        at_beginning, now = self._loaded, self._loaded_now
        if at_beginning is None and self.rng is not None:
            now = random_state(self.rng)
            at_beginning = now if self.place is None else self._at_beginning
        return {**super().state_dict(), "rng": at_beginning, "rng_now": now}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration continue from there."""
        super().load_state_dict(state)
        self._loaded, self._loaded_now = state["rng"], state["rng_now"]

    def break_off(self) -> None:
        """Make the next iteration begin a new pass, even in the middle of a pass."""
        super().break_off()
        if self._loaded is not None:
            self._loaded = self._loaded_now


def random_state(rng: np.random.RandomState) -> list[Any]:
    """Return the state of a random number generator as plain data."""
    name, words, *rest = rng.get_state()
    return [name, np.asarray(words).tolist(), *rest]


def set_random_state(rng: np.random.RandomState, state: list[Any]) -> None:
    """Restore the state of a random number generator."""
    name, words, *rest = state
    rng.set_state((name, np.array(words, np.uint32), *rest))
