"""Blocks of memory that two processes share, and that nothing has to clean up.

A block has no name in any file system: it is gone when the last process that maps it is, however that process ended.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from tpk.errors import InputError

_STEPS_PER_OCTAVE = 8


def create_block(size: int) -> int:
    """Return a file descriptor of new shared memory, all of which is really there.

    Args:
        size: bytes.

    Raises:
        InputError: there is not so much memory left.
    """
    descriptor = _anonymous_file()
    try:
        _reserve(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise InputError(
            f"there is no room for {size:,} bytes of shared memory: {error}. Use smaller batches, fewer worker "
            "processes or a smaller num_prefetch, or give the machine (or container) more memory."
        ) from error
    return descriptor


def map_block(descriptor: int, size: int) -> mmap.mmap:
    """Map a block into this process, and close its descriptor."""
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def block_size(needed: int) -> int:
    """Return the size of a new block for `needed` bytes: with some room to spare, so that similar data fits in, too."""
    octave = 1 << max(needed - 1, 1).bit_length() - 1
    step = max(octave // _STEPS_PER_OCTAVE, mmap.PAGESIZE)
    return -(-needed // step) * step


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        # Not in /dev/shm, which is 64 MB small in a container.
        return os.memfd_create("tpk-dataflow")
    descriptor, path = tempfile.mkstemp(prefix="tpk-dataflow-")
    os.unlink(path)
    return descriptor


def _reserve(descriptor: int, size: int) -> None:
    """Make the file as large as that. Touching memory that turns out not to be there would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)
