"""Loops over steps that XLA compiles as one program.

A `tpk.graph.step.loop` runs an op after the other, and costs some microseconds for each. Here, k steps of a small model
are one call of compiled code. XLA cannot take from a queue or a data set, and what it draws at random are other numbers
than TensorFlow's (on CPUs, slowly). So what a step needs of such things is gathered for all k steps first, in a plain
loop; it must have the same shape in all of them. What XLA compiles rounds as XLA does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.step.global_step import get_global_step_var
from tpk.graph.step.loop import copy_ops, fixed_ops, loop, makes_handle, ops_in_order
from tpk.tf_internals import devices_with_kernel

# XLA leaves out what these tell, or has others of the name.
_NOT_AS_THEY_ARE = ("Assert", "CheckNumerics", "Print")
_RANDOM_OPS = tuple(
    f"{prefix}{kind}"
    for kind in ("Random", "Multinomial", "TruncatedNormal", "Parameterized", "Shuffle")
    for prefix in ("", "Stateless")
)
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})


@attrs.frozen
class CompiledLoop:
    """A loop in the graph, and what it needs.

    Attributes:
        op: runs it.
        gathered: an ``int32`` scalar that is fed: for how many steps to gather data before. It differs from the number
            of steps only where data is there of a run that failed.
        waiting: how many steps there is data for; None if nothing is gathered.
    """

    op: Any
    gathered: Any
    waiting: Any


def repeat_compiled(ops: Sequence[Any], times: Any, feeds: Iterable[Any] = ()) -> CompiledLoop:
    """Add a loop to the default graph that runs `ops` again and again, compiled by XLA; see `repeat` of `step_loop`.

    Args:
        ops: operations of the default graph.
        times: how often they are run; an ``int32`` scalar.
        feeds: tensors that are fed along with a run of the loop: they have their values in all iterations.

    Raises:
        ConfigError: if XLA cannot compile an op that needs what the steps change, which it names; or the global step is
            changed other than by adding 1 to it, or is a reference variable.
    """
    parts = _Parts(ops, list(feeds))
    start = parts.global_step.read_value()
    gathered = tf.compat.v1.placeholder(tf.int32, [], name="steps_to_gather")
    waiting, stacked, before = _gather(parts, start, gathered, times) if parts.outside else (None, [], [])
    with tf.control_dependencies(before):
        compute = tf.function(lambda *values: _compute(parts, *values), jit_compile=True, autograph=False)
        end = compute(times, start, *stacked)
    with tf.control_dependencies([end]):
        count = parts.global_step.assign_add(tf.cast(times, tf.int64), read_value=False)
    return CompiledLoop(tf.group(count), gathered, waiting)


class _Parts:
    """What is done in a step: what XLA compiles, and what is gathered before.

    Attributes:
        ops: what the steps are.
        given: the tensors that are fed, by their names.
        global_step: the variable that counts the steps. It is a number in the loop, and no variable.
        inside: the ops that are compiled, in order, with all that they need and that is not gathered.
        outside: the ops that are not, in order.
        boundary: the tensors that those outside make for those inside.
    """

    def __init__(self, ops: Sequence[Any], feeds: Sequence[Any]) -> None:
        self.ops = ops
        self.given = {tensor.name: tensor for tensor in feeds}
        self.global_step = get_global_step_var()
        ordered = ops_in_order(ops, feeds)
        fixed = fixed_ops(ordered, feeds)
        moving = [op for op in ordered if op not in fixed]
        if not hasattr(self.global_step, "handle"):
            raise ConfigError(
                "xla=True with steps_per_run: the global step is a reference variable, which XLA does not know. Call "
                "tf.compat.v1.enable_resource_variables() first, or leave one of the two options out."
            )
        self._counts = set(self.global_step.handle.consumers()).intersection(moving)
        self.reads_of_step = [op.outputs[0] for op in self._counts if op.type == "ReadVariableOp"]
        self._check_counts()
        moving = [op for op in moving if op not in self._counts]
        uncompiled = _uncompilable(moving)
        drawn = _drawn_before(moving, feeds)
        needed = set(ops_in_order([*uncompiled, *drawn], feeds))
        self.outside = [op for op in moving if op in needed]
        inside = [op for op in moving if op not in needed]
        _check_order(uncompiled, self.outside, inside, feeds)
        made_outside = set(self.outside)
        self.boundary = list(
            {
                tensor.name: tensor
                for op in inside
                for tensor in op.inputs
                if tensor.op in made_outside and tensor.name not in self.given
            }.values()
        )
        # XLA wants to see constants, and shapes that it can compute.
        compiled = set(inside) | {
            op for op in fixed if not makes_handle(op) and not op.type.startswith(("Placeholder", *_RANDOM_OPS))
        }
        self.inside = [op for op in ordered if op in compiled]

    def done(self, copies: dict[Any, Any]) -> list[Any]:
        """Return the copies of those ops that the steps are."""
        return [copies[op] for op in self.ops if op in copies]

    def at(self, step: Any) -> dict[str, Any]:
        """Return what is given in the step with this number."""
        return {**self.given, **{read.name: tf.cast(step, read.dtype) for read in self.reads_of_step}}

    def _check_counts(self) -> None:
        for op in self._counts:
            if op.type == "ReadVariableOp":
                continue
            amount = tf.get_static_value(op.inputs[1]) if op.type == "AssignAddVariableOp" else None
            if amount != 1:
                raise ConfigError(
                    f"xla=True with steps_per_run: {op.name!r} ({op.type}) changes the global step, other than by "
                    "adding 1 to it, which a compiled loop does not. Leave that to the trainer, or one of the two out."
                )


def _gather(parts: _Parts, start: Any, gathered: Any, times: Any) -> tuple[Any, list[Any], list[Any]]:
    """Run what is outside for some steps, and stack what it makes for `times` steps.

    It goes by way of a queue, so that nothing is lost if the data ends meanwhile.

    Returns:
        For how many steps there is something in the queue; the stacked tensors; and the ops that have to be done before
        anything else.
    """
    with tf.device("/cpu:0"):
        dtypes = [tensor.dtype for tensor in parts.boundary] or [tf.bool]
        queue = tf.queue.FIFOQueue(2**30, dtypes, name="gathered")

        def step(iteration: Any) -> list[Any]:
            copies = copy_ops(parts.outside, parts.at(start + tf.cast(iteration, start.dtype)))
            made = [copies[tensor.op].outputs[tensor.value_index] for tensor in parts.boundary]
            with tf.control_dependencies(parts.done(copies)), tf.device("/cpu:0"):
                return [queue.enqueue(made or [True])]

        gather = loop(step, gathered)
        arrays = [tf.TensorArray(tensor.dtype, times, element_shape=tensor.shape) for tensor in parts.boundary]
        with tf.control_dependencies([gather]):
            _, *filled = tf.compat.v1.while_loop(
                lambda iteration, *_: iteration < times,
                lambda iteration, *arrays: (iteration + 1, *_write(arrays, iteration, queue.dequeue())),
                [tf.constant(0), *arrays],
                parallel_iterations=1,
                back_prop=False,
            )
    return queue.size(), [array.stack() for array in filled], [gather]


def _write(arrays: Sequence[Any], index: Any, values: Any) -> list[Any]:
    values = values if isinstance(values, list) else [values]
    return [array.write(index, value) for array, value in zip(arrays, values, strict=False)]


def _compute(parts: _Parts, times: Any, start: Any, *stacked: Any) -> Any:
    """The loop that is compiled."""

    def body(iteration: Any) -> Any:
        rows = {tensor.name: stack[iteration] for tensor, stack in zip(parts.boundary, stacked, strict=True)}
        given = {**parts.at(start + tf.cast(iteration, start.dtype)), **rows}
        copies = copy_ops(parts.inside, given, is_placed=False)
        with tf.control_dependencies(parts.done(copies)):
            return iteration + 1

    (end,) = tf.while_loop(lambda iteration: iteration < times, body, [tf.constant(0)])
    return end


def _uncompilable(ops: Sequence[Any]) -> list[Any]:
    """Return those of the ops that XLA does not compile, or must not."""
    _load_kernels()
    known: dict[str, bool] = {}
    found = []
    for op in ops:
        if op.type not in known:
            known[op.type] = "XLA_CPU_JIT" in devices_with_kernel(op.type) and not op.type.startswith(_NOT_AS_THEY_ARE)
        marked = op.node_def.attr.get("_XlaCompile")
        if not known[op.type] or (marked is not None and not marked.b):
            found.append(op)
    return found


def _drawn_before(ops: Sequence[Any], feeds: Sequence[Any]) -> list[Any]:
    """Return the random ops that depend on nothing that the steps change."""
    changed = {_handle(op) for op in ops if op.type not in _READS} - {None}
    return [
        op
        for op in ops
        if op.type.startswith(_RANDOM_OPS) and changed.isdisjoint(map(_handle, ops_in_order([op], feeds)))
    ]


@functools.cache
def _load_kernels() -> None:
    """Let TensorFlow know of what XLA compiles: it registers that when something is compiled for the first time."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as sess:
        sess.run(tf.function(lambda: tf.constant(1.0) + 1.0, jit_compile=True, autograph=False)())


def _check_order(
    uncompiled: Sequence[Any], outside: Sequence[Any], inside: Sequence[Any], feeds: Sequence[Any]
) -> None:
    """See to it that what is gathered for many steps does not depend on what the steps change."""
    changed = {_handle(op) for op in inside if op.type not in _READS} - {None}
    for op in outside:
        handle = _handle(op)
        if handle in changed:
            culprit = next(each for each in uncompiled if op in set(ops_in_order([each], feeds)))
            raise ConfigError(
                f"xla=True with steps_per_run: XLA does not compile {culprit.name!r} ({culprit.type}), which needs the "
                f"variable {handle.name!r} as it is in each step. Leave it out, or one of the two options."
            )


def _handle(op: Any) -> Any:
    """Return the op that says which variable an op uses, if it does."""
    return next((tensor.op for tensor in op.inputs if tensor.dtype == tf.resource), None)
