"""The input of a deep model: the values of feature columns, next to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1
columns_api = tf.__internal__.feature_column


def dense_features(features: Mapping[str, Any], feature_columns: Iterable[Any]) -> Any:
    """Return a tensor with the values of the columns, in the order of their names.

    All variables are created before all other ops, as in TensorFlow's Estimator, since the number of ops determines
    the seeds of initializers. `tf.compat.v1.feature_column.input_layer` creates them in turn.
    """
    columns = sorted(feature_columns, key=lambda column: column.name)
    if not all(isinstance(column, columns_api.FeatureColumn) for column in columns):
        return v1.feature_column.input_layer(features, columns)
    state = _Variables()
    with v1.variable_scope("input_layer"):
        for column in columns:
            with v1.variable_scope(column.name):
                column.create_state(state)
        cache = columns_api.FeatureTransformationCache(features)
        tensors = []
        for column in columns:
            with v1.name_scope(column.name):
                tensor = column.get_dense_tensor(cache, state)
                size = column.variable_shape.num_elements()
                tensors.append(tf.reshape(tensor, [tf.shape(tensor)[0], size]))
        return tf.concat(tensors, 1)


class _Variables(tf.__internal__.feature_column.StateManager):  # type: ignore[misc]
    """The variables of feature columns, by column and name."""

    def __init__(self) -> None:
        self._variables: dict[Any, Any] = {}

    def create_variable(
        self,
        feature_column: Any,
        name: str,
        shape: Any,
        dtype: Any = None,
        trainable: bool = True,
        use_resource: bool = True,
        initializer: Any = None,
    ) -> Any:
        variable = v1.get_variable(name, shape, dtype or tf.float32, initializer, trainable=trainable)
        self._variables[feature_column, name] = variable
        return variable

    def get_variable(self, feature_column: Any, name: str) -> Any:
        return self._variables[feature_column, name]

    def has_resource(self, feature_column: Any, name: str) -> bool:
        return False

    def add_resource(self, feature_column: Any, name: str, resource: Any) -> None:
        """Ignore a table: TensorFlow's graph keeps it."""
