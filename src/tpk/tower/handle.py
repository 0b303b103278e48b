"""Handles of towers: they find tensors and variables by their names inside the tower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import TowerError
from tpk.graph.variables import variable_name
from tpk.text import nearest
from tpk.tower.context import TowerContext


class TowerHandle:
    """One tower that was built.

    Names are relative to the tower: ``"conv0/output"`` means ``"tower1/conv0/output:0"`` in the handle of tower 1.

    Args:
        context: the context in which it was built.
        inputs: its input tensors.
        input_names: the name of each input in the signature.
        output: the return value of the tower function.

    Attributes:
        ns_name: the name scope of the tower.
        vs_name: the variable scope of the tower.
        index: the index among the towers of its kind.
        is_training: whether this is a training tower.
        inputs: the tensors that the tower function was called with.
        output: the return value of the tower function; for a single-cost trainer, the cost.
    """

    def __init__(self, context: TowerContext, inputs: Sequence[Any], input_names: Sequence[str], output: Any) -> None:
        self.ns_name = context.ns_name
        self.vs_name = context.vs_name
        self.index = context.index
        self.is_training = context.is_training
        self.inputs = list(inputs)
        self.output = output
        self._context = context
        self._graph = tf.compat.v1.get_default_graph()
        self._input_names = list(input_names)

    def __repr__(self) -> str:
        kind = "training" if self.is_training else "inference"
        return f"<{kind} tower {self.index} of {self._context.total}, name scope {self.ns_name!r}>"

    def get_collection(self, key: str) -> list[Any]:
        """Return what the tower added to the collection `key`."""
        return self._context.get_collection_in_tower(key)

    def get_tensor(self, name: str) -> Any:
        """Return the tensor with this name inside the tower.

        Args:
            name: the name of an input in the signature, or of a tensor, with or without ``:0``.

        Raises:
            TowerError: if the tower has no such tensor; the message lists the nearest names.
        """
        plain = name.removesuffix(":0")
        tensor = self._find_tensor(plain)
        if tensor is None:
            prefix = f"{self.ns_name}/" if self.ns_name else ""
            operations = [op.name for op in self._graph.get_operations() if op.outputs and op.name.startswith(prefix)]
            known = [*(each.removeprefix(prefix) for each in operations), *self._input_names]
            hint = nearest(plain, known) or " Give it a name with tf.identity(…, name=…)."
            raise TowerError(f"the model has no tensor {name!r}.{hint}")
        return tensor

    def get_tensors(self, names: Sequence[str]) -> list[Any]:
        """Return the tensors with these names inside the tower."""
        return [self.get_tensor(name) for name in names]

    def get_variable(self, name: str) -> Any:
        """Return the variable with this name inside the tower.

        Raises:
            TowerError: if the tower uses no such variable; the message lists the nearest names.
        """
        plain = name.removesuffix(":0")
        full = f"{self.vs_name}/{plain}" if self.vs_name else plain
        variables = self._variables()
        if self.ns_name and f"{self.ns_name}/{plain}" in variables:
            # Local variables, such as a metric's, are separate even in towers that share variables.
            full = f"{self.ns_name}/{plain}"
        elif full not in variables and plain in variables and not variables[plain].trainable:
            full = plain  # Towers with a separate scope may still share variables that are not trained.
        if full not in variables:
            raise TowerError(f"the model has no variable {name!r}.{nearest(full, variables)}")
        return variables[full]

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """Return the variables with these names inside the tower."""
        return [self.get_variable(name) for name in names]

    def __getitem__(self, name: str) -> Any:
        """Return the tensor with this name inside the tower, or else the variable."""
        if self._find_tensor(name.removesuffix(":0")) is None:
            try:
                return self.get_variable(name)
            except TowerError:
                pass  # The message about tensors helps more.
        return self.get_tensor(name)

    def _find_tensor(self, name: str) -> Any:
        if name in self._input_names:
            return self.inputs[self._input_names.index(name)]
        full = f"{self.ns_name}/{name}" if self.ns_name else name
        try:
            return self._graph.get_tensor_by_name(full if ":" in full else full + ":0")
        except KeyError:
            return None

    def _variables(self) -> dict[str, Any]:
        keys = (tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.LOCAL_VARIABLES)
        return {variable_name(each): each for key in keys for each in self._graph.get_collection(key)}


class TowerHandles(Sequence[TowerHandle]):
    """The towers that were built, in order.

    Example:
        ```python
        trainer.towers.training()[0].get_tensor("cost")
        trainer.towers["InferenceTower"].output
        ```
    """

    def __init__(self, handles: Sequence[TowerHandle] = ()) -> None:
        self._handles = list(handles)

    def __len__(self) -> int:
        return len(self._handles)

    def __repr__(self) -> str:
        return repr(self._handles)

    def __getitem__(self, key: Any) -> Any:
        """Return a tower by its position, or by its name scope."""
        if isinstance(key, slice):
            return TowerHandles(self._handles[key])
        if isinstance(key, int):
            return self._handles[key]
        for handle in self._handles:
            if handle.ns_name == key:
                return handle
        names = ", ".join(repr(handle.ns_name) for handle in self._handles) or "none"
        raise TowerError(f"no tower {key!r}; towers built so far: {names}.")

    @property
    def main(self) -> TowerHandle | None:
        """The first training tower, or None."""
        return next((handle for handle in self._handles if handle.is_training), None)

    def training(self) -> TowerHandles:
        """Return the training towers."""
        return TowerHandles([handle for handle in self._handles if handle.is_training])

    def inference(self) -> TowerHandles:
        """Return the inference towers."""
        return TowerHandles([handle for handle in self._handles if not handle.is_training])
