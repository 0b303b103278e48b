"""The graph's global step: one ``int64`` variable that counts the runs of the hooked session."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

logger = logging.getLogger(__name__)

_ASSIGN_OPS = frozenset({"AssignAddVariableOp", "AssignVariableOp", "AssignAdd", "Assign"})


def get_global_step_var() -> Any:
    """Return the default graph's global step variable (scalar ``int64``), created on the CPU if there is none.

    It is the very variable of `tf.compat.v1.train.get_global_step`, so learning-rate schedules and TensorFlow's
    own session hooks read the same number.
    """
    variable = tf.compat.v1.train.get_global_step()
    if variable is not None:
        return variable
    # A tower, a device function or a reusing scope around the caller must not change where or under which name
    # the counter lives.
    with tf.name_scope(""), tf.device("/cpu:0"), tf.control_dependencies(None):
        return tf.compat.v1.train.get_or_create_global_step()


class StepCounter:
    """The ops that count one step, run as targets along with it.

    A learning-rate schedule reads the global step in the same run that increments it. So that it reads the same
    value in every run, the increment that goes with a train op starts only when that is done. Other fetches get an
    increment without that order.

    Args:
        train_ops: what the runs of a step run, each in any structure; empty if steps run something else.
        variable: the global step, of the default graph.
        reads: ops that read it for whatever a run may fetch; no increment starts before them.
    """

    def __init__(self, train_ops: Sequence[Any], variable: Any, reads: Sequence[Any] = ()) -> None:
        increments = _increments(variable)
        with tf.control_dependencies(list(reads)):
            self._after = [(train_op, _increment_after(train_op, variable, increments)) for train_op in train_ops]
            self._alone = _increment(variable, "tpk_global_step_increment")

    def op_for(self, fetches: Any) -> Any | None:
        """Return the op that counts a run which fetches `fetches`, or None if the run counts itself."""
        for train_op, increment in self._after:
            if fetches is train_op:
                return increment
        return self._alone


def _increment_after(train_op: Any, variable: Any, increments: set[Any]) -> Any | None:
    """Return the op that counts after `train_op`, or None if that counts by itself."""
    ops = tf.nest.flatten(train_op)
    if _depend_on(ops, increments):
        logger.info("the train op increments %s itself; tpk leaves it to that", variable.name)
        return None
    with tf.control_dependencies(ops):
        return _increment(variable, "tpk_global_step_after_train_op")


def _increment(variable: Any, name: str) -> Any:
    with tf.name_scope(""), tf.device("/cpu:0"):
        update = variable.assign_add(1, name=name, read_value=False)
    return update if isinstance(update, tf.Operation) else update.op


def _increments(variable: Any) -> set[Any]:
    handle = variable.handle if hasattr(variable, "handle") else variable._variable
    return {op for op in handle.consumers() if op.type in _ASSIGN_OPS and op is not variable.initializer}


def _depend_on(ops: list[Any], wanted: set[Any]) -> bool:
    """Whether running `ops` (operations, tensors or variables) runs one of `wanted`."""
    pending, seen = [getattr(op, "op", op) for op in ops] if wanted else [], set()
    while pending:
        current = pending.pop()
        if current in wanted:
            return True
        if current in seen:
            continue
        seen.add(current)
        pending.extend(tensor.op for tensor in current.inputs)
        pending.extend(current.control_inputs)
    return False
