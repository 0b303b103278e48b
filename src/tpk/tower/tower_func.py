"""A tower function: takes input tensors and adds one replica of the model to the graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import TowerError, add_note
from tpk.graph.random import COUNTERS
from tpk.graph.scopes import graph_records
from tpk.graph.signature import check_signature
from tpk.graph.variables import name_in_tower, saveable_variables, variable_name
from tpk.tower.context import TowerContext, get_current_tower_context
from tpk.tower.handle import TowerHandle, TowerHandles
from tpk.tower.tower_rules import check_rules

_CREATED = "created_in_towers"

_HINTS = {
    "symbolic": (
        "A tower function builds a graph, in which a tensor has no value yet. Use ops such as tf.where, tf.cond, "
        "tf.maximum and tf.map_fn, or tf.numpy_function for Python code; or fetch the tensor in a callback."
    ),
    "EagerTensor without building a function": (
        "A tensor or variable was created outside the tower function. Create it inside: variables by "
        "tf.compat.v1.get_variable or tpk.layers, and a Keras model by tpk_keras.KerasModel(build)."
    ),
    "Failed to convert elements of": (
        "A size that is None, such as the batch size, is not known while the graph is built. Use "
        "tf.shape(tensor)[0], or -1 in a tf.reshape."
    ),
    "already exists, disallowed": (
        "Two layers or variables have the same name, or the graph has this model already. Give each layer another "
        "name; or, to use the variables again, create it under tf.compat.v1.variable_scope(..., reuse=True). Build "
        "each model in a new graph: `with tf.Graph().as_default():`."
    ),
    "was not created with tf.get_variable()": (
        "This tower shares the variables of the first training tower, which has none of that name. A variable named "
        "after a tensor of a tower, as by tf.train.ExponentialMovingAverage, cannot be shared. Create it "
        "only if tpk.get_current_tower_context().is_main_training_tower, or use tpk.add_moving_summary."
    ),
}
"""Hints by a part of TensorFlow's message."""


class TowerFunc:
    """A tower function, with its signature and a list of the towers that it built.

    Args:
        func: takes the input tensors, builds a tower, returns its output (the cost, in a single-cost training).
        input_signature: a `tf.TensorSpec` for each input, with names.

    Example:
        ```python
        tower_func = tpk.TowerFunc(model.build_graph, model.get_input_signature())
        with tpk.TrainTowerContext():
            cost = tower_func(*input_tensors)
        tower_func.towers[0].get_tensor("logits")
        ```
    """

    def __init__(self, func: Callable[..., Any], input_signature: Sequence[Any]) -> None:
        if not callable(func):
            raise TowerError(f"a tower function must be callable, got {func!r}.")
        self.input_signature = check_signature(input_signature)
        self._func = func
        self._handles: list[TowerHandle] = []

    @property
    def towers(self) -> TowerHandles:
        """The towers built so far, in order."""
        return TowerHandles(self._handles)

    @property
    def input_names(self) -> list[str]:
        """The names in the signature."""
        return [spec.name for spec in self.input_signature]

    def placeholders(self) -> list[Any]:
        """Return a new placeholder for each input, in the default graph."""
        return [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in self.input_signature]

    def __call__(self, *inputs: Any) -> Any:
        """Build a tower under the current `TowerContext`, and return what the function returns.

        Raises:
            TowerError: outside a tower context, if the inputs do not fit the signature, or if a rule is broken.
        """
        context = get_current_tower_context()
        if context is None:
            raise TowerError(
                "a TowerFunc was called outside of a tower. Call it under "
                "`with tpk.TrainTowerContext(...)` or `with tpk.PredictTowerContext(...)`."
            )
        self._check_inputs(inputs)
        self._check_arguments()
        graph = tf.compat.v1.get_default_graph()
        ops_before = len(graph.get_operations())
        scope_name = tf.compat.v1.get_variable_scope().name
        try:
            output = self._func(*inputs)
        except Exception as error:
            message = str(error).lower()
            for hint in [hint for part, hint in _HINTS.items() if part.lower() in message]:
                add_note(error, hint)
            raise
        check_rules(context, scope_name, graph.get_operations()[ops_before:])
        for variable in context.get_collection_in_tower(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
            graph_records(graph, _CREATED).append(name_in_tower(variable_name(variable)))
        self._handles.append(self.make_handle(context, inputs, output))
        return output

    def make_handle(self, context: TowerContext, inputs: Sequence[Any], output: Any) -> TowerHandle:
        """Return the handle of a tower; subclasses may return their own kind.

        Args:
            context: the context in which it was built.
            inputs: its input tensors.
            output: the return value of the function.
        """
        return TowerHandle(context, inputs, self.input_names, output)

    def _check_arguments(self) -> None:
        try:
            signature = inspect.signature(self._func)
        except (TypeError, ValueError):  # Builtins need not have one.
            return
        try:
            signature.bind(*self.input_names)
        except TypeError:
            name = getattr(self._func, "__qualname__", repr(self._func)).rpartition("<locals>.")[2]
            raise TowerError(
                f"{name}{signature} does not take the inputs in the signature: {', '.join(self.input_names)}. Give it "
                "one argument for each tf.TensorSpec, in that order."
            ) from None

    def _check_inputs(self, inputs: Sequence[Any]) -> None:
        if len(inputs) != len(self.input_signature):
            raise TowerError(
                f"the tower function was called with {len(inputs)} inputs, its signature has "
                f"{len(self.input_signature)}: {', '.join(self.input_names)}."
            )
        for spec, tensor in zip(self.input_signature, inputs, strict=True):
            fits = tensor.dtype.base_dtype == spec.dtype and tensor.shape.is_compatible_with(spec.shape)
            if not fits:
                raise TowerError(
                    f"input {spec.name!r} of the tower function should be {spec.dtype.name} of shape {spec.shape}, "
                    f"got {tensor.dtype.name} of shape {tensor.shape} ({tensor.name})."
                )


def variables_beside_model(graph: Any) -> set[str]:
    """Return the names of the saveable variables of `graph` that are not part of the model.

    The model is what tower functions created, except for counters and ``learning_rate``; in a graph without towers, it
    is everything else.
    """
    created = set(graph_records(graph, _CREATED))
    names = map(variable_name, saveable_variables(graph))
    beside = COUNTERS | {"learning_rate"}
    return {name for name in names if name in beside or (created and name_in_tower(name) not in created)}
