"""Handles of towers that were built: what is in them is found by the names that it has inside the tower."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import TowerError
from tpk.graph.variables import variable_name
from tpk.tower.context import TowerContext


class TowerHandle:
    """One tower that was built.

    Names are relative to the tower: ``"conv0/output"`` means ``"tower1/conv0/output:0"`` in the handle of tower 1.

    Args:
        context: the context in which it was built.
        inputs: its input tensors.
        input_names: the name of each input in the signature.
        output: what the tower function returned.
    """

    def __init__(self, context: TowerContext, inputs: Sequence[Any], input_names: Sequence[str], output: Any) -> None:
        self._context = context
        self._graph = tf.compat.v1.get_default_graph()
        self._inputs = list(inputs)
        self._input_names = list(input_names)
        self._output = output

    def __repr__(self) -> str:
        kind = "training" if self.is_training else "inference"
        return f"<{kind} tower {self.index} of {self._context.total}, name scope {self.ns_name!r}>"

    @property
    def ns_name(self) -> str:
        """The name scope of the tower."""
        return self._context.ns_name

    @property
    def vs_name(self) -> str:
        """The variable scope of the tower."""
        return self._context.vs_name

    @property
    def index(self) -> int:
        """Which of the towers of its kind this is."""
        return self._context.index

    @property
    def is_training(self) -> bool:
        """Whether this tower is trained."""
        return self._context.is_training

    @property
    def inputs(self) -> list[Any]:
        """The tensors that the tower function was called with."""
        return list(self._inputs)

    @property
    def output(self) -> Any:
        """What the tower function returned; for a single-cost training, the cost."""
        return self._output

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
        if plain in self._input_names:
            return self._inputs[self._input_names.index(plain)]
        full = f"{self.ns_name}/{plain}" if self.ns_name else plain
        try:
            return self._graph.get_tensor_by_name(full if ":" in full else full + ":0")
        except KeyError:
            raise TowerError(f"the model has no tensor {name!r}.{self._nearest(plain)}") from None

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
        variables = {
            variable_name(variable): variable
            for key in (tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.LOCAL_VARIABLES)
            for variable in self._graph.get_collection(key)
        }
        if self.ns_name and f"{self.ns_name}/{plain}" in variables:
            full = f"{self.ns_name}/{plain}"  # Towers that share variables have those of a metric, say, all the same.
        elif full not in variables and plain in variables and not variables[plain].trainable:
            full = plain  # Towers with a scope of their own may all the same share what is not trained.
        if full not in variables:
            near = difflib.get_close_matches(full, list(variables), n=3, cutoff=0.5)
            hint = f" Nearest: {', '.join(near)}." if near else ""
            raise TowerError(f"the model has no variable {name!r}.{hint}")
        return variables[full]

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """Return the variables with these names inside the tower."""
        return [self.get_variable(name) for name in names]

    def __getitem__(self, name: str) -> Any:
        """Return the tensor with this name inside the tower, or else the variable."""
        try:
            return self.get_tensor(name)
        except TowerError:
            try:
                return self.get_variable(name)
            except TowerError:
                pass
            raise

    def _nearest(self, name: str) -> str:
        prefix = f"{self.ns_name}/" if self.ns_name else ""
        names = [
            op.name.removeprefix(prefix)
            for op in self._graph.get_operations()
            if op.outputs and op.name.startswith(prefix)
        ]
        near = difflib.get_close_matches(name, [*names, *self._input_names], n=3, cutoff=0.5)
        return f" Nearest: {', '.join(near)}." if near else " Give it a name with tf.identity(…, name=…)."


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
        raise TowerError(f"there is no tower {key!r}; towers built so far: {names}.")

    @property
    def main(self) -> TowerHandle | None:
        """The first training tower; None if there is none."""
        return next((handle for handle in self._handles if handle.is_training), None)

    def training(self) -> TowerHandles:
        """Return the training towers."""
        return TowerHandles([handle for handle in self._handles if handle.is_training])

    def inference(self) -> TowerHandles:
        """Return the inference towers."""
        return TowerHandles([handle for handle in self._handles if not handle.is_training])
