"""NumPy with the aliases that NumPy 1.24 and 2.0 removed.

A script that imports ``numpy`` gets this module; all other modules get NumPy itself. Arrays, dtypes and functions are
NumPy's own.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as _numpy

# Renamed in NumPy 2.0 (https://numpy.org/doc/stable/numpy_2_0_migration_guide.html).
_RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "infty": "inf",
    "PINF": "inf",
    "NaN": "nan",
    "float_": "float64",
    "complex_": "complex128",
    "cfloat": "complex128",
    "singlecomplex": "complex64",
    "longfloat": "longdouble",
    "longcomplex": "clongdouble",
    "clongfloat": "clongdouble",
    "string_": "bytes_",
    "unicode_": "str_",
    "alltrue": "all",
    "sometrue": "any",
    "cumproduct": "cumprod",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "trapz": "trapezoid",
}


def _asfarray(a: Any, dtype: Any = _numpy.float64) -> Any:
    return _numpy.asarray(a, dtype if _numpy.issubdtype(dtype, _numpy.inexact) else _numpy.float64)


def _joining(join: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also joins the arrays of an iterator, as NumPy did before 1.16."""

    @functools.wraps(join)
    def joined(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        return join(list(arrays) if isinstance(arrays, Iterator) else arrays, *args, **kwargs)

    return joined


_OWN: dict[str, Any] = {
    # Deprecated in NumPy 1.20, removed in 1.24 (https://numpy.org/doc/stable/release/1.20.0-notes.html). NumPy 2 uses
    # the names `bool` and `long` for its scalar types, which are equivalent where scripts use them as dtypes.
    **{name: getattr(builtins, name) for name in ("bool", "complex", "float", "int", "object", "str")},
    "long": builtins.int,
    "unicode": builtins.str,
    **{name: _joining(getattr(_numpy, name)) for name in ("column_stack", "dstack", "hstack", "stack", "vstack")},
    "NINF": -_numpy.inf,
    "NZERO": -0.0,
    "PZERO": 0.0,
    "asfarray": _asfarray,
    "in1d": lambda ar1, ar2, **kwargs: _numpy.isin(_numpy.ravel(ar1), ar2, **kwargs),
    "find_common_type": lambda array_types, scalar_types: _numpy.result_type(*array_types, *scalar_types),
    "msort": lambda a: _numpy.sort(a, axis=0),
}


def element(value: Any) -> Any:
    """Return the element of an array that has only one; return any other value unchanged.

    The runner writes ``int(element(x))`` for ``int(x)``, because NumPy 2.5 refuses arrays of shape ``[1]`` there.
    """
    return value.item() if isinstance(value, _numpy.ndarray) and value.size == 1 else value


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return _OWN[name]
    renamed = _RENAMED.get(name)
    # The new name first: NumPy warns about the old one before removing it.
    if renamed is not None and hasattr(_numpy, renamed):
        return getattr(_numpy, renamed)
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*dir(_numpy), *_OWN, *_RENAMED})


__all__ = list(_numpy.__all__)
