"""Inline Keras: layers that a tower function uses as they are, without a `KerasModel`; an error names them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from tpk.graph.variables import variable_name

_PACKAGES = ("keras", "tf_keras")
_REMEDY = (
    "Make net = tpk.KerasModel(build) once, outside of the tower function, where build() returns the Keras model or "
    "layer, and call net(inputs) in it."
)


@contextmanager
def record_inline_keras() -> Iterator[list[str]]:
    """Within the context, the names of variables that Keras creates by itself are added to the list that it gives."""
    names: list[str] = []

    def creator(next_creator: Any, **options: Any) -> Any:
        variable = next_creator(**options)
        if is_called_by_keras(sys._getframe(1)):
            names.append(variable_name(variable))
        return variable

    with tf.variable_creator_scope(creator):
        yield names


def broken_rule(names: list[str], tower: str) -> str:
    """Return what is wrong with variables of these names, and what to do about it."""
    return (
        f"Keras created variables by itself in {tower}: {', '.join(names)}. Towers could not share them, their names "
        "would depend on what else has been built, and what their layers update would be lost. Rule: Keras models and "
        f"layers are called by a KerasModel. {_REMEDY}"
    )


def is_called_by_keras(frame: FrameType | None) -> bool:
    """Whether it is Keras, and not somebody whom it has called, that makes a variable in this frame."""
    # Where there are both, the inner one has made it.
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == "tensorflow.python.ops.variable_scope" and frame.f_code.co_name == "get_variable":
            return False
        if module.partition(".")[0] in _PACKAGES:
            return True
        frame = frame.f_back
    return False
