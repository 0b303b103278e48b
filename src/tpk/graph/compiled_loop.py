"""A loop over steps in the graph, compiled by XLA."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.devices import physical_of_logical_gpus
from tpk.graph.fetches import ops_from
from tpk.graph.repeated_ops import copy_ops, fixed_ops, loop, makes_handle, ops_in_order
from tpk.graph.step_counter import get_global_step_var
from tpk.tf_internals import devices_with_kernel, functions_called_by

_Place = tuple[str, int]
"""Type and index of a device."""

# XLA drops the messages of these ops, or has different ops of the same name.
_NOT_AS_THEY_ARE = ("Assert", "CheckNumerics", "Print")
_RANDOM_OPS = tuple(
    f"{prefix}{kind}"
    for kind in ("Random", "Multinomial", "TruncatedNormal", "Parameterized", "Shuffle")
    for prefix in ("", "Stateless")
)
# XLA draws the same integers.
_SAME_DRAWS = ("StatelessRandomUniformFullIntV2", "StatelessRandomUniformIntV2")
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})


@attrs.frozen
class CompiledLoop:
    """A compiled loop in the graph.

    Attributes:
        op: runs the loop.
        gathered: an ``int32`` scalar to feed: the number of steps to gather data for first. It differs from the number
            of steps only if a failed run left data behind.
        waiting: the number of steps for which data is waiting; None if the loop gathers no data.
    """

    op: Any
    gathered: Any
    waiting: Any


def repeat_compiled(ops: Sequence[Any], times: Any, feeds: Iterable[Any] = ()) -> CompiledLoop:
    """Add a loop to the default graph that runs `ops` repeatedly, compiled by XLA; see `repeat`.

    Args:
        ops: operations of the default graph.
        times: the number of iterations; an ``int32`` scalar.
        feeds: tensors that are fed when the loop is run; they have the same value in all iterations.

    Raises:
        ConfigError: if an update depends on an op that XLA must not compile (the message names it), or if the global
            step is a reference variable or is used other than by reading it and adding 1 to it.
    """
    parts = _Parts(ops, list(feeds))
    gathered = tf.compat.v1.placeholder(tf.int32, [], name="steps_to_gather")
    if not parts.outside:
        return CompiledLoop(_run(parts, times, []), gathered, None)
    waiting, stacked, before = _gather(parts, gathered, times)
    with tf.control_dependencies(before):
        return CompiledLoop(_run(parts, times, stacked), gathered, waiting)


def _run(parts: _Parts, times: Any, stacked: Sequence[Any]) -> Any:
    """Return the op that runs `times` steps on the stacked data."""
    start = parts.global_step.read_value()
    compute = tf.function(lambda *values: _compute(parts, *values), jit_compile=True, autograph=False)
    with tf.device(parts.device):
        end, *kept = compute(times, start, *stacked)
    with tf.control_dependencies([end]):
        done = parts.global_step.assign_add(tf.cast(times, tf.int64), read_value=False)
    if not parts.after:
        return tf.group(done)
    tensors, rows = [*parts.boundary, *parts.kept], [*stacked, *kept]
    with tf.control_dependencies([done]):
        return loop(lambda i: parts.done(copy_ops(parts.after, parts.row(start, i, tensors, rows))), times)


class _Parts:
    """The ops of a step, split into those that run before, inside and after the compiled loop.

    Attributes:
        ops: the ops of a step.
        given: the tensors that are fed, by name.
        device: the device of the compiled loop; None if no variable has one.
        global_step: the variable that counts the steps. Inside the loop it is a number instead of a variable.
        inside: the compiled ops, in order, including their inputs that are not gathered.
        outside: the ops that compute the gathered data, in order.
        after: other ops that XLA does not compile, and that no step depends on, such as checks. They run when all steps
            are done.
        boundary: the outputs of `outside` that the others use.
        kept: the outputs of `inside` that `after` uses.
    """

    def __init__(self, ops: Sequence[Any], feeds: Sequence[Any]) -> None:
        self.ops = ops
        self.given = {tensor.name: tensor for tensor in feeds}
        self.global_step = get_global_step_var()
        ordered = ops_in_order(ops, feeds)
        self._check_supported(ordered)
        fixed = fixed_ops(ordered, feeds)
        moving = [op for op in ordered if op not in fixed]
        self._counts = set(self.global_step.handle.consumers()).intersection(moving)
        self.reads_of_step = [op.outputs[0] for op in self._counts if op.type == "ReadVariableOp"]
        self._check_counts()
        moving = [op for op in moving if op not in self._counts]
        _load_kernels()
        self.device, place = _most_common_device(moving)
        self.outside, self.inside, self.after = _split(moving, feeds, place)
        self.boundary = self._made_in(self.outside, [*self.inside, *self.after])
        self.kept = self._made_in(self.inside, self.after)
        # XLA needs to see constants, and ops that compute shapes.
        compiled = set(self.inside) | {
            op
            for op in fixed
            if not makes_handle(op)
            and not op.type.startswith(("Placeholder", *_RANDOM_OPS))
            and not _uses_variables_elsewhere(op, place)
        }
        self.inside = [op for op in ordered if op in compiled]

    def _check_supported(self, ordered: Sequence[Any]) -> None:
        for op in ordered:
            if op.type == "EmptyTensorList" and tf.get_static_value(op.inputs[1]) == -1:
                raise ConfigError(
                    f"xla=True with steps_per_run: {op.name!r} is part of the gradient of a tf.while_loop of unknown "
                    "length, which XLA does not compile. Give the loop maximum_iterations, or leave one of the two out."
                )
        if not hasattr(self.global_step, "handle"):
            raise ConfigError(
                "xla=True with steps_per_run: the global step is a reference variable, which XLA does not know. Call "
                "tf.compat.v1.enable_resource_variables() first, or leave one of the two options out."
            )

    def _made_in(self, makers: Sequence[Any], takers: Sequence[Any]) -> list[Any]:
        """Return the outputs of `makers` that `takers` use."""
        made = set(makers)
        taken = {tensor.name: tensor for op in takers for tensor in op.inputs if tensor.op in made}
        return [tensor for name, tensor in taken.items() if name not in self.given]

    def done(self, copies: dict[Any, Any]) -> list[Any]:
        """Return the copies of the ops of a step."""
        return [copies[op] for op in self.ops if op in copies]

    def row(self, start: Any, iteration: Any, tensors: Sequence[Any], stacked: Sequence[Any]) -> dict[str, Any]:
        """Return the given tensors of an iteration, with its row of each stacked tensor, by name."""
        step = start + tf.cast(iteration, start.dtype)
        reads = {read.name: tf.cast(step, read.dtype) for read in self.reads_of_step}
        rows = {tensor.name: stack[iteration] for tensor, stack in zip(tensors, stacked, strict=True)}
        return {**self.given, **reads, **rows}

    def _check_counts(self) -> None:
        for op in self._counts:
            if op.type == "ReadVariableOp":
                continue
            amount = tf.get_static_value(op.inputs[1]) if op.type == "AssignAddVariableOp" else None
            if amount != 1:
                raise ConfigError(
                    f"xla=True with steps_per_run: {op.name!r} ({op.type}) changes the global step other than by "
                    "adding 1 to it, or reads it within control flow, which a compiled loop does not support. Read it "
                    "before, leave counting to the trainer, or leave one of the two options out."
                )


def _most_common_device(ops: Iterable[Any]) -> tuple[str | None, _Place]:
    """Return the device of most variables that ops use: as the variables name it, and as it is."""
    found = Counter((variable.device or None, _place(variable)) for op in ops for variable in _variables(op))
    return found.most_common(1)[0][0] if found else (None, ("CPU", 0))


def _place(variable: Any) -> _Place:
    """Return the type and the index of the device of a variable, given the op that holds its handle."""
    device = tf.DeviceSpec.from_string(variable.device)
    # TensorFlow has no GPU kernels for variables of int32.
    prefers_gpu = physical_of_logical_gpus() and variable.get_attr("dtype") != tf.int32
    return device.device_type or ("GPU" if prefers_gpu else "CPU"), device.device_index or 0


def _uses_variables_elsewhere(op: Any, place: _Place) -> bool:
    return any(_place(variable) != place for variable in _variables(op))


def _variables(op: Any) -> list[Any]:
    """Return the ops that hold the handles of the variables that an op uses."""
    return [handle for handle in _handles(op) if handle.type == "VarHandleOp"]


def _split(moving: Sequence[Any], feeds: Sequence[Any], place: _Place) -> tuple[list[Any], list[Any], list[Any]]:
    """Split the ops that can change from step to step into those before, inside and after the compiled loop.

    Args:
        moving: the ops.
        feeds: tensors that are fed.
        place: the device of the compiled loop.

    Raises:
        ConfigError: if an update depends on an op that XLA must not compile.
    """

    def depends_on(op: Any, changed: set[Any]) -> bool:
        return not changed.isdisjoint(_all_handles(ops_in_order([op], feeds)))

    def obstacle(op: Any) -> tuple[Any, str] | None:
        if _uses_variables_elsewhere(op, place):
            return op, "has a variable on another device: let TensorFlow place it"
        return _obstacle(op)

    changed = _changed_by(moving)
    drawn = [op for op in moving if op.type.startswith(_RANDOM_OPS) and not depends_on(op, changed)]
    uncompiled = [op for op in moving if obstacle(op)]
    before = uncompiled
    while True:
        needed = set(ops_in_order([*before, *drawn], feeds))
        changed = _changed_by(op for op in moving if op not in needed)
        late = {op for op in before if depends_on(op, changed)}
        if not late:
            break
        before = [op for op in before if op not in late]
    after = {op: op for op in uncompiled if op not in needed}
    for op in moving:
        sources = (*(tensor.op for tensor in op.inputs), *op.control_inputs)
        after.update((op, after[each]) for each in sources if each in after and op not in after)
    inside = [op for op in moving if op not in needed and op not in after]
    outside, following = [op for op in moving if op in needed], [op for op in moving if op in after]
    used = _all_handles(inside)
    for op in following:
        for handle in used.intersection(_handles(op)):
            culprit, reason = obstacle(after[op]) or (op, "")
            raise ConfigError(
                f"xla=True with steps_per_run: {culprit.name!r} ({culprit.type}) is needed for what a step does "
                f"with the variable {handle.name!r}, and {reason}, or leave one of the two options out."
            )
    return outside, inside, following


def _gather(parts: _Parts, gathered: Any, times: Any) -> tuple[Any, list[Any], list[Any]]:
    """Run the outside ops for some steps, and stack their outputs for `times` steps.

    The outputs pass through a queue, so that none are lost if the data ends in between, or shapes differ.

    Returns:
        The number of steps in the queue; the stacked tensors; and the ops that must run before anything else.
    """
    start = parts.global_step.read_value()
    with tf.device("/cpu:0"):
        dtypes = [tensor.dtype for tensor in parts.boundary] or [tf.bool]
        queue = tf.queue.FIFOQueue(2**30, dtypes, name="gathered")
        shapes = tf.queue.FIFOQueue(2**30, tf.string, [[]], name="shapes")
        varies = not all(tensor.shape.is_fully_defined() for tensor in parts.boundary)

        def step(iteration: Any) -> list[Any]:
            copies = copy_ops(parts.outside, parts.row(start, iteration, [], []))
            made = [copies[tensor.op].outputs[tensor.value_index] for tensor in parts.boundary]
            with tf.control_dependencies(parts.done(copies)), tf.device("/cpu:0"):
                if not varies:
                    return [queue.enqueue(made or [True])]
                shape = tf.io.serialize_tensor(tf.concat(list(map(tf.shape, made)), 0))
                return [queue.enqueue(made), shapes.enqueue(shape)]

        before = [loop(step, gathered)]
        if varies:
            with tf.control_dependencies(before):
                is_one = tf.size(tf.unique(shapes.dequeue_many(gathered))[0]) <= 1
                before.append(tf.debugging.Assert(is_one, ["batches of several sizes in one run"]))
        arrays = [tf.TensorArray(tensor.dtype, times, element_shape=tensor.shape) for tensor in parts.boundary]
        with tf.control_dependencies(before):
            _, *filled = tf.compat.v1.while_loop(
                lambda iteration, *_: iteration < times,
                lambda iteration, *arrays: (iteration + 1, *_write(arrays, iteration, queue.dequeue())),
                [tf.constant(0), *arrays],
                parallel_iterations=1,
                back_prop=False,
            )
    return queue.size(), [array.stack() for array in filled], before


def _write(arrays: Sequence[Any], index: Any, values: Any) -> list[Any]:
    values = values if isinstance(values, list) else [values]
    return [array.write(index, value) for array, value in zip(arrays, values, strict=False)]


def _compute(parts: _Parts, times: Any, start: Any, *stacked: Any) -> list[Any]:
    """The compiled loop; it returns the number of steps, and the kept tensors of each step."""

    def body(iteration: Any, *arrays: Any) -> Any:
        copies = copy_ops(parts.inside, parts.row(start, iteration, parts.boundary, stacked), is_placed=False)
        kept = [copies[tensor.op].outputs[tensor.value_index] for tensor in parts.kept]
        with tf.control_dependencies(list(copies.values())):
            return (iteration + 1, *_write(arrays, iteration, kept))

    arrays = [tf.TensorArray(tensor.dtype, times, element_shape=tensor.shape) for tensor in parts.kept]
    end, *arrays = tf.while_loop(lambda iteration, *_: iteration < times, body, [tf.constant(0), *arrays])
    return [end, *(array.stack() for array in arrays)]


def _obstacle(op: Any) -> tuple[Any, str] | None:
    """Return the op that XLA must not compile, with the reason: `op`, or an op in a function that it calls."""
    random = op.type.startswith(_RANDOM_OPS)
    seeds = [op.get_attr(name) for name in ("seed", "seed2") if name in op.node_def.attr]
    marked = op.node_def.attr.get("_XlaCompile")
    if op.type in ("Switch", "Merge", "Enter"):
        return op, "XLA does not compile control flow of TensorFlow 1: call tf.compat.v1.enable_control_flow_v2() first"
    if random and (any(seeds) or (marked is not None and not marked.b)) and op.type not in _SAME_DRAWS:
        return op, "XLA would draw other numbers: use tpk.graph.random.dropout, or give the batch a fixed size"
    if op.type == "FakeParam" and not op.outputs[0].shape.num_elements():  # TensorFlow writes 0 for unknown dimensions.
        return op, "XLA compiles the gradient of tf.cond only for known shapes: give the batch a fixed size"
    is_text = any(tensor.dtype == tf.string for tensor in (*op.inputs, *op.outputs))
    if is_text or not _has_kernel(op.type) or (marked is not None and not marked.b and not random):
        return op, "XLA does not compile it: leave it out"
    inner = (each for body in functions_called_by(op) for each in body.get_operations())
    return next((found for each in inner if each.type != "Placeholder" and (found := _obstacle(each))), None)


@functools.cache
def _has_kernel(op_type: str) -> bool:
    return "XLA_CPU_JIT" in devices_with_kernel(op_type) and not op_type.startswith(_NOT_AS_THEY_ARE)


@functools.cache
def _load_kernels() -> None:
    """Compile something, because TensorFlow registers the kernels of XLA when it compiles for the first time."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as sess:
        sess.run(tf.function(lambda: tf.constant(1.0) + 1.0, jit_compile=True, autograph=False)())


def _handles(op: Any) -> set[Any]:
    """Return the ops that hold the handles of variables that an op uses, including control flow on the way."""
    of_resources = [tensor.op for tensor in op.inputs if tensor.dtype == tf.resource]
    return set(ops_from(of_resources, lambda op: [each.op for each in op.inputs if each.dtype == tf.resource]))


def _all_handles(ops: Iterable[Any]) -> set[Any]:
    return set().union(*map(_handles, ops))


def _changed_by(ops: Iterable[Any]) -> set[Any]:
    return _all_handles(op for op in ops if op.type not in _READS)
