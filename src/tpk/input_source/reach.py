"""Which ops a run makes run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Whoever fetches something new in each run would fill the memory otherwise.
_MAX_KNOWN = 256


class Reach:
    """Tells which of some ops run along when something is fetched, because it depends on them.

    A run that does not need a source's datapoint, such as one of an objective that makes its inputs itself, takes
    none.

    Args:
        ops: the ops in question.
    """

    def __init__(self, ops: Sequence[Any]) -> None:
        self._ops = list(ops)
        # Each entry keeps its fetches alive, so that their id stays theirs.
        self._known: dict[int, tuple[Any, list[int]]] = {}

    def reached(self, fetches: Any) -> list[int]:
        """Return the positions of those that run along.

        Args:
            fetches: as for `tf.compat.v1.Session.run`.
        """
        known = self._known.get(id(fetches))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            needed = _needed(fetches, self._ops[0].graph) if self._ops else set()
            known = (fetches, [position for position, op in enumerate(self._ops) if id(op) in needed])
            self._known[id(fetches)] = known
        return known[1]


def _needed(fetches: Any, graph: Any) -> set[int]:
    """Return the ids of all ops on which the fetches depend."""
    parts = [part for part in tf.nest.flatten(fetches, expand_composites=True) if part is not None]
    elements = [graph.as_graph_element(part) for part in parts]
    waiting = [element.op if isinstance(element, tf.Tensor) else element for element in elements]
    seen = {id(op) for op in waiting}
    while waiting:
        op = waiting.pop()
        for source in [*(tensor.op for tensor in op.inputs), *op.control_inputs]:
            if id(source) not in seen:
                seen.add(id(source))
                waiting.append(source)
    return seen
