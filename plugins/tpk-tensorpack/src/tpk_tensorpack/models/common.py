"""Layer variables as attributes of the layer's output."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorpack.models.registry import disable_layer_logging, layer_register
from tpk_tensorpack.models.tflayer import rename_tflayer_get_variable

__all__ = ["VariableHolder", "disable_layer_logging", "layer_register", "rename_tflayer_get_variable"]

ZEROS = tf.compat.v1.zeros_initializer()
ONES = tf.compat.v1.ones_initializer()


class VariableHolder:
    """Variables as attributes: the output of a layer has them in ``variables``, as in ``conv.variables.W``.

    Args:
        kwargs: the variables.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._vars: dict[str, Any] = {}
        for name, variable in kwargs.items():
            self._add_variable(name, variable)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._add_variable(name, value)
        else:
            object.__setattr__(self, name, value)

    def _add_variable(self, name: str, variable: Any) -> None:
        if name in self._vars:
            raise AttributeError(f"there is already a variable {name!r}")
        self._vars[name] = variable
        object.__setattr__(self, name, variable)

    def all(self) -> list[Any]:
        """Return all variables."""
        return list(self._vars.values())


def with_variables(outputs: Any, **variables: Any) -> Any:
    """Set the variables (except None) as the ``variables`` attribute of `outputs`, and return `outputs`."""
    outputs.variables = VariableHolder(**{name: each for name, each in variables.items() if each is not None})
    return outputs
