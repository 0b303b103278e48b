"""``tpk checkpoint to-npz``: the variables of a checkpoint as a file that NumPy reads."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tpk.checkpoint.stored_values import StoredValues
from tpk.cli.checkpoint.values import as_numbers, open_values
from tpk.errors import CheckpointError
from tpk.text import human_size

# What tf.train.Checkpoint keeps to itself; it is no variable.
_NO_VARIABLES = ("_CHECKPOINTABLE_OBJECT_GRAPH",)


def write_npz(checkpoint: str, out: Path, *, overwrites: bool) -> int:
    """Write what is in `checkpoint` to the file `out`, all of it or nothing, one variable in memory at a time.

    What NumPy has no dtype for, bfloat16 above all, is written as float32, which has all of its values; it can be
    restored into a variable of the dtype that it had, bit for bit.

    Args:
        checkpoint: see `open_values`.
        out: the file, ending in ``.npz``.
        overwrites: whether it may be there already.

    Returns:
        The exit status, 0.

    Raises:
        CheckpointError: if the file is there and must not be, its name does not end in ``.npz``, or a value cannot be
            written so that NumPy reads it.
        OSError: if it cannot be written.
    """
    if out.suffix != ".npz":
        raise CheckpointError(f"{str(out)!r} does not end in .npz, by which such files are known. Name it so.")
    if out.exists() and not overwrites:
        raise CheckpointError(f"{str(out)!r} exists already. Name another file, or add --force to overwrite it.")
    with open_values(checkpoint) as values:
        descriptor, unfinished = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                widened = _write_all(values, file)
                file.flush()
                os.fsync(file.fileno())
            # What mkstemp makes is for its owner only; a file of the user's has the permissions that others have.
            os.chmod(unfinished, 0o666 & ~_umask())
            os.replace(unfinished, out)
        except BaseException:
            os.unlink(unfinished)
            raise
        written = len(set(values) - set(_NO_VARIABLES))
    print(f"{out}: {written:,} variables, {human_size(out.stat().st_size)}")
    if widened:
        print(f"{widened:,} of them, of dtypes that NumPy does not have, were written as float32, without loss")
    return 0


def _write_all(values: StoredValues, file: Any) -> int:
    """Write all of `values`, and return how many of them had to take on another dtype."""
    widened = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name in sorted(set(values) - set(_NO_VARIABLES)):
            value = values[name]
            array = as_numbers(value)
            if array is None:
                array = _as_strings(name, value)
            elif array.dtype != value.dtype:
                widened += 1
            # The time of a ZipInfo is fixed, so that the same checkpoint gives the same bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return widened


def _as_strings(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return strings of any length as strings of one length, which NumPy stores without pickling."""
    if value.dtype.kind in "SU":
        return value
    texts = value.astype(np.bytes_) if value.dtype.kind == "O" else None
    if texts is None or not np.array_equal(texts.astype(object), value):
        raise CheckpointError(
            f"{name!r}, of dtype {value.dtype}, cannot be stored in an .npz file as it is: NumPy cuts zero bytes off "
            "the end of strings, and knows only numbers besides. Load the checkpoint itself."
        )
    return texts


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
