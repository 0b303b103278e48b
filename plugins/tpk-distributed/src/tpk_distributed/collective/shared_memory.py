"""Shared memory through which the processes of one host exchange large gradients.

TensorFlow's ring uses gRPC, which copies the data several times. Here each process copies its gradients once, to memory
that the other processes have mapped. A collective operation on a single number tells them when it is done. So a process
that is dead or late is detected as with any other collective operation, and no Python code waits.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.dataflow import aligned_empty
from tpk.strategies import ProcessGroup

_HEADER = mmap.ALLOCATIONGRANULARITY
_NONCE_BYTES = 16
_ALIGNMENT = 64
_BLOCK = 1 << 16
"""The number of elements that are added at a time, so that they stay in the cache."""


class SharedMemory:
    """Anonymous memory that the processes of this host map; it is freed when the last of them ends.

    Args:
        rank: the number of this process.
        descriptors: the open files, by rank.
    """

    def __init__(self, rank: int, descriptors: Sequence[int]) -> None:
        self.rank = rank
        self._descriptors = list(descriptors)
        self._size = _HEADER

    @property
    def world_size(self) -> int:
        """The number of processes that share it."""
        return len(self._descriptors)

    def allocate(self, nbytes: int) -> int:
        """Return the offset of `nbytes` free bytes in each process's part; all processes make the same calls."""
        start = self._size
        self._size = -(-(start + nbytes) // _HEADER) * _HEADER
        os.ftruncate(self._descriptors[self.rank], self._size)
        return start

    def view(self, rank: int, start: int, count: int, dtype: Any) -> np.ndarray:
        """Return the elements from `start` on in a process's part, which that process has allocated."""
        nbytes = count * np.dtype(dtype).itemsize
        mapped = mmap.mmap(self._descriptors[rank], nbytes, offset=start)
        return np.frombuffer(mapped, dtype, count)

    def close(self) -> None:
        """Close the files; mapped memory stays as long as it is used."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def share_memory(process_group: ProcessGroup, is_wanted: bool) -> SharedMemory | None:
    """Return memory that all processes share; None, in each of them, if a process does not want it or cannot share it.

    They can share memory if they run on one Linux host, for one user.

    Args:
        process_group: the processes.
        is_wanted: whether this process wants it.
    """
    own, nonce = _create() if is_wanted else (None, b"")
    offer = None if own is None else (os.getpid(), own, nonce)
    offers = process_group.gather_object("the shared memory of each process", offer)
    opened = [own if rank == process_group.rank else _open(each) for rank, each in enumerate(offers)]
    found = [descriptor for descriptor in opened if descriptor is not None]
    everywhere = process_group.gather_object("whether each process has all of it", len(found) == len(offers))
    if all(everywhere):
        return SharedMemory(process_group.rank, found)
    for descriptor in found:
        os.close(descriptor)
    return None


def _create() -> tuple[int | None, bytes]:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    try:
        descriptor = os.memfd_create("tpk-gradients")
    except (AttributeError, OSError):  # Only Linux has it.
        return None, b""
    os.ftruncate(descriptor, _HEADER)
    os.pwrite(descriptor, nonce, 0)
    return descriptor, nonce


def _open(offer: tuple[int, int, bytes] | None) -> int | None:
    """Open the file of another process; return None if it is on another host or inaccessible."""
    if offer is None:
        return None
    process, number, nonce = offer
    with suppress(OSError):
        # On another host, these numbers name another file, or none.
        descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and os.pread(descriptor, _NONCE_BYTES, 0) == nonce:
            return descriptor
        os.close(descriptor)
    return None


def reduce_in_shared_memory(
    memory: SharedMemory, tensors: Sequence[Any], average: bool, meet: Callable[[], Any]
) -> list[Any]:
    """Return the means or sums of tensors over the processes, with the same bits in each.

    Each process reduces one part of all elements: it reads that part of the others' tensors, adds it in the order of
    their ranks, and shares the result.

    Args:
        memory: the shared memory of the processes.
        tensors: tensors on the CPU, of one dtype and known shapes, which are the same in each process.
        average: compute means instead of sums.
        meet: returns an op that ends when all processes have run theirs.
    """
    work = _Reduction(memory, [tensor.shape.as_list() for tensor in tensors], tensors[0].dtype.as_numpy_dtype, average)
    given = tf.numpy_function(work.give, tensors, [], name="give")
    with tf.control_dependencies([given]), tf.control_dependencies([meet()]):
        reduced = tf.numpy_function(work.reduce, tensors, [], name="reduce")
    with tf.control_dependencies([reduced]), tf.control_dependencies([meet()]):
        results = tf.numpy_function(work.take, [], [tensor.dtype for tensor in tensors], name="take")
    for result, tensor in zip(results, tensors, strict=True):
        result.set_shape(tensor.shape)
    return list(results)


class _Reduction:
    """One reduction of each step: a process shares its tensors, reduces its part, and reads the results of the others.

    A process does not share the part that it reduces itself, so the result is stored there in its memory. It is written
    when all processes have shared their tensors, so they have read the result of the previous step. The shared tensors
    are overwritten only when all processes have reduced their parts.
    """

    def __init__(self, memory: SharedMemory, shapes: Sequence[list[int]], dtype: Any, average: bool) -> None:
        self._memory, self._shapes, self._dtype, self._average = memory, shapes, np.dtype(dtype), average
        sizes = [int(np.prod(shape)) for shape in shapes]
        self._ends = np.cumsum(sizes).tolist()
        self._count = self._ends[-1]
        line = _ALIGNMENT // self._dtype.itemsize
        each = -(-self._count // memory.world_size)
        each = -(-each // line) * line
        self._bounds = [min(rank * each, self._count) for rank in range(memory.world_size + 1)]
        self._start = memory.allocate(self._count * self._dtype.itemsize)
        self._views: list[np.ndarray] = []
        self._buffers: list[list[np.ndarray]] = [[] for _ in shapes]

    def give(self, *arrays: np.ndarray) -> None:
        """Copy the parts that other processes reduce to the memory of this process."""
        if not self._views:
            # The other processes may not have allocated their memory before `reduce`.
            self._views = [np.empty(0, self._dtype)] * self._memory.world_size
            self._views[self._memory.rank] = self._view(self._memory.rank)
        own = self._views[self._memory.rank]
        for rank in range(self._memory.world_size):
            if rank != self._memory.rank:
                for index, inside, outside in self._pieces(rank):
                    own[outside] = arrays[index].reshape(-1)[inside]

    def reduce(self, *arrays: np.ndarray) -> None:
        """Reduce the part of this process."""
        memory = self._memory
        self._views = [view if view.size else self._view(rank) for rank, view in enumerate(self._views)]
        for index, inside, outside in self._pieces(memory.rank):
            of_ranks = [view[outside] for view in self._views]
            total, of_ranks[memory.rank] = of_ranks[memory.rank], arrays[index].reshape(-1)[inside]
            for start in range(0, total.size, _BLOCK):
                block = slice(start, start + _BLOCK)
                first, second, *others = (each[block] for each in of_ranks)
                out = np.add(first, second, out=total[block])
                for other in others:
                    np.add(out, other, out=out)
                if self._average:
                    np.divide(out, self._dtype.type(memory.world_size), out=out)

    def take(self) -> list[np.ndarray]:
        """Return a copy of all results."""
        outputs = [self._buffer(index) for index in range(len(self._shapes))]
        for rank, view in enumerate(self._views):
            for index, inside, outside in self._pieces(rank):
                outputs[index].reshape(-1)[inside] = view[outside]
        return outputs

    def _view(self, rank: int) -> np.ndarray:
        return self._memory.view(rank, self._start, self._count, self._dtype)

    def _pieces(self, rank: int) -> list[tuple[int, slice, slice]]:
        """Return the tensors in a process's part: their indices, their elements there, and these among all elements."""
        low, high = self._bounds[rank], self._bounds[rank + 1]
        pieces = []
        for index, (begin, end) in enumerate(zip([0, *self._ends], self._ends, strict=False)):
            first, last = max(begin, low), min(end, high)
            if first < last:
                pieces.append((index, slice(first - begin, last - begin), slice(first, last)))
        return pieces

    def _buffer(self, index: int) -> np.ndarray:
        """Return memory for an output, reused if possible. TensorFlow does not copy it, because it is aligned."""
        buffers = self._buffers[index]
        for position in range(len(buffers)):
            # One reference in the list, and one as the argument.
            if sys.getrefcount(buffers[position]) == 2:
                return buffers[position]
        buffers.append(aligned_empty(tuple(self._shapes[index]), self._dtype))
        return buffers[-1]
