"""The graph's global step: one ``int64`` variable that counts the runs of the hooked session."""

from __future__ import annotations

import logging
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
    value in every run, the increment that goes with `train_op` starts only when `train_op` is done. Other fetches
    get an increment without that order.

    Args:
        train_op: what a step runs, in any structure; or None if steps run something else.
        variable: the global step, of the default graph.
    """

    def __init__(self, train_op: Any | None, variable: Any) -> None:
        self._train_op = train_op
        self._after_train_op: Any | None = None
        ops = [] if train_op is None else tf.nest.flatten(train_op)
        if _depend_on(ops, _increments(variable)):
            logger.info("the train op increments %s itself; tpk leaves it to that", variable.name)
        elif ops:
            with tf.control_dependencies(ops):
                self._after_train_op = _increment(variable, "tpk_global_step_after_train_op")
        self._alone = _increment(variable, "tpk_global_step_increment")

    def op_for(self, fetches: Any) -> Any | None:
        """Return the op that counts a step which fetches `fetches`, or None if the step counts itself."""
        return self._after_train_op if fetches is self._train_op else self._alone


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
