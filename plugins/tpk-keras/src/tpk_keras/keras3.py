"""Keras 3 in a tower.

Models are built with stand-ins instead of variables; once the paths of all variables are known, the variables are
created. Calls happen in a `keras.StatelessScope`, which records the values that are assigned and changes no variable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk_keras.call import (
    GraphKeys,
    KerasCall,
    Result,
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
    with name_scope(name) as scope:

        def build_there() -> Any:
            # In a separate name scope, so that the scopes of the call have the names of the layers.
            with graph.as_default(), tf.name_scope(scope), tf.name_scope("build"):
                return _build(keras, build, inputs)

        model = _in_fresh_thread(keras, build_there)
        check_synchronized(model._flatten_layers())
        _make_variables(model, name)
        return _Keras3Call(keras, model, scope)


def outside(
    keras: Any,
    build: Callable[[], Any],
    inputs: Any,
    weights: Sequence[np.ndarray[Any, Any]] | None,
    use: Callable[[Any], None],
) -> list[np.ndarray[Any, Any] | None]:
    """See `tpk_keras.model.Flavour`. Weights without a value are None. No device is used."""

    def build_and_use() -> list[np.ndarray[Any, Any] | None]:
        with tf.Graph().as_default(), tf.device("/cpu:0"):
            model = _build(keras, build, inputs)
            for variable, value in zip(model.weights, weights or [], strict=weights is not None):
                variable._value.assign(value)
            use(model)
            stand_ins = [variable._value for variable in model.weights]
            return [np.asarray(stand_in) if stand_in.is_assigned else None for stand_in in stand_ins]

    return _in_fresh_thread(keras, build_and_use)


def _in_fresh_thread(keras: Any, func: Callable[[], Result]) -> Result:
    """Return the result of `func` in a thread in which Keras numbers names from the beginning."""
    policy = keras.config.dtype_policy()

    def with_policy() -> Result:
        # The only setting of the user that is thread-local.
        keras.config.set_dtype_policy(policy)
        return func()

    return in_fresh_thread(with_policy)


def _build(keras: Any, build: Callable[[], Any], inputs: Any) -> Any:
    if keras.backend.backend() != "tensorflow":
        raise ConfigError(
            f"Keras has the backend {keras.backend.backend()!r}; in a tower it needs 'tensorflow'. Set the environment "
            "variable KERAS_BACKEND=tensorflow before Keras is imported."
        )
    with tf.variable_creator_scope(lambda _, **options: _StandIn(**options)):
        model = check_model(build(), keras)
        if not model.built:
            positional, named = tf.nest.map_structure(functools.partial(_symbolic, keras), inputs)
            model(*positional, **named)
        for variable in model.weights:
            if not isinstance(variable._value, _StandIn):
                raise ConfigError(
                    f"the function of a KerasModel returned {model.name!r}, which was built before: its variable "
                    f"{variable.path!r} exists already. Let the function build a new model each time; to begin with "
                    "the weights of this one, save them, and load them there or with "
                    "session_init=tpk_keras.KerasRestore(...)."
                )
        return model


def _symbolic(keras: Any, value: Any) -> Any:
    if not (tf.is_tensor(value) or isinstance(value, tf.TensorSpec)):
        return value
    if value.shape.rank is None:
        raise TowerError(f"a Keras model cannot be built for {value!r}, whose rank is unknown. Set its shape.")
    return keras.KerasTensor(tuple(value.shape.as_list()), dtype=value.dtype.name)


def _make_variables(model: Any, name: str) -> None:
    """Create variables for the stand-ins. Random states need no variables, because their seeds come from the step."""
    variables = [*model.weights, *model.metrics_variables]
    names = unique_names((variable.path.removeprefix(f"{model.name}/") for variable in variables), set())
    with variable_scope(name):
        for variable, own_name in zip(variables, names, strict=True):
            made = get_variable(
                own_name,
                shape=tuple(variable.shape),
                dtype=variable.dtype,
                initializer=variable._value.initializer,
                trainable=variable.trainable,
                constraint=variable.constraint,
            )
            # Not public, but all versions of Keras 3 have this attribute.
            variable._value = made


class _Keras3Call(KerasCall):
    """A model of Keras 3 in a tower.

    Args:
        keras: the package.
        model: the model.
        scope: the name scope of its ops.
    """

    def __init__(self, keras: Any, model: Any, scope: str) -> None:
        super().__init__(model)
        self._scope = scope
        self._state = [variable for variable in [*model.weights, *model.metrics_variables] if not variable.trainable]
        self._values = _tower_scope_class(keras)(model)
        self._updates: dict[int, Any] = {}

    @property
    def weights(self) -> list[Any]:
        return [variable._value for variable in self.model.weights]

    def call(self, inputs: Sequence[Any], arguments: dict[str, Any], training: bool) -> Any:
        losses_before = len(self._values.losses)
        with tf.name_scope(self._scope):
            with self._values:
                outputs = self.model(*inputs, **arguments, training=training)
            self._add_updates()
            self.add_losses(self._values.losses[losses_before:])
        return outputs

    def losses_of_weights(self) -> list[Any]:
        variables = [variable for variable in self.model.trainable_variables if variable.regularizer is not None]
        return [variable.regularizer(variable) for variable in variables]

    def _add_updates(self) -> None:
        collection = tf.compat.v1.get_collection_ref(GraphKeys.UPDATE_OPS)
        for variable in self.model.trainable_variables:
            if self._values.assigned(variable) is not None:
                raise TowerError(
                    f"the Keras model {self.model.name!r} assigns its trainable variable {variable.path!r} when it is "
                    "called. In a tower that would race with the optimizer. Do so in a callback between steps."
                )
        for variable in self._state:
            value, made = self._values.assigned(variable), variable._value
            before = self._updates.get(id(variable))
            if value is None or (before is not None and before[0] is value):
                continue
            if before is not None:
                # Another call in this tower continued from the value that the previous call assigned.
                collection[:] = [op for op in collection if op is not before[1]]
            with (
                tf.name_scope("update"),
                tf.control_dependencies(self._values.reads),
                tf.compat.v1.get_default_graph().colocate_with(made.handle),
            ):
                op = made.assign(value, read_value=False)
            collection.append(op)
            self._updates[id(variable)] = (value, op)


@functools.cache
def _tower_scope_class(keras: Any) -> Any:
    """Return the class of a `keras.StatelessScope` with the state of a model in a tower, for all calls there."""

    class TowerScope(keras.StatelessScope):  # type: ignore[misc]
        def __init__(self, model: Any) -> None:
            super().__init__(collect_losses=True, initialize_variables=False)
            weights = [*model.weights, *model.metrics_variables]
            known = {id(variable) for variable in weights}
            self._seeds = {id(variable) for variable in model.variables} - known
            self._state = {id(variable) for variable in weights if not variable.trainable}
            self._trained = known - self._state
            self._read: dict[int, Any] = {}

        @property
        def reads(self) -> list[Any]:
            return list(self._read.values())

        def assigned(self, variable: Any) -> Any:
            return self.state_mapping.get(id(variable))

        def get_current_value(self, variable: Any) -> Any:
            key = id(variable)
            if key in self.state_mapping:
                return self.state_mapping[key]
            if key in self._trained:
                return None
            if key not in self._read:
                # Each is read once, at the beginning, so that updates do not depend on the order of execution.
                if key in self._seeds:
                    self._read[key] = draw_seed(variable.path)
                elif key in self._state:
                    with tf.init_scope():
                        self._read[key] = variable._value.read_value()
                else:
                    raise TowerError(
                        f"a layer uses the variable {variable.path!r}, which is not part of the Keras model in the "
                        "tower. Create it by add_weight; and pass functions such as keras.random.normal a "
                        "keras.random.SeedGenerator that is an attribute of the layer."
                    )
            return self._read[key]

    return TowerScope


class _StandIn:
    """Represents a variable, with its initial value, while a model is built."""

    def __init__(self, initial_value: Any, dtype: Any = None, **options: Any) -> None:
        self.is_assigned = False
        self._value = initial_value
        self._dtype = dtype

    @property
    def shape(self) -> Any:
        return tf.convert_to_tensor(self).shape

    @property
    def dtype(self) -> Any:
        return tf.convert_to_tensor(self).dtype if self._dtype is None else tf.as_dtype(self._dtype)

    def initializer(self, shape: Any, dtype: Any = None, **options: Any) -> Any:
        """Return the initial value in the default graph."""
        return tf.convert_to_tensor(self._value() if callable(self._value) else self._value, dtype)

    def assign(self, value: Any, *args: Any, **options: Any) -> None:
        self._value, self.is_assigned = value, True

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        return self.initializer(None, dtype or self._dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self._value
        if not isinstance(value, np.ndarray):
            value = tf.get_static_value(tf.convert_to_tensor(self))
        if value is None:
            raise ConfigError("a Keras variable has no value outside of a session, only an initializer.")
        return np.asarray(value, dtype)

    # The only operator that Keras applies; everything else it reads as attributes.
    def __mul__(self, other: Any) -> Any:
        return tf.convert_to_tensor(self) * other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and not name.startswith("__"):
            raise AttributeError(name)
        return getattr(tf.convert_to_tensor(self), name)
