"""Blocks of memory that two processes share, which need no cleanup.

All blocks that one process makes for another are in one file without a name in any file system. The file is gone when
the last process that has it ends, however it ends.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import tempfile
import weakref
from typing import Any

import numpy as np

from tpk.errors import InputError

_STEPS_PER_OCTAVE = 8


class BlockFile:
    """The file of the blocks, at either end.

    It takes one descriptor for all blocks. Both ends map the blocks in the order of their creation, so both know where
    each begins.

    Args:
        descriptor: of a file of `create_file`; it is closed with this object.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = 0
        self.close = weakref.finalize(self, os.close, descriptor)

    def reserve(self, size: int) -> None:
        """Make the next block and reserve its memory.

        Args:
            size: bytes, from `block_size`.

        Raises:
            InputError: there is not enough memory.
        """
        # Writing to memory that cannot be allocated would kill the process.
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._descriptor, self._end, size)
            else:
                os.ftruncate(self._descriptor, self._end + size)
        except OSError as error:
            raise _no_room(size, error) from error

    def map_next(self, size: int) -> memoryview:
        """Return the next block, writable; it stays mapped until the last view of it is gone.

        Args:
            size: its size, as given to `reserve`.

        Raises:
            InputError: the address space of this process is exhausted.
        """
        # Each `mmap.mmap` would keep its own descriptor.
        address = _libc().mmap(
            None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self._descriptor, self._end
        )
        if address == _FAILED:
            error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            raise _no_room(size, error) from error
        self._end += size
        memory = (ctypes.c_ubyte * size).from_address(address)
        # Views may still exist when the process exits, which unmaps it anyway.
        weakref.finalize(memory, _libc().munmap, address, size).atexit = False
        return memoryview(np.frombuffer(memory, np.uint8))


def create_file() -> int:
    """Return the descriptor of a new file for blocks."""
    if hasattr(os, "memfd_create"):
        # /dev/shm has only 64 MB in a container.
        return os.memfd_create("tpk-dataflow")
    descriptor, path = tempfile.mkstemp(prefix="tpk-dataflow-")
    os.unlink(path)
    return descriptor


def give_back(block: memoryview) -> None:
    """Return the memory of an unused block to the system, even if it is still mapped.

    On other systems than Linux, this happens with the end of the file.
    """
    if hasattr(mmap, "MADV_REMOVE"):
        _libc().madvise(np.frombuffer(block, np.uint8).ctypes.data, len(block), mmap.MADV_REMOVE)


def block_size(needed: int) -> int:
    """Return the size of a new block for `needed` bytes, with some room to spare for similar data."""
    octave = 1 << max(needed - 1, 1).bit_length() - 1
    step = max(octave // _STEPS_PER_OCTAVE, mmap.PAGESIZE)
    return -(-needed // step) * step


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    integer, size, pointer, offset = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_long
    libc.mmap.argtypes, libc.mmap.restype = [pointer, size, integer, integer, integer, offset], pointer
    libc.munmap.argtypes, libc.madvise.argtypes = [pointer, size], [pointer, size, integer]
    return libc


_FAILED = ctypes.c_void_p(-1).value


def _no_room(size: int, error: OSError) -> InputError:
    return InputError(
        f"no room for {size:,} bytes of shared memory: {error}. Use smaller batches, fewer worker "
        "processes or a smaller num_prefetch, or give the machine (or container) more memory."
    )
