"""Means, sums and broadcasts over processes, by TensorFlow's collective operations in a graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.strategies.all_reduce import pack, plan_packs, unpack
from tpk_distributed.collective.shared_memory import SharedMemory, reduce_in_shared_memory

_INSTANCES_BITS = 14

_AS_THEY_ARE = (tf.bool, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)
"""The dtypes that TensorFlow broadcasts."""

LEAST_SHARED_BYTES = 2**22
"""Larger packs are sent through shared memory. For smaller packs, the ring is as fast."""

COMPRESSIONS = {None: None, "fp16": tf.float16, "bf16": tf.bfloat16}
"""The dtypes in which gradients may be sent instead of their own."""


class Collectives:
    """Adds collective operations to the default graph; each process must add the same ones in the same order.

    TensorFlow matches the operations of different processes by keys. The keys depend on `training`, because a server
    remembers the keys of earlier trainings.

    Args:
        rank: the number of this process.
        world_size: the number of processes.
        training: the number of this training in this process, from 1.
        communication: ``ring``, ``nccl`` or ``auto``, which are TensorFlow's names.
        pack_bytes: tensors are sent together in packs of up to this size; a larger tensor is sent alone.
        compression: one of `COMPRESSIONS`.
        average: compute means instead of sums.
        memory: the shared memory of the processes; None to use only TensorFlow's operations.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        training: int,
        communication: str,
        pack_bytes: int,
        compression: str | None = None,
        average: bool = True,
        memory: SharedMemory | None = None,
    ) -> None:
        self._memory = memory
        self._rank, self._world_size = rank, world_size
        # A group belongs to devices: gradients are reduced where they are, and broadcasts are between CPUs.
        self._reduce_group, self._broadcast_group = 2 * training, 2 * training + 1
        self._instances = itertools.count(training << _INSTANCES_BITS)
        self._communication = communication
        self._pack_bytes = pack_bytes
        self._compressed = COMPRESSIONS[compression]
        self._average = average

    def reduce(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the means or sums of tensors or `tf.IndexedSlices` over the processes, on the current device."""
        reduced: list[Any] = [None] * len(tensors)
        dense = []
        # Gradients of the last layers are available first.
        for position in reversed(range(len(tensors))):
            tensor = tensors[position]
            if isinstance(tensor, tf.IndexedSlices):
                reduced[position] = self._reduced_slices(tensor)
            else:
                dense.append(position)
        wires = {position: _to_float_wire(tensors[position]) for position in dense}
        for together in plan_packs([wires[position] for position in dense], self._pack_bytes):
            members = [dense[index] for index in together]
            for member, part in zip(members, self._reduced_pack([wires[m] for m in members]), strict=True):
                reduced[member] = _from_wire(part, tensors[member].dtype, tensors[member].shape)
        return reduced

    def sum(self, tensor: Any) -> Any:
        """Return the sum of a tensor over the processes, on the current device, without compression."""
        return self._all_reduce(tensor, "Id")

    def broadcast(self, variables: Sequence[Any]) -> Any:
        """Return an op that assigns variables their values in the process with rank 0."""
        with tf.device("/cpu:0"):
            wires = [_to_wire(tf.convert_to_tensor(variable.read_value())) for variable in variables]
            done: list[Any] = []
            for members in plan_packs(wires, self._pack_bytes):
                # One after the other, so that only one pack at a time is in memory twice.
                with tf.control_dependencies(done[-1:]):
                    done.append(self._broadcast_pack([variables[i] for i in members], [wires[i] for i in members]))
        return tf.group(*done, name="broadcast")

    def _broadcast_pack(self, variables: Sequence[Any], wires: Sequence[Any]) -> Any:
        shape = wires[0].shape if len(wires) == 1 else [sum(wire.shape.num_elements() for wire in wires)]
        options = {
            "shape": shape,
            "group_size": self._world_size,
            "group_key": self._broadcast_group,
            "instance_key": next(self._instances),
        }
        if self._rank == 0:
            return tf.raw_ops.CollectiveBcastSend(input=pack(wires), **options)
        received = tf.raw_ops.CollectiveBcastRecv(T=wires[0].dtype, **options)
        return tf.group(
            *(
                variable.assign(_from_wire(part, variable.dtype.base_dtype, variable.shape), read_value=False)
                for variable, part in zip(variables, unpack(received, wires), strict=True)
            )
        )

    def _reduced_pack(self, wires: Sequence[Any]) -> list[Any]:
        counts = [wire.shape.num_elements() for wire in wires]
        is_large = None not in counts and sum(counts) * wires[0].dtype.size >= LEAST_SHARED_BYTES
        if self._memory is not None and is_large:
            return reduce_in_shared_memory(self._memory, wires, self._average, self._meet)
        packed = pack(wires)
        return unpack(self._reduced(packed) if self._compressed is None else self._reduced_compressed(packed), wires)

    def _meet(self) -> Any:
        return self._all_reduce(tf.ones([], tf.int32), "Id")

    def _reduced(self, tensor: Any) -> Any:
        return self._all_reduce(tensor, "Div" if self._average else "Id")

    def _reduced_compressed(self, tensor: Any) -> Any:
        # Divided before it is compressed, so that no sum exceeds the largest value.
        mean = self._all_reduce(tf.cast(tensor / self._world_size, self._compressed), "Id")
        mean = tf.cast(mean, tensor.dtype)
        return mean if self._average else mean * self._world_size

    def _all_reduce(self, tensor: Any, final_op: str) -> Any:
        return tf.raw_ops.CollectiveReduce(
            input=tensor,
            group_size=self._world_size,
            group_key=self._reduce_group,
            instance_key=next(self._instances),
            merge_op="Add",
            final_op=final_op,
            subdiv_offsets=[0],
            communication_hint=self._communication,
        )

    def _gather(self, tensor: Any) -> Any:
        """Return the concatenated tensors of all processes; the first dimension must be the same in all, and not 0."""
        return tf.raw_ops.CollectiveGather(
            input=tensor,
            group_size=self._world_size,
            group_key=self._reduce_group,
            instance_key=next(self._instances),
            shape=tf.TensorShape(None),
            communication_hint=self._communication,
        )

    def _gather_values(self, values: Any) -> Any:
        if self._compressed is None:
            return self._gather(values)
        # TensorFlow cannot gather bfloat16, so its bits are gathered.
        bits = self._gather(tf.bitcast(tf.cast(values, self._compressed), tf.float16))
        return tf.cast(tf.bitcast(bits, self._compressed), values.dtype)

    def _reduced_slices(self, slices: Any) -> Any:
        """Return the mean or sum of sparse gradients: the slices of all processes, whose numbers may differ."""
        values = _to_float_wire(slices.values)
        count = tf.shape(slices.indices, tf.int64)
        counts = self._gather(count)
        longest = tf.maximum(tf.reduce_max(counts), 1)  # TensorFlow crashes if it gathers empty tensors.
        missing = longest - count[0]
        rank = values.shape.rank
        padded = tf.pad(values, tf.concat([[[0, missing]], tf.zeros([rank - 1, 2], tf.int64)], 0))
        indices = tf.pad(tf.cast(slices.indices, tf.int64), [[0, missing]])
        is_real = tf.reshape(tf.range(longest)[None] < counts[:, None], [-1])
        all_values = tf.ensure_shape(self._gather_values(padded), [None, *values.shape[1:]])
        all_indices = tf.ensure_shape(self._gather(indices), [None])
        taken = tf.boolean_mask(all_values, is_real)
        taken = taken / self._world_size if self._average else taken
        return tf.IndexedSlices(
            _from_wire(taken, slices.values.dtype, [-1, *slices.values.shape[1:].as_list()]),
            tf.cast(tf.boolean_mask(all_indices, is_real), slices.indices.dtype),
            slices.dense_shape,
        )


def _to_float_wire(tensor: Any) -> Any:
    """Return a tensor in a dtype that TensorFlow can sum without loss; 16-bit floats as ``float32``."""
    if tensor.dtype.is_complex:
        return _to_wire(tensor)
    return tf.cast(tensor, tf.float32) if tensor.dtype.size < 4 else tensor


def _to_wire(tensor: Any) -> Any:
    """Return a tensor in a dtype that TensorFlow broadcasts, without loss."""
    dtype = tensor.dtype.base_dtype
    if dtype in _AS_THEY_ARE:
        return tensor
    if dtype.is_complex:
        return tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], -1)
    if dtype.is_floating:
        return tf.cast(tensor, tf.float32)
    if dtype == tf.uint64:
        return tf.bitcast(tensor, tf.int64)
    return tf.cast(tensor, tf.int64 if dtype == tf.uint32 else tf.int32)


def _from_wire(wire: Any, dtype: Any, shape: Any) -> Any:
    """Return the tensor that `_to_wire` or `_to_float_wire` converted."""
    if wire.dtype == dtype:
        return wire
    if dtype.is_complex:
        return tf.reshape(tf.complex(wire[..., 0], wire[..., 1]), shape)
    if dtype == tf.uint64:
        return tf.bitcast(wire, dtype)
    return tf.cast(wire, dtype)
