"""The scope of a layer: checks its arguments, names its variables, and collects its losses."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs
import numpy as np
import tensorflow as tf

from tpk.argument_checks import whole
from tpk.errors import ConfigError
from tpk.graph.scopes import check_can_be_collected, check_graph_mode, current_tower
from tpk.text import nearest

Sizes = int | Sequence[int]
"""A size for each spatial axis, such as (height, width) or ``images.shape[1:3]``, or one integer for all axes."""

Function = Callable[[Any], Any]
"""An activation, a regularizer or a constraint."""

VariableOptions = tuple[Any, Function | None, Function | None]
"""The initializer, the regularizer and the constraint of a variable."""

_SET_SHAPE = "Reshape them; where the static shape is unknown, set it with set_shape or in the placeholder."

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

HALF_PRECISION = (tf.float16, tf.bfloat16)
ZEROS = tf.compat.v1.zeros_initializer()
ONES = tf.compat.v1.ones_initializer()


def of_rank(
    layer: Callable[Concatenate[str, int, _Arguments], _Result], spatial_rank: int
) -> Callable[[Callable[[], None]], Callable[_Arguments, _Result]]:
    """Make a decorated function, which has only a name and a docstring, the layer of one spatial rank.

    Args:
        layer: the layer for all ranks; its first arguments are its kind, which is the name of the decorated function,
            and the number of spatial axes.
        spatial_rank: the number of spatial axes.
    """
    signature = inspect.signature(layer)
    signature = signature.replace(parameters=list(signature.parameters.values())[2:])

    def decorate(documented: Callable[[], None]) -> Callable[_Arguments, _Result]:
        @functools.wraps(documented)
        def layer_of_rank(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
            return layer(documented.__name__, spatial_rank, *args, **options)

        vars(layer_of_rank)["__signature__"] = signature
        return layer_of_rank

    return decorate


@contextmanager
def open_layer(
    kind: str, inputs: Any, name: Any = None, reuse: Any = None, *, default_name: str | None = None
) -> Iterator[LayerScope]:
    """Open the variable scope and the name scope of a layer, in which it adds its ops and variables to the graph.

    Args:
        kind: the kind of layer, such as ``"conv2d"``.
        inputs: a dense tensor, or a value that converts to one.
        name: the variable scope: a name, which is used unchanged, or a `tf.compat.v1.VariableScope`.
        reuse: as in `tf.compat.v1.variable_scope`: None, False, True or `tf.compat.v1.AUTO_REUSE`.
        default_name: the variable scope without `name`; None for `kind`. It is made unique in the enclosing scope,
            unless `reuse` is set.

    Yields:
        The open `LayerScope`.

    Raises:
        ConfigError: if TensorFlow executes eagerly, or the inputs do not convert to a dense tensor.
    """
    check_graph_mode(kind)
    try:
        inputs = tf.convert_to_tensor(inputs)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{kind}: the inputs are of type {type(inputs).__name__}, expected a dense tensor or a value that converts "
            "to one. Convert them first, e.g. with tf.sparse.to_dense or RaggedTensor.to_tensor."
        ) from error
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
        kind: the kind of layer, such as ``"conv2d"``.
        inputs: a tensor.
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
        """The static shape of the inputs, with None for unknown sizes; None if the rank is unknown."""
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
        """Create the variable `name` of this layer, or get it if the scope reuses variables.

        The losses of `regularizer` and of the enclosing variable scope's regularizer are collected when the variable is
        created, not when it is reused.

        Args:
            name: the name within the layer, such as ``"kernel"``.
            shape: the static shape.
            initializer: an initializer or its name; None for the one of the enclosing variable scope, or else
                Glorot-uniform.
            regularizer: maps the variable to a scalar loss, or to None for no loss.
            constraint: maps the variable to its projection after an optimizer's update.
            trainable: whether it belongs to the trainable variables.
            dtype: None for the dtype of the inputs.

        Returns:
            The variable, or what a custom getter of the enclosing scope returns for it.

        Raises:
            ConfigError: if a loss is made inside of a `tf.cond`, a `tf.while_loop` or a function.
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
            # A custom getter may return something else, so look for new variables in the graph.
            if regularize and any(id(each) not in existing for each in tf.compat.v1.global_variables()):
                for part in _parts(variable):
                    with tf.name_scope(f"{name}/Regularizer"):
                        loss = regularize(part)
                    _collect_loss(loss)
        return variable

    def bias(self, size: int, use_bias: bool, options: VariableOptions, trainable: bool) -> Any | None:
        """Create or get the variable ``bias``; return None if `use_bias` is false."""
        return self.variable("bias", [size], *options, trainable) if use_bias else None

    @property
    def work_dtype(self) -> Any:
        """The dtype of normalizations and their variables: float32 for 16-bit inputs, whose sums would lose digits."""
        dtype = self.inputs.dtype.base_dtype
        return tf.float32 if dtype in HALF_PRECISION else dtype

    def scale_and_offset(
        self, shape: Sequence[int], gamma: VariableOptions | None, beta: VariableOptions | None, trainable: bool
    ) -> tuple[Any, Any]:
        """Create or get the variables ``gamma`` and ``beta`` of a normalization; None stays None."""
        dtype = self.work_dtype
        return (
            None if gamma is None else self.variable("gamma", shape, *gamma, trainable, dtype),
            None if beta is None else self.variable("beta", shape, *beta, trainable, dtype),
        )

    def statistic(self, name: str, shape: Sequence[int], initializer: Any) -> Any:
        """Create or get a variable of a normalization that no gradient changes, such as a moving average.

        It is never partitioned, because it is assigned as a whole; replicas of a `tf.distribute` strategy read the mean
        over all replicas.
        """
        # The scope object is this layer's own, and statistics are the last variables of a layer.
        self._variable_scope.set_partitioner(None)
        with self._checked_losses(f"the loss of the regularizer of {name}"):
            return tf.compat.v1.get_variable(
                name,
                shape,
                dtype=self.work_dtype,
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
            # As `tf.compat.v1.layers` does it, for the same number of ops.
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
        """Return `value` in lower case, which must be one of `known`."""
        choice = value.lower() if isinstance(value, str) else value
        if choice not in known:
            raise self.error(what, value, " or ".join(map(repr, known)), f"Pass e.g. {what}={known[0]!r}.")
        return choice

    def is_channels_first(self, data_format: str) -> bool:
        """Check that `data_format` is ``"channels_last"`` or ``"channels_first"``; return whether it is the latter."""
        return self.one_of("data_format", data_format, ("channels_last", "channels_first")) == "channels_first"

    def sizes_of(self, what: str, value: Sizes, count: int) -> tuple[int, ...]:
        """Return `count` positive integers, which may be given as whole floats; a single one is repeated."""
        values = value if isinstance(value, Sequence | tf.TensorShape) else [value] * count
        try:
            sizes = tuple(operator.index(whole(each)) for each in values)
        except (TypeError, ValueError):
            sizes = ()
        if len(sizes) != count or min(sizes) < 1:
            expected = f"a positive integer or a tuple of {count}"
            raise self.error(what, value, expected, f"Pass e.g. {what}=3 or {what}={(3,) * count}.")
        return sizes

    def count_of(self, what: str, value: float) -> int:
        """Return a positive integer, which may be given as a whole float such as 32.0."""
        count = whole(value)
        if not isinstance(count, int) or count < 1:
            raise self.error(what, value, "a positive integer", f"Pass e.g. {what}=32.")
        return count

    def number_of(self, what: str, value: Any, example: float) -> float:
        """Return a real number as a float."""
        if not isinstance(value, Real):
            raise self.error(what, value, "a number", f"Pass e.g. {what}={example}.")
        return float(value)

    def number_or_tensor_of(self, what: str, value: Any, example: float, dtype: Any) -> Any:
        """Return a real number as a float, and a scalar tensor or variable as a tensor of `dtype`."""
        if isinstance(value, tf.Variable | np.ndarray) or tf.is_tensor(value):
            tensor = tf.convert_to_tensor(value)
            if tensor.shape.rank in (0, None) and (tensor.dtype.is_floating or tensor.dtype.is_integer):
                return tf.cast(tensor, dtype)
        elif isinstance(value, Real):
            return float(value)
        raise self.error(what, value, "a number or a scalar tensor", f"Pass e.g. {what}={example}.")

    def known_rank(self, at_least: int, axes: str) -> int:
        """Return the rank of the inputs, which must be known; `axes` describes the shape in the error."""
        if self.shape is None or len(self.shape) < at_least:
            expected = f"a shape of rank {at_least} or more: {axes}"
            raise self.error("the shape of the inputs", self.shape, expected, _SET_SHAPE)
        return len(self.shape)

    def known_size(self, axis: int, what: str) -> int:
        """Return the size of the inputs along `axis`, which must be known; `what` describes it in the error."""
        size = None if self.shape is None else self.shape[axis]
        if size is None:
            expected = f"a shape whose axis {axis}, the {what}, is known, because the shape of a variable depends on it"
            raise self.error("the shape of the inputs", self.shape, expected, _SET_SHAPE)
        return size

    def axis_of(self, what: str, axis: Any) -> int:
        """Return `axis` counted from the first one; it may be negative."""
        rank = self.known_rank(1, "(..., features)")
        if not isinstance(axis, Integral) or not -rank <= int(axis) < rank:
            remedy = f"The shape of the inputs is {self.shape}."
            raise self.error(what, axis, f"an integer in [{-rank}, {rank})", remedy)
        return int(axis) % rank

    def axes_of(self, what: str, axes: int | Sequence[int]) -> list[int]:
        """Return one axis, or several different ones, like `axis_of`."""
        found = [self.axis_of(what, axis) for axis in (axes if isinstance(axes, Sequence) else [axes])]
        if not found or len(set(found)) < len(found):
            raise self.error(what, axes, "one axis, or several different ones", f"Pass e.g. {what}=-1.")
        return found

    def require_rank(self, axes: Sequence[str]) -> None:
        """Raise unless the inputs have these axes."""
        if self.shape is None or len(self.shape) != len(axes):
            expected = f"a shape of rank {len(axes)}: ({', '.join(axes)})"
            raise self.error("the shape of the inputs", self.shape, expected, _SET_SHAPE)

    def require_floating(self) -> None:
        """Raise unless the inputs are floating-point or complex numbers."""
        dtype = self.inputs.dtype.base_dtype
        if not (dtype.is_floating or dtype.is_complex):
            remedy = "Cast them, e.g. with tf.cast(x, tf.float32)."
            raise self.error("the dtype of the inputs", dtype.name, "a floating-point type", remedy)

    def activation_of(self, activation: Function | str | None) -> Function | None:
        """Return an activation function, which may be given by its name in `tf.nn`, or None for a linear one."""
        if activation == "linear":
            return None
        if isinstance(activation, str):
            return self._named("activation", activation, tf.nn, "tf.nn")
        return self.function_of("activation", activation)

    def initializer_of(self, what: str, initializer: Any) -> Any:
        """Return an initializer, which may be given by its name in `tf.compat.v1.initializers`, or None."""
        if isinstance(initializer, str):
            return self._named(what, initializer, tf.compat.v1.initializers, "tf.compat.v1.initializers")()
        return self.function_of(what, initializer)

    def function_of(self, what: str, function: Function | None) -> Function | None:
        """Return `function`, which must be callable or None."""
        if function is None or callable(function):
            return function
        raise self.error(what, function, "a function or None", "Pass the function that computes it.")

    def _named(self, what: str, name: str, module: Any, module_name: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = getattr(module, name, None)
        if not callable(found):
            remedy = f"Pass a function.{nearest(name, dir(module))}"
            raise self.error(what, name, f"a function, or the name of one in {module_name}", remedy)
        return found

    def check_can_be_collected(self, what: str, remedy: str) -> None:
        """Raise if the layer is built inside of a `tf.cond`, a `tf.while_loop` or a function."""
        check_can_be_collected(f"{self.kind} layer {self.name!r}: {what}", remedy)

    @contextmanager
    def _checked_losses(self, what: str) -> Iterator[None]:
        """Raise if a loss, also of the enclosing variable scope's regularizer, cannot be collected."""
        key = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
        before = len(tf.compat.v1.get_collection(key))
        yield
        if len(tf.compat.v1.get_collection(key)) > before:
            self.check_can_be_collected(what, "Build the layer outside, or leave out the regularizer.")

    def error(self, what: str, got: object, expected: str, remedy: str) -> ConfigError:
        """Return the error for an invalid argument or input of this layer."""
        problem = f"{what} is {got!r}, expected {expected}"
        return ConfigError(f"{self.kind} layer {self.name!r}: {problem}. {remedy}")


def split_axis(values: Any, axis: int, groups: int) -> Any:
    """Reshape `values` so that `axis`, whose size is known, becomes two axes: the groups, and the members of each."""
    shape, sizes = tf.shape(values), values.shape.as_list()
    before, after = slice(axis), slice(axis + 1, None)
    split = [groups, sizes[axis] // groups]
    values = tf.reshape(values, tf.concat([shape[before], split, shape[after]], 0))
    values.set_shape([*sizes[before], *split, *sizes[after]])
    return values


def _collect_loss(loss: Any) -> None:
    if loss is not None:
        losses = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
        tf.compat.v1.add_to_collection(losses, tf.convert_to_tensor(loss))


def _parts(variable: Any) -> list[Any]:
    """Return the parts of a partitioned variable, or the variable itself."""
    whole = isinstance(variable, tf.Variable) or tf.is_tensor(variable)
    return [variable] if whole else list(variable)


@attrs.frozen
class TrainingFlag:
    """The `training` argument of a layer.

    Attributes:
        static: whether it is training, or None if only the step decides.
        tensor: the boolean tensor or variable that decides in each step.
    """

    static: bool | None
    tensor: Any = None

    @classmethod
    def of(cls, layer: LayerScope, training: Any) -> TrainingFlag:
        """Convert a boolean, 0 or 1, a scalar boolean tensor or variable, or None for whether the tower is trained.

        Raises:
            ConfigError: if it is anything else.
        """
        if training is None:
            tower = current_tower.get()
            return cls(tower is not None and tower.is_training)
        if isinstance(training, np.bool_ | Integral) and training in (0, 1):
            return cls(bool(training))
        is_bool = tf.is_tensor(training) and training.dtype.base_dtype == tf.bool
        if is_bool and training.shape.rank in (0, None):
            static = None if isinstance(training, tf.Variable) else tf.get_static_value(training)
            return cls(None if static is None else bool(static), training)
        raise layer.error(
            "training",
            training,
            "True, False, or a scalar boolean tensor",
            "In a tower function, leave it out: the tower knows whether it is trained.",
        )

    def choose(self, in_training: Callable[[], Any], in_inference: Callable[[], Any]) -> Any:
        """Build one of the two, or a `tf.cond` between them if only the step decides."""
        if self.static is None:
            return tf.cond(self.tensor, in_training, in_inference)
        return in_training() if self.static else in_inference()


def snake_case(name: str) -> str:
    """Return ``basic_lstm_cell`` for ``BasicLSTMCell``, as TensorFlow names the scopes of layers.

    The name of a scope cannot begin with an underscore.
    """
    words = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
    return f"private{words}" if words.startswith("_") else words
