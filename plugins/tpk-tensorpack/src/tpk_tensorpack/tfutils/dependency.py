"""Dependencies between ops and tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["dependency_of_fetches", "dependency_of_targets"]


def dependency_of_targets(targets: Any, op: Any) -> bool:
    """Return whether `op` is run when `targets` are.

    Args:
        targets: an op or a tensor, or several.
        op: an op or a tensor.
    """
    waiting = [_op_of(each) for each in tf.nest.flatten(targets)]
    sought = _op_of(op)
    seen = set()
    while waiting:
        each = waiting.pop()
        if each is sought:
            return True
        if each not in seen:
            seen.add(each)
            waiting += [*(tensor.op for tensor in each.inputs), *each.control_inputs]
    return False


def dependency_of_fetches(fetches: Any, op: Any) -> bool:
    """Return whether `op` is run when `fetches` are, which may be any structure that `Session.run` takes."""
    graph = tf.compat.v1.get_default_graph()
    elements = [graph.as_graph_element(each) for each in tf.nest.flatten(fetches)]
    return dependency_of_targets(elements, op)


def _op_of(each: Any) -> Any:
    # Variables also have an op.
    return each if isinstance(each, tf.Operation) else each.op
