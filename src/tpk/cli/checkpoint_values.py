"""``tpk checkpoint show``, ``diff`` and ``to-npz``: the values in checkpoints."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs
import click
import numpy as np

from tpk.checkpoint.stored_values import STORED_BFLOAT16, NpzReader, StoredValues
from tpk.cli.checkpoint_command import errors_of_files
from tpk.cli.framework import examples, json_option, quiet_tensorflow
from tpk.cli.table import print_table
from tpk.errors import CheckpointError
from tpk.text import human_size, nearest

_NOT_VARIABLES = {"_CHECKPOINTABLE_OBJECT_GRAPH"}
"""An internal entry of `tf.train.Checkpoint`."""


@contextmanager
def open_values(path: str) -> Iterator[StoredValues]:
    """Open an ``.npz`` file, or a checkpoint as `find_checkpoint` takes it. Only a checkpoint needs TensorFlow.

    Raises:
        CheckpointError: if it does not exist or is damaged.
    """
    if path.endswith(".npz") and not os.path.isdir(path):
        with NpzReader(path) as values:
            yield values
    else:
        quiet_tensorflow()
        from tpk.checkpoint.reader import CheckpointReader, find_checkpoint

        yield CheckpointReader(find_checkpoint(path))


def as_numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the values of `array` with a dtype of NumPy; None if they are not numbers.

    Other dtypes of TensorFlow, such as bfloat16, become float32 without loss.
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


# show


@click.command(
    epilog=examples("tpk checkpoint show runs/digits/900", "tpk checkpoint show runs/digits --values conv0/W")
)
@click.argument("checkpoint")
@click.option("--values", "name", metavar="NAME", help="Show statistics of the values of one variable instead.")
@json_option
def show(checkpoint: str, name: str | None, as_json: bool) -> int:
    """Show names, shapes, dtypes and sizes of variables."""
    with errors_of_files(), open_values(checkpoint) as values:
        if name is None:
            _show_variables(values, as_json)
        else:
            _show_values(values, name.removesuffix(":0"), as_json)
    return 0


def _show_variables(values: StoredValues, as_json: bool) -> None:
    specs = {name: values.spec(name) for name in sorted(values)}
    elements = sum(int(np.prod(spec.shape, dtype=np.int64)) for spec in specs.values())
    size = sum(spec.num_bytes or 0 for spec in specs.values())
    if as_json:
        variables = [
            {"name": name, "shape": spec.shape, "dtype": spec.dtype_name, "size": spec.num_bytes}
            for name, spec in specs.items()
        ]
        data = {"source": values.source, "variables": variables, "elements": elements, "size": size}
        print(json.dumps(data, indent=2))
        return
    rows = [(name, str(spec.shape), spec.dtype_name, human_size(spec.num_bytes)) for name, spec in specs.items()]
    print_table(("name", "shape", "dtype", "size"), rows)
    print(f"{values.source}: {len(specs):,} variables, {elements:,} elements, {human_size(size)}")


def _show_values(values: StoredValues, name: str, as_json: bool) -> None:
    if name not in values:
        hint = nearest(name, values) or " `tpk checkpoint show` lists all."
        raise CheckpointError(f"{values.source} has no variable {name!r}.{hint}")
    spec = values.spec(name)
    data = {"name": name, "shape": spec.shape, "dtype": spec.dtype_name, **_statistics_of(values[name])}
    if as_json:
        print(json.dumps(data, indent=2, default=str))
    else:
        print("\n".join(f"{key + ':':10} {value}" for key, value in data.items()))


def _statistics_of(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    numbers = as_numbers(array)
    if numbers is None:
        texts = [
            value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for value in array.flat[:5]
        ]
        return {"first": list(map(str, texts))}
    if numbers.dtype.kind == "c":
        numbers = np.abs(numbers)
    statistics: dict[str, Any] = {}
    finite = numbers.reshape(-1)
    if numbers.dtype.kind == "f":
        finite = numbers[np.isfinite(numbers)]
        statistics |= {"nan": int(np.isnan(numbers).sum()), "infinite": int(np.isinf(numbers).sum())}
    if finite.size:
        in_double = finite.astype(np.float64)
        statistics |= {
            "min": finite.min().item(),
            "max": finite.max().item(),
            "mean": float(in_double.mean()),
            "std": float(in_double.std()),
            "zeros": int((finite == 0).sum()),
        }
    # As text, because JSON has no NaN.
    return {**statistics, "first": [str(value) for value in numbers.flat[:5]]}


# diff


@attrs.frozen
class Difference:
    """A variable that differs.

    Attributes:
        name: the name.
        kind: ``"only in first"``, ``"only in second"``, or the first of ``"shape"``, ``"dtype"`` and ``"values"`` that
            differs.
        first: the shape or dtype in the first checkpoint, if `kind` is about it.
        second: the same of the second checkpoint.
        count: the number of elements that differ; None if they cannot be compared.
        max_abs: the largest absolute difference; None if the elements are not numbers, or only one of two is NaN.
    """

    name: str
    kind: str
    first: str = ""
    second: str = ""
    count: int | None = None
    max_abs: float | None = None


@click.command(epilog=examples("tpk checkpoint diff runs/digits/900 weights.npz"))
@click.argument("first")
@click.argument("second")
@json_option
def diff(first: str, second: str, as_json: bool) -> int:
    """Compare two checkpoints.

    As for diff(1), the exit status is 0 if they are equal, 1 if they differ, and 2 if one cannot be read.
    """
    try:
        with errors_of_files(), open_values(first) as a, open_values(second) as b:
            names = sorted({*a, *b})
            differences = [found for name in names if (found := _compare(a, b, name)) is not None]
    except CheckpointError as error:
        print("tpk:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps({"compared": len(names), "differences": [*map(attrs.asdict, differences)]}, indent=2))
        return int(bool(differences))
    if differences:
        rows = [
            (
                each.kind,
                each.name,
                each.first or "-",
                each.second or "-",
                "-" if each.count is None else str(each.count),
                "-" if each.max_abs is None else f"{each.max_abs:.6g}",
            )
            for each in differences
        ]
        print_table(("difference", "name", "first", "second", "elements", "max abs"), rows)
    print(f"{len(names):,} variables, {len(names) - len(differences):,} of them the same in both")
    return int(bool(differences))


def _compare(a: StoredValues, b: StoredValues, name: str) -> Difference | None:
    if name not in b:
        return Difference(name, "only in first", first=str(a.spec(name).shape))
    if name not in a:
        return Difference(name, "only in second", second=str(b.spec(name).shape))
    shapes = a.spec(name).shape, b.spec(name).shape
    if shapes[0] != shapes[1]:
        return Difference(name, "shape", str(shapes[0]), str(shapes[1]))
    count, max_abs = _difference_of_values(a[name], b[name])
    dtypes = a.spec(name).dtype_name, b.spec(name).dtype_name
    if dtypes[0] != dtypes[1]:
        return Difference(name, "dtype", *dtypes, count, max_abs)
    return Difference(name, "values", count=count, max_abs=max_abs) if count else None


def _difference_of_values(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[int, float | None]:
    x, y = as_numbers(a), as_numbers(b)
    if x is None or y is None:
        return int(np.sum(_as_bytes(a) != _as_bytes(b))), None
    differs = (x != y) & ~(np.isnan(x) & np.isnan(y))
    count = int(differs.sum())
    if not count:
        return 0, 0.0
    x, y = x[differs], y[differs]
    if x.dtype == y.dtype and x.dtype.kind in "iu":
        # float64 would lose the difference of large integers; in this order, it cannot wrap below zero.
        return count, float((np.maximum(x, y) - np.minimum(x, y)).view(x.dtype.str.replace("i", "u")).max())
    wide = np.complex128 if "c" in x.dtype.kind + y.dtype.kind else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(x.astype(wide) - y.astype(wide)).max())
    return count, largest if np.isfinite(largest) else None


def _as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return strings of any kind as objects that compare equal if the strings are equal."""
    texts = [value.encode() if isinstance(value, str) else value for value in array.astype(object).flat]
    return np.array([*texts, None], object)[:-1]


# to-npz


@click.command("to-npz", epilog=examples("tpk checkpoint to-npz runs/digits weights.npz --force"))
@click.argument("checkpoint")
@click.argument("out", metavar="OUT.npz", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def to_npz(checkpoint: str, out: Path, force: bool) -> int:
    """Write the variables of a checkpoint to an .npz file.

    A dtype that NumPy lacks, such as bfloat16, is written as float32 without loss; a variable restores it bit by bit.
    """
    if out.suffix != ".npz":
        raise CheckpointError(f"the name {str(out)!r} does not end in .npz. Choose one that does.")
    if out.exists() and not force:
        raise CheckpointError(f"{str(out)!r} exists already. Name another file, or add --force to overwrite it.")
    # All of it or nothing: in a directory beside it, the file has the permissions of any new file.
    with errors_of_files(), open_values(checkpoint) as values, tempfile.TemporaryDirectory(dir=out.parent) as directory:
        names = sorted(set(values) - _NOT_VARIABLES)
        unfinished = Path(directory, out.name)
        with unfinished.open("wb") as file:
            widened = _write_all(values, names, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, out)
    print(f"{out}: {len(names):,} variables, {human_size(out.stat().st_size)}")
    if widened:
        print(f"{widened:,} of them, of dtypes that NumPy lacks, were written as float32 without loss")
    return 0


def _write_all(values: StoredValues, names: list[str], file: IO[bytes]) -> int:
    """Write one variable after another, and return how many changed their dtype."""
    widened = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name in names:
            value = values[name]
            array = as_numbers(value)
            if array is None:
                array = _as_strings(name, value)
            elif array.dtype != value.dtype:
                widened += 1
            # The time in a ZipInfo is fixed, so the same checkpoint gives the same bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return widened


def _as_strings(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return strings with a fixed length, which NumPy stores without pickling."""
    if value.dtype.kind in "SU":
        return value
    texts = value.astype(np.bytes_) if value.dtype.kind == "O" else None
    if texts is None or not np.array_equal(texts.astype(object), value):
        raise CheckpointError(
            f"{name!r}, of dtype {value.dtype}, cannot be stored in an .npz file: NumPy removes zero bytes at the end "
            "of strings, and can store only strings and numbers. Load the checkpoint itself."
        )
    return texts
