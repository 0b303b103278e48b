"""Dependencies between ops and tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.graph import ops_run_for

__all__ = ["dependency_of_fetches", "dependency_of_targets"]


def dependency_of_targets(targets: Any, op: Any) -> bool:
    """Return whether `op` is run when `targets` are.

    Args:
        targets: an op or a tensor, or several.
        op: an op or a tensor.
    """
    # Variables also have an op.
    return (op if isinstance(op, tf.Operation) else op.op) in ops_run_for(targets)


def dependency_of_fetches(fetches: Any, op: Any) -> bool:
    """Return whether `op` is run when `fetches` are, which may be any structure that `Session.run` takes."""
    graph = tf.compat.v1.get_default_graph()
    elements = [graph.as_graph_element(each) for each in tf.nest.flatten(fetches)]
    return dependency_of_targets(elements, op)
