"""What layers have in common: their variables as attributes of what they return."""

from __future__ import annotations

from typing import Any

from tpk_tensorpack.models.registry import disable_layer_logging, layer_register
from tpk_tensorpack.models.tflayer import rename_tflayer_get_variable

__all__ = ["VariableHolder", "disable_layer_logging", "layer_register", "rename_tflayer_get_variable"]


class VariableHolder:
    """Variables, each an attribute: what a layer returns has them in ``variables``, as ``conv.variables.W``.

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
            raise AttributeError(f"there is a variable {name!r} already")
        self._vars[name] = variable
        object.__setattr__(self, name, variable)

    def all(self) -> list[Any]:
        """Return all of them."""
        return list(self._vars.values())


def with_variables(outputs: Any, **variables: Any) -> Any:
    """Return `outputs`, which have these variables (but for None) as their ``variables``."""
    outputs.variables = VariableHolder(**{name: each for name, each in variables.items() if each is not None})
    return outputs
