"""Mistakes in tower functions that TensorFlow words for others: what asks tensors for values, or mixes in eager ones.

While a tower is built, a tensor has no value. Python cannot branch on it, nor loop over it, nor hand it to NumPy.
"""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import TowerError

_LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras", "numpy", "tpk", "contextlib", "functools"})
_LOOPS = (
    "loops over a tensor",
    "Use tf.unstack(tensor) where its first dimension is known, else tf.map_fn or tf.scan",
)
_BRANCHES = (
    "asks whether a tensor is true, as `if`, `while`, `and`, `or`, `not`, `assert`, min and max do",
    "Use tf.where(condition, a, b), tf.cond(condition, lambda: a, lambda: b) or tf.maximum(a, b)",
)
_NUMPY = (
    "Use ops of TensorFlow, such as tf.cast and tf.shape; or tf.py_function and tf.numpy_function for Python code; or "
    "fetch it in a callback"
)
_NEEDS_SIZE = (
    "takes a size for known that is None, such as that of the batch",
    "Use tf.shape(tensor)[0] in place of tensor.shape[0], or -1 in one place of a tf.reshape",
)
_MIXES = "uses something that was made outside of the graph, where TensorFlow executes eagerly"
_EAGER = (
    "Make tensors within the tower function, or give it a NumPy array; make variables in it, by "
    "tf.compat.v1.get_variable or tpk.layers"
)
_KERAS = (
    "Make net = tpk.KerasModel(build) once, outside of the tower function, where build() returns the Keras model or "
    "layer, and call net(inputs) in it"
)
_NEEDS_VALUE = re.compile(
    r"""not ['"]?SymbolicTensor|'SymbolicTensor' object (cannot|does not)|passed to SymbolicTensor|got '<tf.Tensor|"""
    r"Cannot convert a symbolic|numpy\(\) is only available|len is not well defined|Cannot evaluate tensor using `eval"
)


def check_arguments(func: Callable[..., Any], names: Sequence[str]) -> None:
    """Check that a tower function takes as many tensors as its signature has.

    Raises:
        TowerError: if it does not; it shows both.
    """
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # Builtins need not have one.
        return
    try:
        signature.bind(*names)
    except TypeError:
        raise TowerError(
            f"{_name_of(func)}{signature} does not take what the input signature has: {', '.join(names)}. Give it one "
            "argument for each tf.TensorSpec, in that order."
        ) from None


def worded(error: Exception, func: Callable[..., Any]) -> TowerError | None:
    """Return what to raise in place of an error by which a tower function has failed; None if that says enough.

    Args:
        error: what it raised.
        func: the tower function.
    """
    found = _mistake(error)
    if found is None:
        return None
    what, remedy = found
    return TowerError(f"{_name_of(func)} {what}{_place_of(error)}. {remedy}.")


def _mistake(error: Exception) -> tuple[str, str] | None:
    """Return what a tower function did, and what to write."""
    message = str(error)
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError):
        return _LOOPS if "terating" in message else _BRANCHES
    if "EagerTensor without building a function" in message:
        return _MIXES, _KERAS if _runs_keras(error) else _EAGER
    if "None" in message and ("partially known TensorShape" in message or "convert elements of [" in message):
        return _NEEDS_SIZE
    if isinstance(error, AttributeError) and isinstance(getattr(error, "obj", None), tf.Tensor):
        of_array = error.name == "numpy" or hasattr(np.ndarray, str(error.name))
        return (f"asks a tensor for .{error.name}, as if it were an array", _NUMPY) if of_array else None
    if isinstance(error, TypeError | NotImplementedError | ValueError) and _NEEDS_VALUE.search(message):
        return "asks for the value of a tensor", _NUMPY
    return None


def _place_of(error: Exception) -> str:
    """Return where the user's code has failed: the innermost line that is of no library."""
    frames = [each for each in traceback.walk_tb(error.__traceback__) if not _is_of_library(each[0])]
    if not frames:
        return ""
    frame, line = frames[-1]
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    where = f", in line {line} of {PurePath(frame.f_code.co_filename).name}"
    return f"{where}: `{source}`" if source else where


def _is_of_library(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES


def _runs_keras(error: Exception) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(frame.f_globals.get("__name__", "").partition(".")[0] in ("keras", "tf_keras") for frame in frames)


def _name_of(func: Callable[..., Any]) -> str:
    return getattr(func, "__qualname__", repr(func)).rpartition("<locals>.")[2]
