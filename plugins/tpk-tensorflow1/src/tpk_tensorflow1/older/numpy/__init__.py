"""NumPy with the names and arguments that it removed between 1.16 and 2.5.

Arrays and dtypes are NumPy's own, and so are all other functions.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as _numpy

# Renamed in NumPy 2.0 (https://numpy.org/doc/stable/numpy_2_0_migration_guide.html) or earlier.
_RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "infty": "inf",
    "PINF": "inf",
    "NaN": "nan",
    "NAN": "nan",
    "bool8": "bool_",
    "bytes0": "bytes_",
    "int0": "intp",
    "object0": "object_",
    "str0": "str_",
    "uint0": "uintp",
    "void0": "void",
    "float_": "float64",
    "complex_": "complex128",
    "cfloat": "complex128",
    "singlecomplex": "complex64",
    "longfloat": "longdouble",
    "longcomplex": "clongdouble",
    "clongfloat": "clongdouble",
    "string_": "bytes_",
    "unicode_": "str_",
    "typeDict": "sctypeDict",
    "alltrue": "all",
    "sometrue": "any",
    "cumproduct": "cumprod",
    "product": "prod",
    "rank": "ndim",
    "round_": "round",
    "row_stack": "vstack",
    "trapz": "trapezoid",
    "mat": "asmatrix",
    "chararray": "char.chararray",
    "AxisError": "exceptions.AxisError",
    "ComplexWarning": "exceptions.ComplexWarning",
    "RankWarning": "exceptions.RankWarning",
    "VisibleDeprecationWarning": "exceptions.VisibleDeprecationWarning",
}


def _asfarray(a: Any, dtype: Any = _numpy.float64) -> Any:
    return _numpy.asarray(a, dtype if _numpy.issubdtype(dtype, _numpy.inexact) else _numpy.float64)


_OWN: dict[str, Any] = {
    # Deprecated in NumPy 1.20, removed in 1.24 (https://numpy.org/doc/stable/release/1.20.0-notes.html). NumPy 2 uses
    # the names `bool` and `long` for its scalar types, which are equivalent where scripts use them as dtypes.
    **{name: getattr(builtins, name) for name in ("bool", "complex", "float", "int", "object", "str")},
    "long": builtins.int,
    "unicode": builtins.str,
    "NINF": -_numpy.inf,
    "NZERO": -0.0,
    "PZERO": 0.0,
    "alen": lambda a: len(_numpy.atleast_1d(a)),
    "asfarray": _asfarray,
    "asscalar": lambda a: a.item(),
    "in1d": lambda ar1, ar2, **kwargs: _numpy.isin(_numpy.ravel(ar1), ar2, **kwargs),
    "find_common_type": lambda array_types, scalar_types: _numpy.result_type(*array_types, *scalar_types),
    "math": math,
    "msort": lambda a: _numpy.sort(a, axis=0),
}


_IF_NEEDED = False if _numpy.__version__.startswith("1.") else None
"""The value of ``copy`` that copies only if needed."""


def _joining(join: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also joins the arrays of an iterator, as NumPy did before 1.16."""

    @functools.wraps(join)
    def joined(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        return join(list(arrays) if isinstance(arrays, Iterator) else arrays, *args, **kwargs)

    return joined


def _ragged(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes an array of objects if the rows have different shapes, as NumPy did before 1.24."""

    @functools.wraps(make)
    def made(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("copy") is False:
            kwargs["copy"] = _IF_NEEDED
        try:
            return make(a, dtype, *args, **kwargs)
        except ValueError as error:
            if dtype is not None or "inhomogeneous" not in str(error):
                raise
            return make(a, object, *args, **kwargs)

    return made


def _saving(save: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also saves lists of arrays with different shapes."""

    @functools.wraps(save)
    def saved(file: Any, *args: Any, **kwargs: Any) -> Any:
        return save(file, *map(_FUNCTIONS["asanyarray"], args), **kwargs)

    return saved


def _renamed_argument(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if old in kwargs and new in inspect.signature(function).parameters:
            kwargs[new] = kwargs.pop(old)
        return function(*args, **kwargs)

    return called


@functools.wraps(_numpy.fromstring)
def _fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "") -> Any:
    if sep:
        return _numpy.fromstring(string, dtype, count, sep=sep)
    return _numpy.frombuffer(string.encode("latin1") if isinstance(string, str) else string, dtype, count).copy()


@functools.wraps(_numpy.sum)
def _sum(a: Any, *args: Any, **kwargs: Any) -> Any:
    return builtins.sum(a) if isinstance(a, Iterator) else _numpy.sum(a, *args, **kwargs)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _joining(getattr(_numpy, name)) for name in ("column_stack", "dstack", "hstack", "stack", "vstack")},
    **{name: _ragged(getattr(_numpy, name)) for name in ("array", "asanyarray", "asarray")},
    **{name: _saving(getattr(_numpy, name)) for name in ("save", "savez", "savez_compressed")},
    "fromstring": _fromstring,
    "histogram": _renamed_argument(_numpy.histogram, "normed", "density"),
    "reshape": _renamed_argument(_numpy.reshape, "newshape", "shape"),
    "sum": _sum,
}
"""Functions that NumPy still has, but with fewer arguments."""


def __getattr__(name: str) -> Any:
    if name == "lib":
        return importlib.import_module(f"{__name__}.lib")
    if name in _OWN:
        return _OWN[name]
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    # The new name first: NumPy warns about the old one before removing it.
    try:
        return operator.attrgetter(_RENAMED.get(name, name))(_numpy)
    except AttributeError:
        return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*dir(_numpy), *_OWN, *_RENAMED})


__all__ = list(_numpy.__all__)
