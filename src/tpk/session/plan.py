"""One merged run, compiled: many requests become a single call of TensorFlow's callable interface.

`Session.run` resolves the structure of its fetches and feeds anew each time. A step asks for the same structure a
million times, so a `RunPlan` resolves it once. What cannot be compiled (sparse and composite feeds, feeds by name,
tensors both fed and fetched, tensor handles) is left to `Session.run`; results are always those of `Session.run`,
because its own fetch handler builds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session

from tpk.errors import SessionError
from tpk.graph.standing_feeds import StandingFeeds

Feed = tuple[Any, Any]
"""A tensor and its value. A list of pairs, not a dict: tensors do not hash outside of their graph's context."""


@attrs.frozen(eq=False)
class RunPlan:
    """How to run one structure of requests.

    Attributes:
        kept: what cache keys refer to by id, kept so that the ids stay those of these objects.
        fetches: the merged structure, for the calls that `Session.run` has to make.
        positions: where in the merged results the results of each request stand; None where it asked for nothing.
        slots: dtype and dimensions of each feed, in the order in which the callable takes them.
        call: the compiled callable; None if this structure needs `Session.run`.
        build: makes the merged results of what `call` returned; None if no request fetches anything, so that all
            results are None.
        no_results: the results of each request then.
    """

    kept: tuple[Any, ...]
    fetches: list[Any]
    positions: tuple[int | None, ...]
    slots: tuple[_Slot, ...] = ()
    call: Callable[..., list[Any]] | None = None
    build: Callable[[list[Any]], list[Any]] | None = None
    no_results: list[None] = attrs.field(init=False)

    @no_results.default
    def _no_results(self) -> list[None]:
        return [None] * len(self.positions)

    def distribute(self, merged: Sequence[Any]) -> list[Any]:
        """Return the results of each request from those of the merged structure."""
        return [None if position is None else merged[position] for position in self.positions]

    def convert(self, feeds: Sequence[Feed]) -> list[np.ndarray] | None:
        """Return the values of `feeds` as arrays, as `Session.run` would; None where only it can tell."""
        arrays = []
        for (_, value), slot in zip(feeds, self.slots, strict=True):
            array = slot.convert(value)
            if array is None:
                return None
            arrays.append(array)
        return arrays


@attrs.frozen
class _Slot:
    """What a fed tensor takes."""

    dtype: Any
    dims: tuple[int | None, ...] | None

    def convert(self, value: Any) -> np.ndarray | None:
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            # Whole numbers, tensors, handles and the like have checks of their own in Session.run.
            if not isinstance(value, np.ndarray | np.generic | float | str | bytes | list | tuple):
                return None
            try:
                value = np.asarray(value, dtype=self.dtype)
            except Exception:  # Session.run meets the same one, and words it better.
                return None
        return value if self._fits(value.shape) else None

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if self.dims is None:
            return True
        return len(shape) == len(self.dims) and all(
            dim is None or dim == size for dim, size in zip(self.dims, shape, strict=True)
        )


def make_plan(sess: Any, requests: Sequence[Any], extra_targets: Sequence[Any], feed_keys: Sequence[Any]) -> RunPlan:
    """Compile `requests` into one run.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        requests: a structure of fetches each, as `Session.run` takes it: that of the caller, then those of the
            hooks, where None is nothing.
        extra_targets: ops that run along, whose results nobody gets.
        feed_keys: the tensors that are fed, in order.

    Returns:
        The plan. Its `call` is None if the structure needs `Session.run`.
    """
    positions: list[int | None] = []
    merged: list[Any] = []
    for index, request in enumerate(requests):
        if request is None and index > 0:  # A caller has to want something; a hook need not.
            positions.append(None)
        else:
            positions.append(len(merged))
            merged.append(request)
    merged.extend(extra_targets)
    kept = [leaf for request in requests for leaf in leaves(request)]
    plan = RunPlan(kept=(*kept, *feed_keys), fetches=merged, positions=tuple(positions))

    slots = _slots(sess.graph, feed_keys)
    if slots is None:
        return plan
    handler = tf_session._FetchHandler(sess.graph, merged, {})
    fed = {id(key) for key in feed_keys}
    if any(id(fetch) in fed for fetch in handler.fetches()):
        return plan
    if not handler.fetches() and not handler.targets():
        return plan
    options = config_pb2.CallableOptions(
        feed=[key.name for key in feed_keys],
        fetch=[fetch.name for fetch in handler.fetches()],
        target=[op.name for op in handler.targets()],
    )
    only_ops = all(request is None or isinstance(request, tf.Operation) for request in requests)
    return attrs.evolve(
        plan,
        slots=slots,
        call=sess._make_callable_from_options(options),
        build=None if only_ops else lambda values: handler.build_results(sess, values),
    )


def _slots(graph: Any, feed_keys: Sequence[Any]) -> tuple[_Slot, ...] | None:
    slots = []
    for key in feed_keys:
        if not isinstance(key, tf.Tensor) or key.graph is not graph or not graph.is_feedable(key):
            return None
        dims = None if key.shape.rank is None else tuple(key.shape.as_list())
        slots.append(_Slot(np.dtype(key.dtype.as_numpy_dtype), dims))
    return tuple(slots)


def structure_key(request: Any) -> Any:
    """Return a hashable value that two requests share only if they ask for the same things in the same structure."""
    if isinstance(request, str):
        return request
    parts = _parts(request)
    return id(request) if parts is None else (type(request), *((name, structure_key(part)) for name, part in parts))


def leaves(request: Any) -> list[Any]:
    """Return the objects whose ids stand in `structure_key` of `request`, so that a cache can keep them alive."""
    parts = _parts(request)
    return [request] if parts is None else [leaf for _, part in parts for leaf in leaves(part)]


def _parts(request: Any) -> Sequence[tuple[Any, Any]] | None:
    """The parts of a structure that `Session.run` looks into, by name; None if it is a single thing."""
    if isinstance(request, list | tuple):
        return list(enumerate(request))
    if isinstance(request, Mapping):
        return list(request.items())
    if attrs.has(type(request)):
        return [(field.name, getattr(request, field.name)) for field in attrs.fields(type(request))]
    return None


def is_constant(request: Any) -> bool:
    """Whether `request` can be told by its identity alone, because nothing in it can change but standing feeds."""
    if isinstance(request, tuple):
        return all(map(is_constant, request))
    return request is None or isinstance(request, str | tf.Operation | tf.Tensor | StandingFeeds)


def merge_feeds(feed_dicts: Sequence[Any]) -> list[Feed]:
    """Return all feeds as pairs.

    Raises:
        SessionError: if two of them feed the same tensor.
    """
    feeds: list[Feed] = []
    seen: set[int] = set()
    for feed_dict in feed_dicts:
        for key, value in (feed_dict or {}).items():
            if id(key) in seen:
                raise SessionError(
                    f"{getattr(key, 'name', key)!r} is fed twice in one step, by the step or by callbacks. "
                    "Feed it in one place."
                )
            seen.add(id(key))
            feeds.append((key, value))
    return feeds
