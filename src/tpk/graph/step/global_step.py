"""The graph's global step: one ``int64`` variable that counts the steps of the training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpk.tf_internals import control_outputs, function_graph, handle_of

logger = logging.getLogger(__name__)

FURTHER_RUNS_NAME = "tpk_further_runs"
"""The name of the variable that counts the runs of steps after the first of each, where random ops need it."""

_ASSIGN_OPS = frozenset({"AssignAddVariableOp", "AssignVariableOp", "AssignAdd", "Assign"})
_PASS_ON_OPS = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})


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


def get_further_runs_var() -> Any:
    """Return the default graph's count of runs after the first of their steps (scalar ``int64``), created if need be.

    With the global step it tells each run from all others, where steps run the session more than once.
    """
    found = _find_further_runs()
    if found is not None:
        return found
    initial = tf.constant(0, tf.int64)
    return tf.compat.v1.get_variable(FURTHER_RUNS_NAME, initializer=initial, trainable=False)


def _find_further_runs() -> Any | None:
    variables = tf.compat.v1.global_variables()
    return next((each for each in variables if each.op.name == FURTHER_RUNS_NAME), None)


class StepCounter:
    """The ops that count one step, run as targets along with the first of its runs.

    A learning-rate schedule reads the global step in the same run that increments it. So that it reads the same
    value in every run, the increment that goes with a train op starts only when that is done. Other fetches get an
    increment without that order, and what increments the global step by itself gets none.

    Args:
        train_ops: what the runs of a step run, each in any structure; empty if steps run something else.
        variable: the global step, of the default graph.
        reads: ops that read it for whatever a run may fetch; no increment starts before them.
    """

    def __init__(self, train_ops: Sequence[Any], variable: Any, reads: Sequence[Any] = ()) -> None:
        graph = tf.compat.v1.get_default_graph()
        self._count = _what_runs(_increments(handle_of(variable), variable.initializer))
        leaves = [[_op_of(graph, leaf) for leaf in tf.nest.flatten(train_op)] for train_op in train_ops]
        if len(leaves) > 1:
            leaves.insert(0, [op for ops in leaves for op in ops])  # All of them in one run.
        self._after: list[tuple[list[set[Any]], Any]] = []
        with tf.control_dependencies(list(reads)):
            for ops in leaves:
                if self._count.isdisjoint(ops):
                    # Each op of a train op, along with all that cannot run without it.
                    runners = [_what_runs({op}) for op in ops]
                    with tf.control_dependencies(ops):
                        self._after.append((runners, _increment(variable, "tpk_global_step_after_train_op")))
            self._alone = _increment(variable, "tpk_global_step_increment")
            further = _find_further_runs()
            self._further = None if further is None else _increment(further, "tpk_further_runs_increment")
        if any(not self._count.isdisjoint(ops) for ops in leaves):
            logger.info("the train op increments %s itself; tpk leaves it to that", variable.name)

    def op_for(self, ops: Sequence[Any], counts_step: bool) -> Any | None:
        """Return the op that counts a run of `ops`, or None if there is nothing to count, or the run counts itself.

        Args:
            ops: what is run.
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


def _op_of(graph: Any, leaf: Any) -> Any:
    element = graph.as_graph_element(leaf)
    return element if isinstance(element, tf.Operation) else element.op


def _increment(variable: Any, name: str) -> Any:
    with tf.name_scope(""), tf.device("/cpu:0"):
        update = variable.assign_add(1, name=name, read_value=False)
    return update if isinstance(update, tf.Operation) else update.op


def _increments(handle: Any, initializer: Any) -> set[Any]:
    """Return the ops that give the variable behind `handle` a value, in functions and branches, too."""
    found = set()
    for op in handle.consumers():
        if op is initializer:
            continue
        inner = [_input_of(function, op, handle) for function in _functions_of(op)]
        if op.type in _ASSIGN_OPS or any(_increments(each, initializer) for each in inner if each is not None):
            found.add(op)
        elif op.type in _PASS_ON_OPS:
            found |= {each for output in op.outputs for each in _increments(output, initializer)}
    return found


def _functions_of(op: Any) -> Iterator[Any]:
    """The graphs of the functions that `op` calls: branches, bodies, and what a `tf.function` has."""
    for attribute in op.node_def.attr.values():
        for function in (attribute.func, *attribute.list.func):
            if function.name:
                graph = function_graph(op.graph, function.name)
                if graph is not None:
                    yield graph


def _input_of(function: Any, op: Any, handle: Any) -> Any | None:
    """What `handle` is called inside of a function that `op` calls; None if it is not given to that."""
    # Before what it hands on, an op may take inputs of its own: the predicate of an If, say.
    arguments = list(op.inputs)[-len(function.inputs) :] if function.inputs else []
    return next((inner for outer, inner in zip(arguments, function.inputs, strict=False) if outer is handle), None)


def _what_runs(ops: set[Any]) -> set[Any]:
    """Return `ops` and all ops that cannot run without one of them, also by way of a queue."""
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
