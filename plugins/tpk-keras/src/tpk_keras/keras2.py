"""Keras 2 in a tower: `tf.keras` of TensorFlow 2.15, or the package ``tf_keras``.

In a graph, Keras 2 works as with TensorFlow 1: layers keep the losses and updates of their calls. Their variables are
created one by one, under name scopes that tell their place in the model.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk_keras.call import (
    GraphKeys,
    KerasCall,
    check_model,
    check_synchronized,
    draw_seed,
    get_variable,
    in_fresh_thread,
    name_scope,
    unique_names,
    variable_scope,
)


def build_in_tower(keras: Any, build: Callable[[], Any], name: str, inputs: Any) -> KerasCall:
    """Build a model in the default graph; see `tpk_keras.model.Flavour`."""
    graph = tf.compat.v1.get_default_graph()
    ops_before = len(graph.get_operations())
    with name_scope(name) as scope:
        variables = _Variables(name, scope)
        with tf.variable_creator_scope(variables.make), _names_from_the_beginning(keras, graph):
            model = check_model(build(), keras)
    _check_nothing_is_assigned(model, variables.made, graph.get_operations()[ops_before:])
    variables.model_name = str(model.name)
    _check_training_is_handed_on(model)
    return _Keras2Call(model, variables)


def outside(
    keras: Any,
    build: Callable[[], Any],
    inputs: Any,
    weights: Sequence[np.ndarray[Any, Any]] | None,
    use: Callable[[Any], None],
) -> list[np.ndarray[Any, Any] | None]:
    """See `tpk_keras.model.Flavour`. Keras 2 reads and writes its files only in eager mode; here, on the CPU."""

    def build_and_use() -> list[np.ndarray[Any, Any] | None]:
        if not tf.executing_eagerly():
            raise ConfigError(
                f"{keras.__name__} {keras.__version__} reads and writes its files only where TensorFlow executes "
                "eagerly. Leave out tf.compat.v1.disable_eager_execution()."
            )
        with tf.device("/cpu:0"):
            model = check_model(build(), keras)
            if not model.built:
                positional, named = tf.nest.map_structure(_zeros, inputs)
                model(*positional, **named)
            if weights is not None:
                model.set_weights(list(weights))
            use(model)
            return list(model.get_weights())

    return in_fresh_thread(build_and_use)


def _zeros(value: Any) -> Any:
    if not isinstance(value, tf.TensorSpec):
        return value
    return tf.zeros([1 if size is None else size for size in value.shape], value.dtype)


@contextmanager
def _names_from_the_beginning(keras: Any, graph: Any) -> Iterator[None]:
    """Number the names of layers from the beginning, whatever else is in this graph."""
    # Keras has no public function for this that does not affect other graphs.
    counts = sys.modules[f"{keras.__name__}.src.backend"].PER_GRAPH_OBJECT_NAME_UIDS
    before = counts.pop(graph, None)
    try:
        yield
    finally:
        counts.pop(graph, None)
        if before is not None:
            counts[graph] = before


class _Variables:
    """Creates the variables of a model instead of Keras.

    Args:
        name: their scope.
        scope: the name scope of the model, which contains one for each layer.
    """

    def __init__(self, name: str, scope: str) -> None:
        self.scope = scope
        self.model_name = ""
        self.made: list[Any] = []
        self._name = name
        self._around = tf.compat.v1.get_variable_scope()
        self._taken: set[str] = set()
        self._is_making = False

    def make(self, next_creator: Callable[..., Any], **options: Any) -> Any:
        scope = f"{tf.compat.v1.get_default_graph().get_name_scope()}/"
        if self._is_making or not scope.startswith(self.scope):
            return next_creator(**options)
        inside = scope.removeprefix(self.scope).removeprefix(f"{self.model_name}/")
        (own_name,) = unique_names([inside + options["name"]], self._taken)
        initial_value, shape = options["initial_value"], options.get("shape")

        def initialize(shape: Any = None, dtype: Any = None, **_: Any) -> Any:
            return tf.convert_to_tensor(initial_value() if callable(initial_value) else initial_value, dtype)

        self._is_making = True
        try:
            with (
                tf.compat.v1.variable_scope(self._around, auxiliary_name_scope=False),
                variable_scope(self._name),
            ):
                made = get_variable(
                    own_name,
                    shape=initialize().shape if shape is None else shape,
                    dtype=options.get("dtype"),
                    initializer=initialize,
                    trainable=options.get("trainable"),
                    constraint=options.get("constraint"),
                )
        finally:
            self._is_making = False
        if not hasattr(made, "initializer"):
            raise TowerError(
                f"a model of Keras 2 assigns to its variables, but for {own_name!r} a custom getter, such as "
                "freeze_variables or remap_variables, returned a tensor. Call the model outside of it; to freeze a "
                "model, use freeze_variables(stop_gradient=False, skip_collection=True)."
            )
        self.made.append(made)
        return made


class _Keras2Call(KerasCall):
    """A model of Keras 2 in a tower.

    Args:
        model: the model.
        variables: creates its variables.
    """

    def __init__(self, model: Any, variables: _Variables) -> None:
        super().__init__(model)
        self._variables = variables
        self._collected: set[int] = set()

    @property
    def weights(self) -> list[Any]:
        return list(self.model.weights)

    def call(self, inputs: Sequence[Any], arguments: dict[str, Any], training: bool) -> Any:
        if _takes_training(self.model):
            arguments = {**arguments, "training": training}
        _draw_by_steps(self.model)
        with tf.name_scope(self._variables.scope), tf.variable_creator_scope(self._variables.make):
            outputs = self.model(*inputs, **arguments)
            check_synchronized(self.model._flatten_layers())
            # Keras also called the model on its own inputs when it built the model; leave that call out.
            given = [value for value in tf.nest.flatten((inputs, arguments)) if tf.is_tensor(value)]
            updates = [*self.model.get_updates_for(given), *self.model.get_updates_for(None)]
            self.add_losses(self._new(self.model.get_losses_for(given)))
        for update in self._new(updates):
            tf.compat.v1.add_to_collection(GraphKeys.UPDATE_OPS, update)
        return outputs

    def _new(self, items: Sequence[Any]) -> list[Any]:
        new = [item for item in items if id(item) not in self._collected]
        self._collected.update(map(id, new))
        return new

    def losses_of_weights(self) -> list[Any]:
        return list(self.model.get_losses_for(None))


def _draw_by_steps(model: Any) -> None:
    """Give layers seeds of the step, instead of random ops whose state is not in checkpoints."""
    for layer in model._flatten_layers():
        generator = getattr(layer, "_random_generator", None)
        if generator is not None and "make_seed_for_stateless_op" not in vars(generator):
            generator._rng_type, generator._built = "stateless", True
            generator.make_seed_for_stateless_op = functools.partial(draw_seed, "seed")


def _takes_training(layer: Any) -> bool:
    parameters = inspect.signature(layer.call).parameters.values()
    return any(each.name == "training" or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def _check_training_is_handed_on(model: Any) -> None:
    """Check that the model passes `training` on to its layers.

    Raises:
        TowerError: if `call` of the model has no such argument, but a layer has.
    """
    deaf = [layer.name for layer in model._flatten_layers(include_self=False) if _takes_training(layer)]
    if deaf and not _takes_training(model):
        raise TowerError(
            f"the Keras model {model.name!r} has layers that behave differently in training ({', '.join(deaf)}), but "
            "its call() takes no argument `training`. Write call(self, inputs, training=None), and hand it on."
        )


def _check_nothing_is_assigned(model: Any, variables: Sequence[Any], ops: Sequence[Any]) -> None:
    """Check that building the model did not assign values to its variables; in a graph they would be lost.

    Raises:
        ConfigError: if it did.
    """
    initializers = {variable.initializer.name for variable in variables}
    if any(op.type == "AssignVariableOp" and op.name not in initializers for op in ops):
        raise ConfigError(
            f"the function of a KerasModel gives values to the weights of {model.name!r}, e.g. by load_weights or "
            "load_model. In a graph, Keras 2 loses them. Let it return a fresh model, and start the training with "
            "session_init=tpk_keras.KerasRestore(net, path)."
        )
