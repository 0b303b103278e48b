"""Checks of the train ops of a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import TrainerStateError

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


def check_train_ops(trainer: TrainerProtocol) -> None:
    """Check that what a trainer runs in a step can be run in its graph.

    Raises:
        TrainerStateError: if it is none of that graph; it says what it is, and where it belongs.
    """
    for train_op in trainer.train_ops:
        for leaf in tf.nest.flatten(train_op):
            problem = _problem_of(leaf, trainer.graph)
            if problem:
                raise TrainerStateError(f"the train_op of {type(trainer).__name__} is {problem}")


def _problem_of(fetch: Any, graph: Any) -> str | None:
    where = "Make it, and the variables that it needs, under `with self.graph.as_default():`."
    tensor = getattr(fetch, "handle", fetch)
    if isinstance(tensor, tf.Tensor) and not tf.is_symbolic_tensor(tensor):
        return f"{type(fetch).__name__} that TensorFlow has executed already, outside of the trainer's graph. {where}"
    if callable(fetch) and not isinstance(fetch, tf.Tensor | tf.Variable):
        return f"the function {fetch!r}; expected an op or tensors. Override run_step() to call a function."
    try:
        graph.as_graph_element(fetch)
    except (TypeError, ValueError, KeyError) as error:
        return f"{fetch!r}; expected an op or tensors of its graph, or their names: {error} {where}"
    return None
