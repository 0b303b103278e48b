"""The bases of data flows."""

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
    """Decorate a constructor so that it also takes ``nr_*`` for each of its ``num_*``, as before 2019."""

    @functools.wraps(init)
    def construct(*args: Any, **kwargs: Any) -> None:
        init(*args, **{re.sub("^nr_", "num_", name): value for name, value in kwargs.items()})

    return cast(Constructor, construct)


class DataFlowTerminated(BaseException):
    """A data flow is over, and cannot begin anew."""


class DataFlowReentrantGuard:
    """A context for the ``__iter__`` of a data flow that can be iterated only once at a time, as it has workers, say.

    Raises:
        RuntimeError: (on entering) somebody is within it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "this DataFlow is being iterated already, and cannot be twice at a time: end the other iteration, or "
                "make another DataFlow"
            )

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class LengthUnknownError(NotImplementedError, TypeError):
    """A data flow does not know how many datapoints it has; a `TypeError`, too, so that `list` asks no further."""


class DataFlow(tpk.dataflow.DataFlow):
    """Base of the data flows: an iterable of lists or dicts, which can be iterated again and again.

    A subclass defines `__iter__` (or `get_data`, as in the tensorpack of before 2019), and `__len__` if it has a
    length.
    Whoever iterates it calls `reset_state` first, once in the process that iterates.
    """

    def __iter__(self) -> Iterator[Any]:
        if type(self).get_data is DataFlow.get_data:
            raise NotImplementedError(f"{type(self).__name__} defines no __iter__, which delivers its datapoints")
        yield from self.get_data()

    def get_data(self) -> Iterator[Any]:
        """Iterate, as tensorpack's scripts of before 2019 do."""
        return iter(self)

    def __len__(self) -> int:
        if type(self).size not in (DataFlow.size, ProxyDataFlow.size):
            return self.size()
        raise LengthUnknownError(f"{type(self).__name__} has no length")

    def size(self) -> int:
        """Return the length. Scripts from before 2019 call it, or override it instead of ``__len__``."""
        return len(self)


class ProxyDataFlow(tpk.dataflow.ProxyDataFlow, DataFlow):
    """A data flow of what another one delivers, as long as that; a subclass overrides what it does otherwise.

    Args:
        ds: the other one.
    """

    def __init__(self, ds: Iterable[Any]) -> None:
        super().__init__(ds)

    def __len__(self) -> int:
        return self.size() if type(self).size is not ProxyDataFlow.size else len(self.flow)

    @property
    def ds(self) -> Any:
        """The other data flow."""
        return self.flow

    @ds.setter
    def ds(self, ds: Iterable[Any]) -> None:
        self.flow = ds

    def __iter__(self) -> Iterator[Any]:
        yield from self.flow if type(self).get_data is ProxyDataFlow.get_data else self.get_data()

    def get_data(self) -> Iterator[Any]:
        """Iterate, as tensorpack's scripts of before 2019 do."""
        return iter(self.flow if type(self).__iter__ is ProxyDataFlow.__iter__ else self)


class RNGDataFlow(DataFlow):
    """A data flow with random numbers of its own.

    Attributes:
        rng: a `numpy.random.RandomState`, other than in any other process; made by `reset_state`.
    """

    rng: Any = None

    def reset_state(self) -> None:
        """Begin with other random numbers."""
        self.rng = get_rng(self)


class DrawsFromRandomState(tpk.dataflow.StatefulDataFlow):
    """The first base of a flow of tpk that draws from `rng`, as tensorpack's do, and yet knows where it stands.

    Its state holds two of `rng`: that from which the pass under way goes on, which is that of its beginning, and that
    from which the next one begins if this one is broken off, which is that of now. Between two passes they are one.
    """

    rng: Any
    _at_beginning: Any = None
    _loaded: Any = None
    _loaded_now: Any = None

    def reset_state(self) -> None:
        """Begin with other random numbers; make the flows beneath ready."""
        self.rng = get_rng(self)
        for flow in self.sources:
            reset_state(flow)

    def epoch_rng(self) -> Any:
        """Begin a pass and return its random numbers."""
        if self.rng is None:
            self.rng = get_rng(self)
        if self._loaded is not None:
            set_random_state(self.rng, self._loaded)
            self._loaded = None
        self._at_beginning = random_state(self.rng)
        return self.rng

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands."""
        at_beginning, now = self._loaded, self._loaded_now
        if at_beginning is None and self.rng is not None:
            now = random_state(self.rng)
            at_beginning = now if self.place is None else self._at_beginning
        return {**super().state_dict(), "rng": at_beginning, "rng_now": now}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        super().load_state_dict(state)
        self._loaded, self._loaded_now = state["rng"], state["rng_now"]

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way."""
        super().break_off()
        if self._loaded is not None:
            self._loaded = self._loaded_now


def random_state(rng: np.random.RandomState) -> list[Any]:
    """Return where random numbers stand, as plain data."""
    name, words, *rest = rng.get_state()
    return [name, np.asarray(words).tolist(), *rest]


def set_random_state(rng: np.random.RandomState, state: list[Any]) -> None:
    """Let random numbers go on where they stood."""
    name, words, *rest = state
    rng.set_state((name, np.array(words, np.uint32), *rest))
