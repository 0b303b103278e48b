"""Names of TensorFlow 1 and NumPy 1, and their current equivalents."""

from __future__ import annotations

import importlib
import inspect
import operator
from types import ModuleType
from typing import Any

import attrs
import numpy
import tensorflow
import tpk_tensorflow1 as tensorflow1
from tpk_tensorflow1.older import numpy as numpy1

import tpk.layers
import tpk.layers.rnn_cell
from tpk_tensorpack.port.names import NUMPY_EXPRESSIONS, SAME_CALLS

_NOW = {("tensor", "input"): "input"}
"""Current names of arguments that have the same meaning and position."""

_PLACES = (
    ("tpk.layers", tpk.layers),
    ("tpk.layers.rnn_cell", tpk.layers.rnn_cell),
)


@attrs.frozen
class Found:
    """The current equivalent of a name.

    Attributes:
        code: the expression, with ``{tf}`` and ``{np}`` for TensorFlow and NumPy; None if it is unchanged.
        length: the number of attributes of the script's chain that it replaces.
        note: why it does not come from TensorFlow or NumPy.
        mark: why there is no equivalent.
        is_module: whether it is a module.
    """

    code: str | None
    length: int
    note: str = ""
    mark: str = ""
    is_module: bool = False


def tensorflow_name(written: tuple[str, ...], is_v1: bool, arguments: Any = None) -> Found:
    """Return the current equivalent of a TensorFlow name.

    Args:
        written: the parts after ``tensorflow``, such as ``("compat", "v1", "train", "Saver")``.
        is_v1: whether ``{tf}`` is `tf.compat.v1` in the script.
        arguments: the arguments of its call: the number of positional ones and the names of the others; None if it is
            not called or they are unknown.
    """
    skipped = 2 if written[:2] == ("compat", "v1") else 0
    names = written[skipped:]
    value: Any = tensorflow1
    length = 0
    try:
        while length < len(names) and isinstance(value, ModuleType):
            value = _attribute(value, names[length])
            length += 1
    except (AttributeError, ImportError) as error:
        return Found(None, skipped + length + 1, mark=str(error))
    names = names[:length]
    taken = skipped + length
    if isinstance(value, ModuleType):
        if names and _is_real_module(value):
            same = _is_at(tensorflow, names, value)
            return Found(None if same else _v1(names, is_v1), taken)
        return Found(".".join(["tf1", *names]), taken, note="the module itself is used", is_module=True)
    if not is_v1 and (_is_at(tensorflow, names, value) or _is_same_call(".".join(names), arguments)):
        return Found(".".join(["{tf}", *names]) if skipped else None, taken)
    if _is_at(tensorflow.compat.v1, names, value):
        return Found(_v1(names, is_v1), taken)
    for place, module in _PLACES:
        if _is_at(module, names[-1:], value):
            return Found(f"{place}.{names[-1]}", taken)
    if _is_at(tensorflow.compat.v1, ("nn", names[-1]), value):
        return Found(_v1(("nn", names[-1]), is_v1), taken)
    return Found(".".join(["tf1", *names]), taken, note="neither TensorFlow nor tpk has it")


def numpy_name(written: tuple[str, ...]) -> Found:
    """Return the current equivalent of a NumPy name.

    Args:
        written: the parts after ``numpy``.
    """
    name = written[0]
    alias = numpy1._OWN.get(name)
    if isinstance(alias, type):
        return Found(alias.__name__, 1)
    if name in NUMPY_EXPRESSIONS:
        return Found(NUMPY_EXPRESSIONS[name], 1)
    if name in numpy1._OWN:
        return Found(f"numpy1.{name}", 1, note="NumPy no longer has it")
    renamed = numpy1._RENAMED.get(name)
    if renamed is not None and hasattr(numpy, renamed):
        return Found(f"{{np}}.{renamed}", 1)
    return Found(None, 1)


def is_real_module(module: str) -> bool:
    """Return whether TensorFlow or NumPy has this module."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        if module.__name__.startswith("tpk_tensorflow1"):
            try:
                return importlib.import_module(f"{module.__name__}.{name}")
            except ModuleNotFoundError:
                pass
        raise


def _is_real_module(module: ModuleType) -> bool:
    return not module.__name__.startswith("tpk_tensorflow1")


def _v1(names: tuple[str, ...], is_v1: bool) -> str:
    return ".".join(["{tf}", *(() if is_v1 else ("compat", "v1")), *names])


def _is_at(place: Any, names: tuple[str, ...], value: Any) -> bool:
    for name in names:
        try:
            place = getattr(place, name)
        except (AttributeError, ImportError):
            return False
    if place is value:
        return True
    if inspect.isfunction(value) and inspect.isfunction(place):
        return inspect.unwrap(value) is inspect.unwrap(place)
    return type(value) is type(place) and isinstance(value, str | int | float | tensorflow.DType) and value == place


def _is_same_call(name: str, arguments: Any) -> bool:
    """Return whether a call of a TensorFlow 1 function has the same meaning in TensorFlow 2."""
    if name not in SAME_CALLS or arguments is None:
        return False
    by_position, by_name = arguments
    find = operator.attrgetter(name)
    old = list(inspect.signature(find(tensorflow.compat.v1)).parameters)
    new = list(inspect.signature(find(tensorflow)).parameters)
    if any(_NOW.get((before, now), before) != now for before, now in zip(old[:by_position], new, strict=False)):
        return False
    return set(by_name) <= set(new) and {*old[:by_position], *by_name} <= set(SAME_CALLS[name])
