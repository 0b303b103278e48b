"""The global step: the variable, and the ops that count a step in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.tf_internals import control_outputs, functions_called_by, handle_of

logger = logging.getLogger(__name__)

FURTHER_RUNS_NAME = "tpk_further_runs"
"""The name of the variable that counts all runs of steps after the first run of each; random ops create it."""

_ASSIGN_OPS = frozenset({"AssignAddVariableOp", "AssignVariableOp", "AssignAdd", "Assign"})
_PASS_ON_OPS = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})


def get_global_step_var() -> Any:
    """Return the default graph's global step variable, an integer scalar, created on the CPU as ``int64`` if missing.

    It is the variable of `tf.compat.v1.train.get_global_step`, which learning-rate schedules and TensorFlow's session
    hooks read. A variable that a script has made with the name ``global_step`` becomes that variable.

    Raises:
        ConfigError: if the variable of that name is not an integer scalar.
    """
    steps = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_STEP)
    steps += [each for each in tf.compat.v1.global_variables() if each.op.name == "global_step" and not steps]
    try:
        variable = tf.compat.v1.train.get_global_step()
    except TypeError as error:
        raise ConfigError(f"{error}. Write tf.compat.v1.train.get_or_create_global_step() instead.") from None
    if variable is not None:
        return variable
    # A tower, a device function or a reusing scope around the caller must not change where or under which name
    # the counter lives.
    with tf.name_scope(""), tf.device("/cpu:0"), tf.control_dependencies(None):
        return tf.compat.v1.train.get_or_create_global_step()


def get_further_runs_var() -> Any:
    """Return the default graph's count of runs after the first run of a step (scalar ``int64``), created if missing.

    Together with the global step, it identifies each run if steps run the session several times.
    """
    found = _find_further_runs()
    if found is not None:
        return found
    return tf.compat.v1.get_variable(FURTHER_RUNS_NAME, initializer=tf.constant(0, tf.int64), trainable=False)


def _find_further_runs() -> Any | None:
    variables = tf.compat.v1.global_variables()
    return next((each for each in variables if each.op.name == FURTHER_RUNS_NAME), None)


class StepCounter:
    """The ops that count one step; they are targets of the first run of the step.

    A learning-rate schedule reads the global step in the run that increments it. So that it always reads the old value,
    the increment for a train op starts when the train op is done. Other fetches use an increment without that order.
    Train ops that increment the global step themselves are not counted again.

    Args:
        train_ops: the fetches of each run of a step, in any structure; empty if steps run something else.
        variable: the global step of the default graph.
        reads: ops that read the global step for other fetches; increments wait for them.
    """

    def __init__(self, train_ops: Sequence[Any], variable: Any, reads: Sequence[Any] = ()) -> None:
        graph = tf.compat.v1.get_default_graph()
        self.variable = variable
        self._count = _what_runs(_increments(handle_of(variable), variable.initializer))
        elements = [list(map(graph.as_graph_element, tf.nest.flatten(train_op))) for train_op in train_ops]
        leaves = [[getattr(each, "op", each) for each in parts] for parts in elements]
        if len(leaves) > 1:
            leaves.insert(0, [op for ops in leaves for op in ops])  # All of them in one run.
        self._after: list[tuple[list[set[Any]], Any]] = []
        with tf.control_dependencies(list(reads)):
            for ops in leaves:
                if self._count.isdisjoint(ops):
                    # Each op of a train op, and all ops that depend on it.
                    runners = [_what_runs({op}) for op in ops]
                    with tf.control_dependencies(ops):
                        self._after.append((runners, _increment(variable, "tpk_global_step_after_train_op")))
            self._alone = _increment(variable, "tpk_global_step_increment")
            further = _find_further_runs()
            self._further = None if further is None else _increment(further, "tpk_further_runs_increment")
        if any(not self._count.isdisjoint(ops) for ops in leaves):
            logger.info("the train op increments %s itself, so tpk does not", variable.name)

    def completed(self, sess: Any) -> int:
        """Return the number of completed steps in a session of the graph."""
        return int(sess.run(self.variable))

    def op_for(self, ops: Sequence[Any], counts_step: bool) -> Any | None:
        """Return the op that counts a run of `ops`, or None if the run is not counted or counts itself.

        Args:
            ops: the ops of the run.
            counts_step: whether it is the first run of a step.
        """
        if not self._count.isdisjoint(ops):
            return None
        if not counts_step:
            return self._further
        for runners, increment in self._after:
            if runners and not any(each.isdisjoint(ops) for each in runners):
                return increment
        return self._alone


def _increment(variable: Any, name: str) -> Any:
    with tf.name_scope(""), tf.device("/cpu:0"):
        update = variable.assign_add(1, name=name, read_value=False)
    return getattr(update, "op", update)


def _increments(handle: Any, initializer: Any) -> set[Any]:
    """Return the ops that assign to the variable of `handle`, including those in functions and branches."""
    found = set()
    for op in handle.consumers():
        if op is initializer:
            continue
        inner = [_input_of(function, op, handle) for function in functions_called_by(op)]
        if op.type in _ASSIGN_OPS or any(_increments(each, initializer) for each in inner if each is not None):
            found.add(op)
        elif op.type in _PASS_ON_OPS:
            found |= {each for output in op.outputs for each in _increments(output, initializer)}
    return found


def _input_of(function: Any, op: Any, handle: Any) -> Any | None:
    """Return the tensor that receives `handle` inside a function that `op` calls, or None."""
    # An op may have other inputs before the arguments of the function, e.g. the predicate of an If.
    arguments = list(op.inputs)[-len(function.inputs) :] if function.inputs else []
    return next((inner for outer, inner in zip(arguments, function.inputs, strict=False) if outer is handle), None)


def _what_runs(ops: set[Any]) -> set[Any]:
    """Return `ops` and all ops that depend on one of them, including through a queue."""
    pending, found = list(ops), set()
    while pending:
        current = pending.pop()
        if current in found:
            continue
        found.add(current)
        pending.extend(op for output in current.outputs for op in output.consumers())
        pending.extend(control_outputs(current))
        if current.type.startswith("QueueEnqueue"):
            pending.extend(op for op in current.inputs[0].consumers() if op.type.startswith("QueueDequeue"))
    return found
