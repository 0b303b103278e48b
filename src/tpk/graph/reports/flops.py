"""Floating-point operations of a model, as TensorFlow's profiler counts them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.deprecations import without_deprecations
from tpk.graph.step.fetches import ops_computing

logger = logging.getLogger(__name__)

_NAMED = 5
_SCOPE = "model"

# They have floating-point outputs, but copy or make values without computing.
_MOVE_DATA = frozenset(
    {
        *("Placeholder", "PlaceholderWithDefault", "Const", "ReadVariableOp", "VariableV2", "VarHandleOp", "Fill"),
        *("Identity", "IdentityN", "Snapshot", "DeepCopy", "EnsureShape", "StopGradient", "PreventGradient", "Cast"),
        *("Reshape", "Squeeze", "ExpandDims", "Transpose", "BroadcastTo", "ZerosLike", "OnesLike", "ReverseV2"),
        *("ConcatV2", "Pack", "Unpack", "Split", "SplitV", "Slice", "StridedSlice", "Tile", "Pad", "PadV2"),
        *("MirrorPad", "Gather", "GatherV2", "GatherNd", "ResourceGather", "SelectV2", "Select", "Switch", "Merge"),
        *("SpaceToBatchND", "BatchToSpaceND", "SpaceToDepth", "DepthToSpace", "CheckNumerics", "Bitcast"),
    }
)


@attrs.frozen
class ModelFlops:
    """A number of floating-point operations, and what is in it.

    Attributes:
        total: the sum of all that were counted.
        by_type: what each type of op has of it, the greatest first.
        shapes: the shapes of the inputs for which it was counted, by the names of the tensors.
        not_counted: how many ops of each type compute something, but the profiler has no rule for them.
        unknown_shapes: the names of the ops that could not be counted because a shape is not known.
    """

    total: int
    by_type: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    not_counted: Mapping[str, int]
    unknown_shapes: tuple[str, ...]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        parts = ", ".join(f"{name} {flops:,}" for name, flops in self.by_type.items())
        text = f"{self.total:,} floating-point operations" + (f" ({parts})" if parts else "")
        text += f" for {shapes}" if shapes else ""
        if self.not_counted:
            text += "; not counted: " + ", ".join(f"{count} {name}" for name, count in self.not_counted.items())
        return text


def model_flops(
    outputs: Any,
    inputs: Sequence[Any] | None = None,
    *,
    batch_size: int = 1,
    shapes: Sequence[Sequence[int | None] | None] | None = None,
) -> ModelFlops:
    """Return how many floating-point operations it takes to compute `outputs` once.

    TensorFlow's profiler counts them, from the types of the ops and from shapes alone; nothing is run. An addition and
    a multiplication are an operation each, so a matrix product of [m, k] and [k, n] has ``2·m·k·n``. Counted are matrix
    products, convolutions, poolings, sums, and the common elementwise arithmetic. Other ops, such as ``Einsum``,
    ``Exp``, or the body of a loop, are not: `ModelFlops.not_counted` tells how many of each type there are.

    What `outputs` need is counted, once: with the outputs of a tower it is the forward pass of one device. Gradients
    and updates are no part of it.

    Args:
        outputs: tensors of one graph, in any structure.
        inputs: tensors of that graph at which to begin, such as the `inputs` of a tower; by default all placeholders
            that `outputs` need.
        batch_size: stands for the first dimension of each input where that is not known.
        shapes: a shape for each of `inputs`, or None for its own. It has to give each dimension, but for the first,
            that the graph does not know.

    Raises:
        ConfigError: if a dimension of an input is known neither from the graph nor from the arguments, or contradicts.

    Example:
        ```python
        (tower, *_) = trainer.towers.training()
        flops = tpk.graph.model_flops(tower.get_tensor("logits"), tower.inputs, batch_size=1)
        print(f"{flops.total / 1e9:.2f} GFLOPs per image")
        ```
    """
    fetched = tf.nest.flatten(outputs)
    graph = fetched[0].graph
    fed = _placeholders_of(fetched) if inputs is None else list(inputs)
    given = _given_shapes(fed, shapes)
    forward = _forward_pass(graph, fetched, fed)
    needed = {_node_input(name) for node in forward.node for name in node.input}
    full = {
        each.name: _full_shape(each, batch_size, shape)
        for each, shape in zip(fed, given, strict=True)
        if _node_input(each.name) in needed
    }
    with tf.Graph().as_default() as copy:
        starts = {each.name: tf.compat.v1.placeholder(each.dtype, full[each.name]) for each in fed if each.name in full}
        tf.graph_util.import_graph_def(forward, input_map=starts, name=_SCOPE)
    counts = _count(copy)
    ops = [op for op in copy.get_operations() if op.type not in _MOVE_DATA and _has_floats(op)]
    by_type: Counter[str] = Counter()
    for op in ops:
        by_type[op.type] += counts.get(op.name, 0)
    left = [op for op in ops if op.name not in counts]
    unknown = tuple(op.name.removeprefix(f"{_SCOPE}/") for op in left if not _is_known(op))
    if unknown:
        logger.warning(
            "%d ops are not among the floating-point operations, because their shapes are not known: %s%s",
            len(unknown),
            ", ".join(unknown[:_NAMED]),
            ", …" if len(unknown) > _NAMED else "",
        )
    return ModelFlops(
        total=by_type.total(),
        by_type={name: flops for name, flops in by_type.most_common() if flops},
        shapes=full,
        not_counted=dict(Counter(op.type for op in left if _is_known(op)).most_common()),
        unknown_shapes=unknown,
    )


def _given_shapes(
    inputs: Sequence[Any], shapes: Sequence[Sequence[int | None] | None] | None
) -> list[Sequence[int | None] | None]:
    if shapes is None:
        return [None] * len(inputs)
    if len(shapes) != len(inputs):
        names = ", ".join(each.name for each in inputs)
        raise ConfigError(f"model_flops(shapes=…) has {len(shapes)} shapes; expected one for each input: {names}.")
    return list(shapes)


def _full_shape(tensor: Any, batch_size: int, shape: Sequence[int | None] | None) -> tuple[int, ...]:
    try:
        known = tensor.shape.merge_with(tf.TensorShape(shape))
    except ValueError:
        raise ConfigError(
            f"model_flops was given the shape {shape} for {tensor.name!r}, which has shape {tensor.shape}."
        ) from None
    sizes = None if known.rank is None else known.as_list()
    if sizes and sizes[0] is None:
        sizes[0] = batch_size
    if sizes is None or None in sizes:
        raise ConfigError(
            f"the number of floating-point operations depends on the shape of {tensor.name!r}, which is {known}. "
            "Give model_flops shapes=[…], with a shape for each input."
        )
    return tuple(sizes)


def _placeholders_of(outputs: Sequence[Any]) -> list[Any]:
    found = [op for op in ops_computing(outputs) if op.type in ("Placeholder", "PlaceholderWithDefault")]
    return [op.outputs[0] for op in sorted(found, key=lambda op: str(op.name))]


def _forward_pass(graph: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """Return a `GraphDef` of what computes `outputs` from `inputs`: neither what comes before, nor what only waits."""
    whole = graph.as_graph_def()
    nodes = {node.name: node for node in whole.node}
    part = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
    ends = {_node_input(each.name) for each in inputs}
    seen = set()
    waiting = [each.op.name for each in outputs if _node_input(each.name) not in ends]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            data = [each for each in nodes[name].input if not each.startswith("^")]
            waiting.extend(each.partition(":")[0] for each in data if each not in ends)
            node = part.node.add()
            node.CopyFrom(nodes[name])
            del node.input[:]
            node.input.extend(data)
            # What it is to be placed beside may be no part of the forward pass.
            node.attr.pop("_class", None)
    return part


def _node_input(name: str) -> str:
    """Return the name of a tensor as the inputs of a `NodeDef` have it."""
    return name.removesuffix(":0")


def _count(graph: Any) -> dict[str, int]:
    """Return the floating-point operations of each op that has any, as the profiler counts them."""
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    # The profiler calls what is deprecated.
    with without_deprecations():
        profile = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
    counts = {}
    waiting = [profile]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children)
        if node.float_ops:
            counts[node.name] = node.float_ops
    return counts


def _has_floats(op: Any) -> bool:
    return any(tensor.dtype.base_dtype.is_floating for tensor in op.outputs)


def _is_known(op: Any) -> bool:
    return all(tensor.shape.is_fully_defined() for tensor in [*op.inputs, *op.outputs])
