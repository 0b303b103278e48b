"""Horovod's collective operations, for all dtypes and kinds of tensors.

Each operation has a unique name in the graph, by which Horovod matches the operations of different processes. The names
depend only on the order of the reduced tensors, so they are the same in all processes, even if their graphs differ
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import tpk

_BROADCAST = frozenset(
    {tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64, tf.bool}
)
_SENT_AS = {tf.bfloat16: tf.float32}
_PARTS = {tf.complex64: tf.float32, tf.complex128: tf.float64}

CHIEF = 0


def reduce_over_processes(hvd: Any, tensors: Sequence[Any], compression: Any, op: Any) -> list[Any]:
    """Add ops that compute the means or sums of `tensors` over all processes, bit-identical in each process.

    Args:
        hvd: the module `horovod.tensorflow`, initialized.
        tensors: tensors or `tf.IndexedSlices` of any floating-point or complex dtype.
        compression: a compression algorithm of `hvd.Compression`.
        op: `hvd.Average`, `hvd.Sum` or `hvd.Adasum`.

    Returns:
        The results of `op`, in the same order. For `tf.IndexedSlices`, they contain the slices of all processes.
    """

    def reduce(tensor: Any, name: str) -> Any:
        if not isinstance(tensor, tf.IndexedSlices):
            return _in_sendable_dtype(
                _unfoldable(hvd, tensor), lambda sent: hvd.allreduce(sent, name=name, op=op, compression=compression)
            )
        if op == hvd.Adasum:
            return reduce(tf.convert_to_tensor(tensor), name)
        return _reduced_slices(hvd, tensor, name, compression, op)

    with tf.device(_device(hvd)):
        return [reduce(tensor, f"horovod_reduce_{number}") for number, tensor in enumerate(tensors)]


def sum_over_processes(hvd: Any, tensor: Any) -> Any:
    """Add an op that sums `tensor` over all processes without compression, bit-identical in each process."""
    with tf.device(_device(hvd)):
        return hvd.allreduce(_unfoldable(hvd, tensor), name="horovod_sum", op=hvd.Sum)


def broadcast_from_chief(hvd: Any, variables: Sequence[Any]) -> Any:
    """Return an op that assigns the chief's values of variables in all processes.

    Args:
        hvd: the module `horovod.tensorflow`, initialized.
        variables: variables of any dtype except strings.
    """
    assigns = []
    for number, variable in enumerate(variables):
        value = variable.read_value()
        with tf.device(_device(hvd)):
            received = _broadcast(hvd, value, f"horovod_broadcast_{number}")
        received = tf.ensure_shape(received, variable.shape)
        assigns.append(variable.assign(received, read_value=False))
    return tf.group(*assigns)


def _reduced_slices(hvd: Any, slices: Any, name: str, compression: Any, op: Any) -> Any:
    values, how = compression.compress(_unfoldable(hvd, slices.values))
    values = compression.decompress(hvd.allgather(values, name=f"{name}_values"), how)
    indices = hvd.allgather(_unfoldable(hvd, slices.indices), name=f"{name}_indices")
    if op == hvd.Average:
        values = values / tf.cast(hvd.size(), values.dtype)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _unfoldable(hvd: Any, tensor: Any) -> Any:
    """Return a tensor with the value of `tensor` that TensorFlow does not treat as a constant.

    TensorFlow evaluates ops whose inputs are all constant when it optimizes a graph for a set of fetches. If this
    happened in one process but not in another, the processes would wait for each other forever.
    """
    return tensor if _varies(tensor) else tensor * tf.cast(hvd.size_op() // hvd.size(), tensor.dtype)


def _varies(tensor: Any) -> bool:
    """Whether the value of `tensor` depends on anything other than constants."""
    seen, ahead = set(), [tensor.op]
    while ahead:
        op = ahead.pop()
        if op.op_def.is_stateful or op.type.startswith("Placeholder") or op.type.startswith("Variable"):
            return True
        new = [each.op for each in op.inputs if each.op not in seen]
        seen.update(new)
        ahead.extend(new)
    return False


def _in_sendable_dtype(tensor: Any, reduce: Callable[[Any], Any]) -> Any:
    """Reduce a tensor, in another dtype if Horovod does not support its dtype."""
    dtype = tensor.dtype
    if dtype in _PARTS:
        return tf.bitcast(reduce(tf.bitcast(tensor, _PARTS[dtype])), dtype)
    if dtype in _SENT_AS:
        return tf.cast(reduce(tf.cast(tensor, _SENT_AS[dtype])), dtype)
    if not dtype.is_floating:
        raise tpk.ConfigError(f"{tensor.name!r} is a gradient of dtype {dtype.name}, which Horovod cannot sum.")
    return reduce(tensor)


def _broadcast(hvd: Any, value: Any, name: str) -> Any:
    """Broadcast a tensor of any dtype, as bytes if Horovod does not support its dtype."""
    if value.dtype in _BROADCAST:
        return hvd.broadcast(value, root_rank=CHIEF, name=name)
    as_bytes = tf.bitcast(value, tf.uint8)
    return tf.bitcast(hvd.broadcast(as_bytes, root_rank=CHIEF, name=name), value.dtype)


def _device(hvd: Any) -> str | None:
    """Return the device of Horovod's kernels, which run on GPUs only if Horovod was built with NCCL."""
    return None if hvd.nccl_built() else "/cpu:0"
