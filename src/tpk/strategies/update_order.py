"""The order of reads and updates in a step: towers see the variables as they were before the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from tpk.graph.fetches import ops_run_for
from tpk.graph.gradients import Gradients, values_of
from tpk.graph.reports.summary_ops import MOVING_SUMMARY_OPS_KEY
from tpk.graph.variables import variable_name
from tpk.tf_internals import control_flow_context, output_context


def after_reads(tower_ops: Iterable[Any], costs: Sequence[Any], gradients: Gradients) -> AbstractContextManager[Any]:
    """Return a context in which new ops wait until the towers have read the variables that will be updated.

    Waiting for the gradients is not enough: the gradient of one variable may depend on another variable, whose own
    gradient is available earlier; and update ops and fetches may read variables independently of the costs. A read does
    not copy the value, so this order costs almost nothing.

    It includes all reads that costs and gradients depend on, and otherwise plain reads, as by all ops that take
    tensors. Other reads must not run just for the sake of the order: a `tf.cond` or `tf.gather` that only an update op
    uses, or a read that waits for something else. Reference variables (``use_resource=False``) are not included,
    because their values cannot be separated from them.

    Args:
        tower_ops: all ops of the towers.
        costs: the costs of the towers.
        gradients: the gradients of the costs that will be applied, with their variables.
    """
    inside = set(tower_ops)
    # Gradients may also read variables, e.g. with `tf.recompute_grad`.
    computed = set(ops_run_for([*costs, *(values_of(gradient) for gradient, _ in gradients)]))
    reads: list[Any] = []
    calls: list[Any] = []
    doubtful: list[Any] = []
    for gradient, variable in gradients:
        for op in variable.handle.consumers() if hasattr(variable, "handle") else []:
            is_used = any(tensor.consumers() for tensor in op.outputs)
            if not (op in inside or op in computed) or not is_used:
                continue
            if control_flow_context(op) is not None:
                reads += [end for end in _ends_of_control_flow(op) if end in computed]
                continue
            is_read = op.type == "ReadVariableOp"
            # A variable with sparse updates copies itself when it is read.
            if is_read and not op.control_inputs and not isinstance(gradient, tf.IndexedSlices):
                reads.append(op)
            elif op in computed:
                (calls if op.type in _CALLS else reads).append(op)
            elif is_read:
                doubtful.append(op)
    if doubtful:
        of_updates = set(ops_run_for(_update_ops()))
        reads += [op for op in doubtful if op in of_updates]
    for call in dict.fromkeys(calls):
        reads += _results(call, computed)
    return tf.control_dependencies([tf.group(*reads, name="reads")]) if reads else nullcontext()


_KINDS_OF_CALLS = ("If", "Case", "While", "PartitionedCall")
_CALLS = frozenset(f"{state}{kind}" for kind in _KINDS_OF_CALLS for state in ("", "Stateless", "Stateful"))


def _results(call: Any, computed: set[Any]) -> list[Any]:
    """Return ops that run when `call` has computed the results that are used.

    Waiting for `call` itself is not enough: TensorFlow replaces it by the ops of its branches or function, and a
    control dependency on it then only waits for the choice of the branch, not for the reads inside.
    """
    taken = [tensor for tensor in call.outputs if any(consumer in computed for consumer in tensor.consumers())]
    results = []
    for tensor in taken:
        with tf.device(tensor.device):
            results.append(tf.identity(tensor).op)
    return results or [call]


def _ends_of_control_flow(entry: Any) -> list[Any]:
    """Return the ops that end the branches and loops of TensorFlow 1's control flow that are entered through `entry`.

    An op inside cannot be waited for: it does not run if another branch is taken.
    """
    ends, seen, open_ops = [], {entry}, [entry]
    while open_ops:
        for consumer in {consumer for tensor in open_ops.pop().outputs for consumer in tensor.consumers()} - seen:
            seen.add(consumer)
            if output_context(consumer) is not None:
                open_ops.append(consumer)
            elif consumer.type in ("Merge", "Exit"):
                ends.append(consumer)
    return ends


def apply_in_groups(
    groups: Sequence[Sequence[int]], gradients: Sequence[Gradients], apply: Callable[[int, str], Any]
) -> list[Any]:
    """Return an op for each group, which applies the gradients of its objectives when all of them are computed.

    Objectives that train the same variable update it one after the other, in the order of the group.

    Args:
        groups: the positions of the objectives of each op.
        gradients: the gradients of each objective, with the variables that it updates.
        apply: takes the position of an objective and the name of the op, and returns the op that applies its gradients.
    """
    trained = [{variable_name(variable) for _, variable in pairs} for pairs in gradients]
    ops = []
    for number, group in enumerate(groups):
        name = "train_op" if number == 0 else f"train_op_{number}"
        if len(group) == 1:
            ops.append(apply(group[0], name))
            continue
        computed = [values_of(gradient) for position in group for gradient, _ in gradients[position]]
        all_computed = tf.group(*computed, name=f"{name}_gradients")
        applied: dict[int, Any] = {}
        for position in group:
            before = [op for other, op in applied.items() if trained[other] & trained[position]]
            with tf.control_dependencies([all_computed, *before]):
                applied[position] = apply(position, f"{name}_{position}")
        ops.append(tf.group(*applied.values(), name=name))
    return ops


def _update_ops() -> list[Any]:
    """Return the ops that run with each step by default."""
    keys = (tf.compat.v1.GraphKeys.UPDATE_OPS, MOVING_SUMMARY_OPS_KEY)
    return [op for key in keys for op in tf.compat.v1.get_collection(key)]
