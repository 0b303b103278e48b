"""``tpk checkpoint diff``: how two checkpoints differ."""

from __future__ import annotations

import json
from typing import Any

import attrs
import numpy as np

from tpk.checkpoint.stored_values import StoredValues
from tpk.cli.checkpoint.values import as_numbers, open_values
from tpk.cli.table import print_table


@attrs.frozen
class Difference:
    """How one variable differs.

    Attributes:
        name: its name.
        kind: ``"only in first"``, ``"only in second"``, ``"shape"``, ``"dtype"`` or ``"values"``; that of the first
            of the last three that differs.
        first: shape or dtype in the first checkpoint, as far as `kind` is about it.
        second: the same of the second.
        count: how many elements differ; None if they cannot be compared.
        max_abs: the largest absolute difference of two elements; None if they are no numbers, or a NaN stands against
            a number.
    """

    name: str
    kind: str
    first: str = ""
    second: str = ""
    count: int | None = None
    max_abs: float | None = None


def diff_checkpoints(first: str, second: str, *, as_json: bool) -> int:
    """Write how the checkpoints `first` and `second` differ to stdout.

    Returns:
        The exit status: 1 if they differ.
    """
    with open_values(first) as a, open_values(second) as b:
        names = sorted({*a, *b})
        differences = [difference for name in names if (difference := _compare(a, b, name)) is not None]
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
    both_nan = np.isnan(x) & np.isnan(y)
    differs = (x != y) & ~both_nan
    count = int(differs.sum())
    if not count:
        return 0, 0.0
    x, y = x[differs], y[differs]
    if x.dtype == y.dtype and x.dtype.kind in "iu":
        # Of large whole numbers, float64 would lose the difference; this way round it cannot wrap below zero.
        return count, float((np.maximum(x, y) - np.minimum(x, y)).view(x.dtype.str.replace("i", "u")).max())
    wide = np.complex128 if "c" in x.dtype.kind + y.dtype.kind else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(x.astype(wide) - y.astype(wide)).max())
    return count, largest if np.isfinite(largest) else None


def _as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return strings of any kind as objects that compare equal if the strings do."""
    texts = [value.encode() if isinstance(value, str) else value for value in array.astype(object).flat]
    return np.array([*texts, None], object)[:-1]
