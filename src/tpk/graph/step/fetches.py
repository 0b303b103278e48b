"""Structures of fetches, as `Session.run` takes them, and the ops that a run of them runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

# Whoever fetches something new in each run would fill the memory otherwise.
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
    """Return the single things of a structure of fetches, in the order in which `Session.run` finds them."""
    parts = _parts(request)
    return [request] if parts is None else [leaf for _, part in parts for leaf in leaves(part)]


def names_in(request: Any) -> list[Any]:
    """Return the keys of all dicts in a structure of fetches, which stand by their ids in its `structure_key`."""
    parts = _parts(request)
    return [] if parts is None else [each for name, part in parts for each in (name, *names_in(part))]


def rebuild(structure: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a structure of fetches or results anew, with ``leaf(part)`` for each single thing in it.

    The containers are of the types that the results of `Session.run` have, and are changed by nobody else.
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
    """Return the ops that run when `fetches` are fetched, by data or by control; each after those that it waits for.

    Args:
        fetches: operations, tensors and variables of one graph, in any structure.
    """
    return ops_from(fetches, lambda op: [*(tensor.op for tensor in op.inputs), *op.control_inputs])


def ops_computing(fetches: Any) -> list[Any]:
    """Return the ops from whose outputs `fetches` are computed; each after those whose outputs it takes.

    Args:
        fetches: as for `ops_run_for`.
    """
    return ops_from(fetches, lambda op: [tensor.op for tensor in op.inputs])


def ops_from(fetches: Any, sources: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the ops of `fetches`, and what `sources` leads to from them; each after its sources, unless in a circle.

    Args:
        fetches: as for `ops_run_for`.
        sources: returns the ops that one needs.
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
    """Tells which of some ops run along when something is fetched, because it depends on them.

    A run that does not need a source's datapoint, such as one of an objective that makes its inputs itself, takes
    none.

    Args:
        ops: the ops in question.
    """

    def __init__(self, ops: Iterable[Any]) -> None:
        self._ops = list(ops)
        # Each entry keeps its leaves alive, so that the ids in its key stay theirs.
        self._known: dict[Any, tuple[list[Any], list[int]]] = {}

    def among(self, fetches: Any) -> list[int]:
        """Return the positions of those that run along.

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
    """The parts of a structure that `Session.run` looks into, by name; None if it is a single thing."""
    if isinstance(structure, list | tuple):
        return list(enumerate(structure))
    if isinstance(structure, Mapping):
        return list(structure.items())
    if attrs.has(type(structure)):
        return [(field.name, getattr(structure, field.name)) for field in attrs.fields(type(structure))]
    return None


def _key_of_name(name: Any) -> Any:
    # Of equal keys, such as 1 and True, each is to come back as it is; what is mutable is only itself.
    return (type(name), name) if isinstance(name, str | int) else id(name)
