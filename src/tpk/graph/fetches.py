"""The fetches and feeds of a session run: their structures, the ops that run for them, and feeds that are reused."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

logger = logging.getLogger(__name__)

# Limits the memory if something new is fetched in each run.
_MAX_KNOWN = 256


def structure_key(request: Any) -> Any:
    """Return a hashable value that two requests share only if they ask for the same things in the same structure.

    It is made of ids, so it holds for as long as the `leaves` of the request are kept alive.
    """
    if isinstance(request, str):
        return request
    parts = _parts(request)
    if parts is None:
        return id(request)
    return (type(request), *((_key_of_name(name), structure_key(part)) for name, part in parts))


def leaves(request: Any) -> list[Any]:
    """Return the leaves of a structure of fetches, in the order of `Session.run`."""
    parts = _parts(request)
    return [request] if parts is None else [leaf for _, part in parts for leaf in leaves(part)]


def names_in(request: Any) -> list[Any]:
    """Return the keys of all dicts in a structure of fetches; its `structure_key` contains their ids."""
    parts = _parts(request)
    return [] if parts is None else [each for name, part in parts for each in (name, *names_in(part))]


def rebuild(structure: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a new structure of fetches or results, with ``leaf(part)`` for each leaf.

    The containers are new, and have the types of results of `Session.run`.
    """
    parts = _parts(structure)
    if parts is None:
        return leaf(structure)
    new = [(name, rebuild(part, leaf)) for name, part in parts]
    if isinstance(structure, defaultdict):
        return defaultdict(structure.default_factory, new)
    if isinstance(structure, Mapping):
        return type(structure)(new)  # type: ignore[call-arg]
    values = [part for _, part in new]
    if isinstance(structure, list):
        return values
    kind = type(getattr(structure, "__wrapped__", structure))  # TensorFlow tracks tuples by proxies.
    return tuple(values) if kind is tuple else kind(*values)


def ops_run_for(fetches: Any) -> list[Any]:
    """Return the ops that run when `fetches` are fetched, each after its inputs and control inputs.

    Args:
        fetches: operations, tensors and variables of one graph, in any structure.
    """
    return ops_from(fetches, lambda op: [*(tensor.op for tensor in op.inputs), *op.control_inputs])


def ops_computing(fetches: Any) -> list[Any]:
    """Return the ops that compute `fetches`, without control inputs, each after its inputs.

    Args:
        fetches: as for `ops_run_for`.
    """
    return ops_from(fetches, lambda op: [tensor.op for tensor in op.inputs])


def ops_from(fetches: Any, sources: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the ops of `fetches` and, recursively, their `sources`; each after its sources, unless in a cycle.

    Args:
        fetches: as for `ops_run_for`.
        sources: returns the ops that an op needs.
    """
    ordered: list[Any] = []
    seen: set[Any] = set()
    waiting = [(getattr(each, "op", each), False) for each in tf.nest.flatten(fetches, expand_composites=True)]
    while waiting:
        op, is_done = waiting.pop()
        if is_done:
            ordered.append(op)
        elif op not in seen:
            seen.add(op)
            waiting.append((op, True))
            waiting.extend((source, False) for source in sources(op) if source not in seen)
    return ordered


class FetchDependencies:
    """Finds which of some ops run when something is fetched, because it depends on them.

    For example, a run that does not depend on an input source must not take a datapoint from it.

    Args:
        ops: the ops in question.
    """

    def __init__(self, ops: Iterable[Any]) -> None:
        self._ops = list(ops)
        # Each entry keeps its leaves alive, so that the ids in its key stay theirs.
        self._known: dict[Any, tuple[list[Any], list[int]]] = {}

    def among(self, fetches: Any) -> list[int]:
        """Return the positions of the ops that run.

        Args:
            fetches: as for `tf.compat.v1.Session.run`.
        """
        if not self._ops:
            return []
        found = leaves(fetches)
        key = tuple(map(id, found))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            graph = self._ops[0].graph
            parts = tf.nest.flatten([each for each in found if each is not None], expand_composites=True)
            needed = set(ops_run_for([graph.as_graph_element(part) for part in parts]))
            known = (found, [position for position, op in enumerate(self._ops) if op in needed])
            self._known[key] = known
        return known[1]


def _parts(structure: Any) -> Sequence[tuple[Any, Any]] | None:
    """Return the parts of a structure of `Session.run` by name; None for a leaf."""
    if isinstance(structure, list | tuple):
        return list(enumerate(structure))
    if isinstance(structure, Mapping):
        return list(structure.items())
    if attrs.has(type(structure)):
        return [(field.name, getattr(structure, field.name)) for field in attrs.fields(type(structure))]
    return None


def _key_of_name(name: Any) -> Any:
    # Equal keys of different types, such as 1 and True, must stay different; other keys are compared by identity.
    return (type(name), name) if isinstance(name, str | int) else id(name)


@attrs.frozen(eq=False)
class ReusableFeeds:
    """Feeds that are one reusable object; their values are taken just before each run that depends on a fed tensor.

    A hook that returns the same request in each step costs the session almost nothing: the session finds the merged run
    by the identity of the requests, and hashes no tensors.

    Attributes:
        tensors: the tensors to feed.
        take: returns the values for one run, in the order of the tensors; each must have the dtype of its tensor and
            a shape that fits, which is not checked again.
    """

    tensors: Sequence[Any]
    take: Callable[[], Sequence[Any]]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Take the values for one run, and return the pairs of tensors and values."""
        return zip(self.tensors, self.take(), strict=True)
