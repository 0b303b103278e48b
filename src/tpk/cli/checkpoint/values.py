"""``tpk checkpoint show``: what a checkpoint holds."""

from __future__ import annotations

import difflib
import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tpk.checkpoint.stored_values import STORED_BFLOAT16, NpzReader, StoredValues
from tpk.cli.table import print_table
from tpk.errors import CheckpointError
from tpk.text import human_size


@contextmanager
def open_values(path: str) -> Iterator[StoredValues]:
    """Open what `path` means. Only for a checkpoint is TensorFlow imported.

    Args:
        path: an ``.npz`` file; or a checkpoint, as `find_checkpoint` takes it.

    Raises:
        CheckpointError: if there is nothing of that, or it is damaged.
    """
    if path.endswith(".npz") and not os.path.isdir(path):
        with NpzReader(path) as values:
            yield values
    elif "://" not in path and not _may_be_there(path):
        # TensorFlow would find nothing either, but takes its time to start.
        raise CheckpointError(
            f"there is no checkpoint {path!r}, nor any other where it should be. Give the prefix of a checkpoint "
            "(model-<step>), the directory that holds it, or an .npz file."
        )
    else:
        from tpk.checkpoint.reader import CheckpointReader, find_checkpoint

        yield CheckpointReader(find_checkpoint(path))


def _may_be_there(path: str) -> bool:
    if os.path.exists(path) or glob.glob(glob.escape(path) + "*"):
        return True
    directory = next(each for each in Path(path).absolute().parents if each.is_dir())
    return any(directory.glob("*.index"))


def as_numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return `array` with a dtype that NumPy knows, and the same values; None if it does not hold numbers.

    What TensorFlow has beyond NumPy, bfloat16 above all, becomes float32, which has all of its values.
    """
    if array.dtype == STORED_BFLOAT16:
        # A bfloat16 is the upper half of a float32.
        return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind in "biufc":
        return array
    try:
        return None if array.dtype.kind in "OSU" else array.astype(np.float32)
    except (TypeError, ValueError):
        return None


def show_variables(path: str, *, as_json: bool) -> int:
    """Write names, shapes, dtypes and sizes of what is in `path` to stdout, and the total.

    Returns:
        The exit status, 0.
    """
    with open_values(path) as values:
        specs = {name: values.spec(name) for name in sorted(values)}
        source = values.source
    sizes = [spec.num_bytes for spec in specs.values()]
    elements = sum(int(np.prod(spec.shape, dtype=np.int64)) for spec in specs.values())
    total = sum(size for size in sizes if size is not None)
    if as_json:
        variables = [
            {"name": name, "shape": spec.shape, "dtype": spec.dtype_name, "size": spec.num_bytes}
            for name, spec in specs.items()
        ]
        print(json.dumps({"source": source, "variables": variables, "elements": elements, "size": total}, indent=2))
        return 0
    rows = [(name, str(spec.shape), spec.dtype_name, human_size(spec.num_bytes)) for name, spec in specs.items()]
    print_table(("name", "shape", "dtype", "size"), rows)
    print(f"{source}: {len(specs):,} variables, {elements:,} elements, {human_size(total)}")
    return 0


def show_values(path: str, name: str, *, as_json: bool) -> int:
    """Write statistics of the values of the variable `name` in `path` to stdout.

    Returns:
        The exit status, 0.

    Raises:
        CheckpointError: if there is no such variable.
    """
    with open_values(path) as values:
        name = name.removesuffix(":0")
        if name not in values:
            near = difflib.get_close_matches(name, values, n=3)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else " `tpk checkpoint show` lists all."
            raise CheckpointError(f"there is no variable {name!r} in {values.source}.{hint}")
        spec, array = values.spec(name), values[name]
    statistics = {"name": name, "shape": spec.shape, "dtype": spec.dtype_name, **_statistics_of(array)}
    if as_json:
        print(json.dumps(statistics, indent=2, default=str))
    else:
        print("\n".join(f"{key + ':':10} {value}" for key, value in statistics.items()))
    return 0


def _statistics_of(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    numbers = as_numbers(array)
    if numbers is None:
        return {"first": [_text_of(value) for value in array.flat[:5]]}
    if numbers.dtype.kind == "c":
        numbers = np.abs(numbers)
    statistics: dict[str, Any] = {}
    if numbers.dtype.kind == "f":
        finite = numbers[np.isfinite(numbers)]
        statistics |= {"nan": int(np.isnan(numbers).sum()), "infinite": int(np.isinf(numbers).sum())}
    else:
        finite = numbers.reshape(-1)
    if finite.size:
        in_double = finite.astype(np.float64)
        statistics |= {
            "min": finite.min().item(),
            "max": finite.max().item(),
            "mean": float(in_double.mean()),
            "std": float(in_double.std()),
            "zeros": int((finite == 0).sum()),
        }
    # As text, for JSON has no NaN.
    return {**statistics, "first": [str(value) for value in numbers.flat[:5]]}


def _text_of(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
