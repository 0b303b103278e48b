"""Towers: their contexts, the functions that build them, and handles to access them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import tpk.tower
from tpk.tower import TowerHandles as TowerTensorHandles, get_current_tower_context

__all__ = [
    "BaseTowerContext",
    "PredictTowerContext",
    "TowerContext",
    "TowerFunc",
    "TowerFuncWrapper",
    "TowerTensorHandle",
    "TowerTensorHandles",
    "TrainTowerContext",
    "get_current_tower_context",
]

BaseTowerContext = tpk.tower.TowerContext


class TrainTowerContext(tpk.tower.TrainTowerContext):
    """The context of a training tower; see `tpk.TrainTowerContext`.

    Args:
        ns_name: the name scope; empty for none.
        vs_name: the variable scope; empty for the current one.
        index: the index of the tower.
        total: the number of towers.
    """

    def __init__(self, ns_name: str, vs_name: str = "", index: int = 0, total: int = 1) -> None:
        super().__init__(ns_name=ns_name, vs_name=vs_name, index=index, total=total)

    @property
    def name(self) -> str:
        """The name scope."""
        return self.ns_name


class PredictTowerContext(tpk.tower.PredictTowerContext):
    """The context of an inference tower, which creates its variables unless the current scope reuses them.

    Args:
        ns_name: the name scope; empty for none.
        vs_name: the variable scope; empty for the current one.
    """

    def __init__(self, ns_name: str, vs_name: str = "") -> None:
        creates_variables = not tf.compat.v1.get_variable_scope().reuse
        super().__init__(ns_name=ns_name, vs_name=vs_name, creates_variables=creates_variables)

    @property
    def name(self) -> str:
        """The name scope."""
        return self.ns_name


def TowerContext(tower_name: str, is_training: bool, vs_name: str = "") -> BaseTowerContext:
    """Return the context of a tower, for a single ``with`` statement.

    Args:
        tower_name: the name scope; empty for none.
        is_training: whether it is a training tower. An inference tower creates its variables unless the scope reuses
            them.
        vs_name: the variable scope; empty for the current one.

    Example:
        ```python
        with TowerContext("", is_training=False):
            model.build_graph(image, label)
        ```
    """
    kind = TrainTowerContext if is_training else PredictTowerContext
    return kind(tower_name, vs_name=vs_name)


class TowerTensorHandle(tpk.tower.TowerHandle):
    """A tower that has been built: finds its tensors and variables by their names in it; see `tpk.TowerHandle`.

    Args:
        ctx: the context in which the tower was built.
        inputs: the input tensors.
        outputs: the result of the tower function.
        input_signature: a `tf.TensorSpec` for each input; inputs can also be found by these names.
    """

    def __init__(
        self, ctx: BaseTowerContext, inputs: Sequence[Any], outputs: Any, input_signature: Sequence[Any] | None = None
    ) -> None:
        super().__init__(ctx, inputs, [spec.name for spec in input_signature or ()], outputs)

    @property
    def outputs(self) -> Any:
        """The result of the tower function."""
        return self.output

    def get_collection(self, key: str | None = None, name: str | None = None) -> list[Any]:
        """Return the items that the tower added to a collection.

        Args:
            key: the name of the collection.
            name: the former name of `key`.

        Raises:
            ValueError: neither is given.
        """
        found = name if key is None else key
        if found is None:
            raise ValueError("TowerTensorHandle.get_collection() takes the name of a collection, such as 'update_ops'")
        return super().get_collection(found)


class TowerFunc(tpk.tower.TowerFunc):
    """A function that builds a tower and is called under a `TowerContext`; see `tpk.TowerFunc`.

    Args:
        tower_fn: takes the input tensors and returns the outputs of the tower.
        input_signature: a `tf.TensorSpec` for each input, with its name.

    Example:
        ```python
        tower_func = TowerFunc(model.build_graph, model.get_input_signature())
        with TowerContext("", is_training=True):
            tower_func(*input.get_input_tensors())
        ```
    """

    def __init__(self, tower_fn: Callable[..., Any], input_signature: Sequence[Any]) -> None:
        super().__init__(tower_fn, input_signature)

    def make_handle(self, context: BaseTowerContext, inputs: Sequence[Any], output: Any) -> TowerTensorHandle:
        """Return the handle of a tower that has been built."""
        return TowerTensorHandle(context, inputs, output, self.input_signature)


TowerFuncWrapper = TowerFunc
