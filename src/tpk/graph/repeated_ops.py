"""Loops in the graph: existing ops, run many times within one session run.

A loop contains copies. Ops whose results can change from one iteration to the next are copied into a `tf.while_loop`.
Ops whose results stay the same during a run, such as constants, placeholders, and handles of variables, queues and
iterators, are shared with the original. So the loop uses the same variables and data, and the original ops do not
change: they can still be run and fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.graph.fetches import ops_from
from tpk.tf_internals import build_loop, create_op_like, is_reference, replace_input, set_device

_CONTROL_FLOW_OPS = ("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "Ref")
_BACK_EDGE_OPS = frozenset({"NextIteration", "RefNextIteration"})
# The handles of these ops belong to one step, not to an object that outlives it.
_HANDLES_OF_A_STEP = ("TensorArray", "Stack", "TemporaryVariable")
_SCOPE = "steps"
_COPY = re.compile(rf"\b{_SCOPE}(_\d+)?/step/")


def repeat(ops: Sequence[Any], times: Any, feeds: Sequence[Any] = (), count: Any = None) -> Any:
    """Add a loop to the default graph that runs `ops` repeatedly.

    An iteration begins when all ops of the previous one are done. In each iteration the order of the ops is the same as
    in a separate run. Stateful random ops, such as `tf.random.normal`, draw another sequence in the loop than the
    original ops.

    Args:
        ops: operations of the default graph.
        times: the number of iterations; an ``int32`` scalar.
        feeds: tensors that are fed when the loop is run; they have the same value in all iterations.
        count: an operation that runs when all others of the iteration are done, so that it counts the complete
            iterations even if one fails.

    Returns:
        The operation that runs the loop.

    Example:
        ```python
        times = tf.compat.v1.placeholder(tf.int32, [])
        loop = repeat([train_op], times)
        sess.run(loop, {times: 32})
        ```
    """
    counts = [] if count is None else [count]
    ordered = ops_in_order([*ops, *counts], feeds)
    fixed = fixed_ops(ordered, feeds)
    repeated = [op for op in ordered if op not in fixed and op is not count]

    def step(iteration: Any) -> list[Any]:
        given = {tensor.name: tensor for tensor in feeds}
        copies = copy_ops(repeated, given)
        done = [copies[op] for op in ops if op in copies]
        taken = [tensor for op in counts for tensor in op.inputs if tensor.op in copies]
        made = {tensor.name: copies[tensor.op].outputs[tensor.value_index] for tensor in taken}
        with tf.control_dependencies(done):
            return [*copy_ops(counts, made).values()] or done

    return loop(step, times)


def loop(step: Callable[[Any], Sequence[Any]], times: Any) -> Any:
    """Add a loop to the default graph; see `repeat`.

    Args:
        step: takes the number of the iteration, ``int32`` from 0, builds the iteration, and returns its ops.
        times: the number of iterations; an ``int32`` scalar.

    Returns:
        The operation that runs the loop.
    """

    def body(iteration: Any) -> Any:
        with tf.name_scope("step"):
            done = step(iteration)
        with tf.control_dependencies(done):
            return iteration + 1

    with tf.device("/cpu:0"), tf.name_scope(_SCOPE):
        # The kind of loop in TensorFlow that also supports reference variables.
        end = build_loop(lambda iteration: iteration < times, body, tf.constant(0))
    return end.op


def as_of_originals(error: tf.errors.OpError) -> tf.errors.OpError:
    """Return an error of the runtime with the names of the original ops, not of their copies in a loop."""
    message = _COPY.sub("", error.message)
    return error if message == error.message else type(error)(error.node_def, error.op, message)


def ops_in_order(ops: Iterable[Any], feeds: Iterable[Any] = ()) -> list[Any]:
    """Return the ops that a run of `ops` runs, each after its inputs, except for back edges of loops.

    Args:
        ops: operations.
        feeds: tensors that are fed, so the ops that compute them do not run.
    """
    fed = {tensor.name for tensor in feeds}
    found: dict[Any, None] = {}
    ways_back: list[Any] = []

    def sources(op: Any) -> list[Any]:
        needed = [*(tensor.op for tensor in op.inputs if tensor.name not in fed), *op.control_inputs]
        ways_back.extend(each for each in needed if each.type in _BACK_EDGE_OPS)
        return [each for each in needed if each.type not in _BACK_EDGE_OPS]

    waiting = list(ops)
    while waiting:
        found |= dict.fromkeys(ops_from(waiting, sources))
        waiting = [op for op in ways_back if op not in found]
    return list(found)


def fixed_ops(ordered: Sequence[Any], feeds: Iterable[Any] = ()) -> set[Any]:
    """Return the ops whose outputs are constant within one session run.

    Args:
        ordered: ops, as `ops_in_order` returns them.
        feeds: tensors that are fed.
    """
    fed = {tensor.name for tensor in feeds}
    fixed: set[Any] = set()
    for op in ordered:
        is_pure = not (op.op_def.is_stateful or any(map(is_reference, op.inputs)))
        if op.type.startswith(_CONTROL_FLOW_OPS):
            continue
        if (is_pure or makes_handle(op)) and op.outputs:
            sources = [tensor.op for tensor in op.inputs if tensor.name not in fed]
            if all(source in fixed for source in (*sources, *op.control_inputs)):
                fixed.add(op)
    return fixed


def makes_handle(op: Any) -> bool:
    """Whether an op only returns the handle of a lasting object: a variable, a queue, an iterator, a table."""
    is_handle = op.outputs and all(each.dtype == tf.resource or is_reference(each) for each in op.outputs)
    takes_ref = any(map(is_reference, op.inputs))
    return is_handle and not takes_ref and not op.type.startswith(_HANDLES_OF_A_STEP)


def copy_ops(ordered: Sequence[Any], given: Mapping[str, Any], *, is_placed: bool = True) -> dict[Any, Any]:
    """Copy ops into the current scope of the default graph, under their original names.

    Args:
        ordered: the ops; see `ops_in_order`. Inputs from other ops are shared.
        given: tensors that replace the tensors of these names.
        is_placed: whether the copies keep the devices of the originals. If not, they also lose the attributes that
            control how the originals are compiled.

    Returns:
        The copy of each op.
    """
    graph = tf.compat.v1.get_default_graph()
    copies: dict[Any, Any] = {}
    names: dict[bytes, bytes] = {}
    back_edges: list[tuple[Any, int, Any]] = []
    inside = set(ordered)
    with graph.colocate_with(None, ignore_existing=True):
        for op in ordered:
            inputs = []
            for index, tensor in enumerate(op.inputs):
                source = copies.get(tensor.op)
                if tensor.name in given:
                    inputs.append(given[tensor.name])
                elif source is not None:
                    inputs.append(source.outputs[tensor.value_index])
                elif tensor.op not in inside:
                    inputs.append(_of_iteration(graph, op, tensor) if is_placed else tensor)
                else:  # A back edge of a loop: its source is not copied yet, so the input is replaced below.
                    inputs.append(inputs[0])
                    back_edges.append((op, index, tensor))
            controls = [copies[control] for control in op.control_inputs if control in copies]
            # Inputs from outside enter the loop on the device of the op.
            with graph.control_dependencies(controls), graph.device(op.device):
                copies[op] = create_op_like(op, graph, inputs, _attributes(op, names, is_placed))
            for output, original in zip(copies[op].outputs, op.outputs, strict=True):
                output.set_shape(original.shape)
            names[op.name.encode()] = copies[op].name.encode()
            if is_placed:
                set_device(copies[op], op.device)
        for op, index, tensor in back_edges:
            replace_input(copies[op], index, copies[tensor.op].outputs[tensor.value_index])
    return copies


def _of_iteration(graph: Any, op: Any, shared: Any) -> Any:
    """Return the tensor that `op` uses instead of a tensor from outside the loop.

    A tensor from outside is available even after the last iteration, when nothing else is. An inner loop must not begin
    then: on several devices, one would wait for the others forever.
    """
    is_loop = op.type == "Enter" or any(value.HasField("func") for value in op.node_def.attr.values())
    if not is_loop or shared.dtype == tf.resource or is_reference(shared):
        return shared
    with graph.device(op.device):
        return tf.identity(shared)


def _attributes(op: Any, names: Mapping[bytes, bytes], is_placed: bool) -> dict[str, Any]:
    """Return the attributes of the copy of an op, given the names of the copies so far."""
    attributes = dict(op.node_def.attr)
    if not is_placed:
        return {name: value for name, value in attributes.items() if not name.startswith(("_class", "_Xla", "_lower"))}
    if "_class" in attributes:
        places = [b"loc:@" + names.get(place[5:], place[5:]) for place in attributes["_class"].list.s]
        attributes["_class"] = tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(s=places))
    return attributes
