"""The scope of one layer: where its variables get their names, and where its losses are collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.collections import check_can_be_collected
from tpk.layers.arguments import Function, activation_of, function_of, initializer_of

ZEROS = tf.compat.v1.zeros_initializer()
ONES = tf.compat.v1.ones_initializer()


@contextmanager
def open_layer(
    kind: str, inputs: Any, name: Any = None, reuse: Any = None, *, default_name: str | None = None
) -> Iterator[LayerScope]:
    """Open the variable scope and the name scope of a layer; all that it adds to the graph belongs inside.

    Args:
        kind: what the layer is, such as ``"conv2d"``.
        inputs: what it is applied to: anything that converts to a dense tensor.
        name: the variable scope: a name that is taken as it stands, or a `tf.compat.v1.VariableScope`.
        reuse: as `tf.compat.v1.variable_scope` takes it: None, False, True or `tf.compat.v1.AUTO_REUSE`.
        default_name: the variable scope if there is no `name`; None means `kind`. It is made unique in the
            enclosing scope, unless `reuse` asks for what is there.

    Yields:
        The open `LayerScope`.

    Raises:
        ConfigError: if TensorFlow executes eagerly, or the inputs are no dense tensor.
    """
    if tf.executing_eagerly():
        raise ConfigError(
            f"{kind} adds to a graph, but TensorFlow executes eagerly here. Build the model inside "
            "`with tf.Graph().as_default():`; a trainer does so when it calls the tower function."
        )
    inputs = _dense_tensor(kind, inputs)
    default_name = default_name or kind
    if not name:
        name = default_name if reuse else None
    with (
        tf.compat.v1.variable_scope(name, default_name=default_name, reuse=reuse) as scope,
        tf.name_scope(scope.original_name_scope),  # another one only if `name` is an existing scope
    ):
        yield LayerScope(kind, inputs, scope)


class LayerScope:
    """An open layer.

    Attributes:
        kind: what the layer is, such as ``"conv2d"``.
        inputs: what it is applied to, a tensor.
    """

    def __init__(self, kind: str, inputs: Any, variable_scope: Any) -> None:
        self.kind = kind
        self.inputs = inputs
        self._variable_scope = variable_scope

    @property
    def name(self) -> str:
        """The full name of the layer's variable scope, such as ``"block1/conv2d_2"``."""
        return str(self._variable_scope.name)

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The static shape of the inputs, with None for unknown sizes; None if not even the rank is known."""
        shape = self.inputs.shape
        return None if shape.rank is None else tuple(shape.as_list())

    def variable(
        self,
        name: str,
        shape: Sequence[int],
        *,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Function | None = None,
        constraint: Function | None = None,
        trainable: bool = True,
    ) -> Any:
        """Create the variable `name` of this layer, or get it if the scope reuses.

        The loss of `regularizer` is collected when the variable is created, and not again when it is reused.
        That of the enclosing variable scope's regularizer is collected besides.

        Args:
            name: the name within the layer, such as ``"kernel"``.
            shape: the static shape.
            dtype: None means that of the inputs.
            initializer: an initializer or its name; None means the enclosing variable scope's, and where that
                has none, Glorot-uniform.
            regularizer: maps the variable to a scalar loss, or to None for no loss.
            constraint: maps the variable to its projection after an optimizer's update.
            trainable: whether it belongs to the trainable variables.

        Returns:
            The variable, or what a custom getter of the enclosing scope makes of it.

        Raises:
            ConfigError: if there is a loss inside of a `tf.cond`, a `tf.while_loop` or a function.
        """
        regularize = function_of(self, f"the regularizer of {name}", regularizer)
        existing = {id(variable) for variable in tf.compat.v1.global_variables()} if regularize else set()
        with self._checked_losses(f"the loss of the regularizer of {name}"):
            variable = tf.compat.v1.get_variable(
                name,
                shape,
                dtype=dtype or self.inputs.dtype.base_dtype,
                initializer=initializer_of(self, f"the initializer of {name}", initializer),
                constraint=function_of(self, f"the constraint of {name}", constraint),
                trainable=bool(trainable),
            )
            # A custom getter may return something else than the variable, so look for what is new in the graph.
            if regularize and any(id(each) not in existing for each in tf.compat.v1.global_variables()):
                for part in _parts(variable):
                    with tf.name_scope(f"{name}/Regularizer"):
                        loss = regularize(part)
                    _collect_loss(loss)
        return variable

    def statistic(self, name: str, shape: Sequence[int], *, dtype: Any, initializer: Any) -> Any:
        """Create or get a variable that no gradient changes, such as a moving average.

        It is never partitioned, as it is assigned to as a whole; replicas of a `tf.distribute` strategy
        average it when they read it.
        """
        # The scope object is this layer's own, and statistics are the last variables of a layer.
        self._variable_scope.set_partitioner(None)
        with self._checked_losses(f"the loss of the regularizer of {name}"):
            return tf.compat.v1.get_variable(
                name,
                shape,
                dtype=dtype,
                initializer=initializer_of(self, f"the initializer of {name}", initializer),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.compat.v1.VariableAggregation.MEAN,
            )

    def activate(
        self, outputs: Any, activation: Function | str | None, activity_regularizer: Function | None = None
    ) -> Any:
        """Apply `activation`, and collect the loss of `activity_regularizer`, divided by the batch size."""
        activate = activation_of(self, activation)
        if activate:
            outputs = activate(outputs)
        regularize = function_of(self, "activity_regularizer", activity_regularizer)
        if regularize:
            with self._checked_losses("the loss of activity_regularizer"):
                with tf.name_scope("ActivityRegularizer"):
                    loss = tf.convert_to_tensor(regularize(outputs))
                    loss /= tf.cast(tf.shape(outputs)[0], loss.dtype)
                _collect_loss(loss)
        return outputs

    def check_can_be_collected(self, what: str, remedy: str) -> None:
        """Refuse to collect `what` where the layer is built inside of a `tf.cond`, a `tf.while_loop` or a function."""
        check_can_be_collected(f"{self.kind} layer {self.name!r}: {what}", remedy)

    @contextmanager
    def _checked_losses(self, what: str) -> Iterator[None]:
        """Refuse losses, also those of the enclosing variable scope's regularizer, that cannot be collected."""
        key = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
        before = len(tf.compat.v1.get_collection(key))
        yield
        if len(tf.compat.v1.get_collection(key)) > before:
            self.check_can_be_collected(what, "Build the layer outside, or leave out the regularizer.")

    def error(self, what: str, got: object, expected: str, remedy: str) -> ConfigError:
        """Return the error that says that `what` of this layer is not what it must be."""
        problem = f"{what} is {got!r}, expected {expected}"
        return ConfigError(f"{self.kind} layer {self.name!r}: {problem}. {remedy}")


def _collect_loss(loss: Any) -> None:
    if loss is not None:
        losses = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
        tf.compat.v1.add_to_collection(losses, tf.convert_to_tensor(loss))


def _parts(variable: Any) -> list[Any]:
    """The variables of which a partitioned variable consists; anything else stands for itself."""
    whole = isinstance(variable, tf.Variable) or tf.is_tensor(variable)
    return [variable] if whole else list(variable)


def _dense_tensor(kind: str, inputs: Any) -> Any:
    try:
        return tf.convert_to_tensor(inputs)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{kind}: the inputs are of type {type(inputs).__name__}, expected a dense tensor or what "
            "converts to one. Convert them first, e.g. with tf.sparse.to_dense or RaggedTensor.to_tensor."
        ) from error
