"""Layer scope: what one layer is called with, where its variables get their names, where its losses are collected."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs
import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.scopes import check_can_be_collected, current_tower

Sizes = int | Sequence[int]
"""A size for each spatial axis, such as (height, width) or ``images.shape[1:3]``, or one integer for all of them."""

Function = Callable[[Any], Any]
"""An activation, a regularizer or a constraint."""

_ACTIVATIONS = (
    *("elu", "gelu", "leaky_relu", "log_softmax", "relu", "relu6", "selu", "sigmoid", "silu"),
    *("softmax", "softplus", "softsign", "swish", "tanh"),
)
_INITIALIZERS = (
    *("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity", "lecun_normal"),
    *("lecun_uniform", "ones", "orthogonal", "zeros"),
)
_SET_SHAPE = "Reshape them; where the static shape is unknown, set it with set_shape or in the placeholder."

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

ZEROS = tf.compat.v1.zeros_initializer()
ONES = tf.compat.v1.ones_initializer()


def of_rank(
    layer: Callable[Concatenate[int, _Arguments], _Result], spatial_rank: int
) -> Callable[[Callable[[], None]], Callable[_Arguments, _Result]]:
    """Make a decorated function, which has only a name and a docstring, the layer of one spatial rank.

    Args:
        layer: the layer for all ranks; its first argument is the number of spatial axes.
        spatial_rank: the number of spatial axes.
    """
    signature = inspect.signature(layer)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    def decorate(documented: Callable[[], None]) -> Callable[_Arguments, _Result]:
        @functools.wraps(documented)
        def layer_of_rank(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
            return layer(spatial_rank, *args, **options)

        vars(layer_of_rank)["__signature__"] = signature
        return layer_of_rank

    return decorate


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
        initializer: Any = None,
        regularizer: Function | None = None,
        constraint: Function | None = None,
        trainable: bool = True,
        dtype: Any = None,
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
        regularize = self.function_of(f"the regularizer of {name}", regularizer)
        existing = {id(variable) for variable in tf.compat.v1.global_variables()} if regularize else set()
        with self._checked_losses(f"the loss of the regularizer of {name}"):
            variable = tf.compat.v1.get_variable(
                name,
                shape,
                dtype=dtype or self.inputs.dtype.base_dtype,
                initializer=self.initializer_of(f"the initializer of {name}", initializer),
                constraint=self.function_of(f"the constraint of {name}", constraint),
                trainable=bool(trainable),
            )
            # A custom getter may return something else than the variable, so look for what is new in the graph.
            if regularize and any(id(each) not in existing for each in tf.compat.v1.global_variables()):
                for part in _parts(variable):
                    with tf.name_scope(f"{name}/Regularizer"):
                        loss = regularize(part)
                    _collect_loss(loss)
        return variable

    def bias(
        self,
        size: int,
        use_bias: bool,
        initializer: Any,
        regularizer: Function | None,
        constraint: Function | None,
        trainable: bool,
    ) -> Any | None:
        """Create or get the variable ``bias``; return None if `use_bias` is false."""
        return self.variable("bias", [size], initializer, regularizer, constraint, trainable) if use_bias else None

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
                initializer=self.initializer_of(f"the initializer of {name}", initializer),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.compat.v1.VariableAggregation.MEAN,
            )

    def finish(
        self,
        outputs: Any,
        activation: Function | str | None,
        activity_regularizer: Function | None = None,
        bias: Any | None = None,
        tensor_format: str | None = None,
    ) -> Any:
        """Add `bias`, apply `activation`, and collect the loss of `activity_regularizer`, divided by the batch size."""
        if bias is not None and tensor_format == "NCW":
            # `tf.compat.v1.layers` adds no other way to sequences with channels first, and so makes as many ops.
            outputs += tf.reshape(bias, [1, bias.shape[0], 1])
        elif bias is not None:
            outputs = tf.nn.bias_add(outputs, bias, data_format=tensor_format)
        activate = self.activation_of(activation)
        if activate:
            outputs = activate(outputs)
        regularize = self.function_of("activity_regularizer", activity_regularizer)
        if regularize:
            with self._checked_losses("the loss of activity_regularizer"):
                with tf.name_scope("ActivityRegularizer"):
                    loss = tf.convert_to_tensor(regularize(outputs))
                    loss /= tf.cast(tf.shape(outputs)[0], loss.dtype)
                _collect_loss(loss)
        return outputs

    def one_of(self, what: str, value: str, known: Sequence[str]) -> str:
        """Return the one of `known` that `value` is, in whatever case."""
        choice = value.lower() if isinstance(value, str) else value
        if choice not in known:
            raise self.error(what, value, " or ".join(map(repr, known)), f"Pass e.g. {what}={known[0]!r}.")
        return choice

    def is_channels_first(self, data_format: str) -> bool:
        """Take ``"channels_last"`` or ``"channels_first"``."""
        return self.one_of("data_format", data_format, ("channels_last", "channels_first")) == "channels_first"

    def sizes_of(self, what: str, value: Sizes, count: int) -> tuple[int, ...]:
        """Return `count` positive integers, which may be given as one for all."""
        try:
            sizes = tuple(
                map(operator.index, value if isinstance(value, Sequence | tf.TensorShape) else [value] * count)
            )
        except (TypeError, ValueError):
            sizes = ()
        if len(sizes) != count or min(sizes) < 1:
            example = ", ".join(["3"] * count) + ("," if count == 1 else "")
            expected = f"a positive integer or a {('tuple of one', 'pair of them', 'triple of them')[count - 1]}"
            raise self.error(what, value, expected, f"Pass e.g. {what}=3 or {what}=({example}).")
        return sizes

    def count_of(self, what: str, value: float) -> int:
        """Return a positive integer; a float can stand for it if nothing is lost, as 32.0 for 32."""
        try:
            count = int(value) if int(value) == value else 0
        except (TypeError, ValueError, OverflowError):
            count = 0
        if count < 1:
            raise self.error(what, value, "a positive integer", f"Pass e.g. {what}=32.")
        return count

    def number_of(self, what: str, value: Any, example: float) -> float:
        """Return a real number, one of NumPy's too, as a float."""
        if not isinstance(value, Real):
            raise self.error(what, value, "a number", f"Pass e.g. {what}={example}.")
        return float(value)

    def number_or_tensor_of(self, what: str, value: Any, example: float, dtype: Any) -> Any:
        """Return a real number as a float, and a scalar tensor or variable of any real type as a tensor of `dtype`."""
        if isinstance(value, tf.Variable | np.ndarray) or tf.is_tensor(value):
            tensor = tf.convert_to_tensor(value)
            if tensor.shape.rank in (0, None) and (tensor.dtype.is_floating or tensor.dtype.is_integer):
                return tf.cast(tensor, dtype)
        elif isinstance(value, Real):
            return float(value)
        raise self.error(what, value, "a number or a scalar tensor", f"Pass e.g. {what}={example}.")

    def known_rank(self, at_least: int, axes: str) -> int:
        """Return the rank of the inputs, which must be known; `axes` names them in the error."""
        if self.shape is None or len(self.shape) < at_least:
            expected = f"a shape of rank {at_least} or more: {axes}"
            raise self.error("the shape of the inputs", self.shape, expected, _SET_SHAPE)
        return len(self.shape)

    def known_size(self, axis: int, what: str) -> int:
        """Return the size of the inputs along `axis`, which must be known, as shapes of variables depend on it."""
        size = None if self.shape is None else self.shape[axis]
        if size is None:
            expected = f"a shape whose axis {axis}, the {what}, is known, as that of a variable depends on it"
            raise self.error("the shape of the inputs", self.shape, expected, _SET_SHAPE)
        return size

    def axis_of(self, what: str, axis: Any) -> int:
        """Return `axis`, which may count from the last one, as counted from the first."""
        rank = self.known_rank(1, "(..., features)")
        if not isinstance(axis, Integral) or not -rank <= int(axis) < rank:
            remedy = f"The shape of the inputs is {self.shape}."
            raise self.error(what, axis, f"an integer in [{-rank}, {rank})", remedy)
        return int(axis) % rank

    def axes_of(self, what: str, axes: int | Sequence[int]) -> list[int]:
        """The same for one axis, or several different ones."""
        found = [self.axis_of(what, axis) for axis in (axes if isinstance(axes, Sequence) else [axes])]
        if not found or len(set(found)) < len(found):
            raise self.error(what, axes, "one axis, or several different ones", f"Pass e.g. {what}=-1.")
        return found

    def require_rank(self, axes: Sequence[str]) -> None:
        """Refuse inputs that do not have just these axes."""
        if self.shape is None or len(self.shape) != len(axes):
            expected = f"a shape of rank {len(axes)}: ({', '.join(axes)})"
            raise self.error("the shape of the inputs", self.shape, expected, _SET_SHAPE)

    def require_floating(self) -> None:
        """Refuse inputs that are no floating-point or complex numbers."""
        dtype = self.inputs.dtype.base_dtype
        if not (dtype.is_floating or dtype.is_complex):
            remedy = "Cast them, e.g. with tf.cast(x, tf.float32)."
            raise self.error("the dtype of the inputs", dtype.name, "a floating-point type", remedy)

    def activation_of(self, activation: Function | str | None) -> Function | None:
        """Return an activation function, or None for a linear one; it may be given by its name in `tf.nn`."""
        if activation == "linear":
            return None
        if isinstance(activation, str):
            return self._named("activation", activation, _ACTIVATIONS, tf.nn)
        return self.function_of("activation", activation)

    def initializer_of(self, what: str, initializer: Any) -> Any:
        """Return an initializer or None; it may be given by its name in `tf.compat.v1.initializers`."""
        if isinstance(initializer, str):
            return self._named(what, initializer, _INITIALIZERS, tf.compat.v1.initializers)()
        return self.function_of(what, initializer)

    def function_of(self, what: str, function: Function | None) -> Function | None:
        """Return `function` if it can be called or is None."""
        if function is None or callable(function):
            return function
        raise self.error(what, function, "a function or None", "Pass the function that computes it.")

    def _named(self, what: str, name: str, names: Sequence[str], module: Any) -> Callable[..., Any]:
        if name not in names:
            raise self.error(what, name, f"a function or one of {', '.join(names)}", "Pass the function itself.")
        found: Callable[..., Any] = getattr(module, name)
        return found

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


@attrs.frozen
class TrainingFlag:
    """The `training` argument of a layer.

    Attributes:
        static: whether it is training, if that is known when the graph is built, else None.
        tensor: what decides in each step, if it is not: a boolean tensor or variable.
    """

    static: bool | None
    tensor: Any = None

    @classmethod
    def of(cls, layer: LayerScope, training: Any) -> TrainingFlag:
        """Take a boolean, 0 or 1, a scalar boolean tensor or variable, or None for what the tower is built for.

        Raises:
            ConfigError: if it is anything else.
        """
        if training is None:
            tower = current_tower.get()
            return cls(tower is not None and tower.is_training)
        if isinstance(training, np.bool_ | Integral) and training in (0, 1):
            return cls(bool(training))
        if isinstance(training, tf.Variable) and _is_scalar_bool(training):
            return cls(None, training)
        if tf.is_tensor(training) and _is_scalar_bool(training):
            static = tf.get_static_value(training)
            return cls(None if static is None else bool(static), training)
        raise layer.error(
            "training",
            training,
            "True, False, or a scalar boolean tensor",
            "In a tower function, leave it out: the tower says whether it is trained.",
        )

    def choose(self, in_training: Callable[[], Any], in_inference: Callable[[], Any]) -> Any:
        """Build one of the two, or a `tf.cond` between them if only the step can tell."""
        if self.static is None:
            return tf.cond(self.tensor, in_training, in_inference)
        return in_training() if self.static else in_inference()


def _is_scalar_bool(tensor: Any) -> bool:
    return bool(tensor.dtype.base_dtype == tf.bool and tensor.shape.rank in (0, None))
