"""`tf.layers`: the functions of `tpk.layers`, and classes whose objects can be called several times."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf
from tensorflow.python.keras.engine import input_spec

import tpk
from tpk import layers
from tpk.graph import added_since, collection_sizes
from tpk.layers.layer_scope import snake_case
from tpk_tensorflow1.missing import finder_in, own_names

v1 = tf.compat.v1

Function = Callable[[Any], Any]


def batch_normalization(inputs: Any, *args: Any, training: Any = False, **kwargs: Any) -> Any:
    """Normalize each feature; see `tpk.layers.batch_normalization`, where `training` follows the tower by default."""
    return layers.batch_normalization(inputs, *args, training=training, **kwargs)


def dropout(
    inputs: Any,
    rate: Any = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    name: str | None = None,
) -> Any:
    """Set random inputs to zero if `training`, and scale up the others.

    In a tower, the layer is `tpk.layers.dropout`, which draws by the global step, so a resumed training run repeats it.
    Anywhere else, it uses TensorFlow's own random ops, because a loop of a script may not count steps.

    Args:
        inputs: a tensor.
        rate: the fraction to drop.
        noise_shape: the shape of the noise, by default the shape of the inputs.
        seed: the seed of the op.
        training: a boolean, or a boolean tensor.
        name: the name scope.
    """
    if tpk.get_current_tower_context() is not None:
        return layers.dropout(inputs, rate, noise_shape, seed, training, name)

    def drop() -> Any:
        return v1.nn.dropout(inputs, noise_shape=noise_shape, seed=seed, rate=rate)

    with v1.name_scope(name, "dropout"):
        known = tf.get_static_value(training) if tf.is_tensor(training) else training
        if known is None:
            return v1.cond(training, drop, lambda: tf.identity(inputs))
        return drop() if known else tf.identity(inputs)


_OF_A_CALL = ("inputs", "training", "reuse", "sync")
"""Arguments that only the functions have."""

_FURTHER = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)


class Layer:
    """A layer that can be called several times and uses the variables of its first call each time.

    A subclass creates its variables in `build` and computes its outputs in `call`.

    Args:
        trainable: whether its variables are trained.
        name: the name of its variable scope, with a number appended if the name is in use; by default derived from the
            class name.
        dtype: the dtype of the variables, and of inputs that are not tensors; by default the dtype of the inputs.
        _reuse: whether to reuse existing variables.
        _scope: the variable scope, instead of `name`.

    Example:
        ```python
        class Scale(tf.layers.Layer):
            def build(self, input_shape):
                self.scale = self.add_variable("scale", [input_shape[-1]])

            def call(self, inputs):
                return inputs * self.scale
        ```
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        *,
        _reuse: Any = None,
        _scope: Any = None,
    ) -> None:
        self.trainable = trainable
        self.built = False
        self.graph: Any = None
        self.losses: list[Any] = []
        self.updates: list[Any] = []
        self.name = name or snake_case(type(self).__name__)
        self._dtype = None if dtype is None else tf.as_dtype(dtype)
        self._reuse = _reuse
        self._given_scope = _scope
        self._scope: Any = None
        self._by_name: dict[str, Any] = {}

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply the layer.

        Args:
            inputs: a tensor, or another structure that `call` accepts.
            args: further arguments for `call`.
            kwargs: further arguments for `call`; ``scope`` is the variable scope and applies to the first call.
        """
        graph = v1.get_default_graph()
        if self.graph is not None and self.graph is not graph:
            raise ValueError(f"the layer {self.name!r} has its variables in another graph; create one for this graph")
        inputs = tf.nest.map_structure(lambda each: tf.convert_to_tensor(each, dtype=self._dtype), inputs)
        scope = kwargs.pop("scope", None)
        is_first = self._scope is None
        if is_first:
            self.graph = graph
            given = scope if scope is not None else self._given_scope
            if given is None and self._reuse:
                given = self.name
            with v1.variable_scope(
                given, default_name=self.name, reuse=self._reuse, custom_getter=self._get_variable
            ) as self._scope:
                pass
        sizes = collection_sizes()
        with (
            v1.variable_scope(
                self._scope, reuse=self._reuse if is_first or not self.built else True, auxiliary_name_scope=False
            ),
            tf.name_scope(self._scope.original_name_scope),
        ):
            if not self.built:
                self.build(tf.nest.map_structure(lambda each: each.shape, inputs))
                self.built = True
            outputs = self.call(inputs, *args, **kwargs)
        added = added_since(sizes)
        self.losses += added.get(v1.GraphKeys.REGULARIZATION_LOSSES, [])
        self.updates += added.get(v1.GraphKeys.UPDATE_OPS, [])
        return outputs

    apply = __call__

    def build(self, input_shape: Any) -> None:
        """Create the variables; called before the first `call`, in the variable scope of the layer."""

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, in the variable scope of the layer. Subclasses override it."""
        return inputs

    def add_variable(
        self, name: str, shape: Any, dtype: Any = None, *args: Any, trainable: bool = True, **kwargs: Any
    ) -> Any:
        """Create a variable of the layer with `tf.get_variable`."""
        shape, dtype = tf.TensorShape(shape), dtype or self._dtype or tf.float32
        return v1.get_variable(name, shape, dtype, *args, trainable=trainable and self.trainable, **kwargs)

    add_weight = add_variable

    @property
    def scope_name(self) -> str:
        """The name of its variable scope."""
        if self._scope is None:
            raise ValueError(f"the layer {self.name!r} has no scope before it is called")
        return str(self._scope.name)

    @property
    def variables(self) -> list[Any]:
        """All variables, trainable ones first."""
        return [*self.trainable_variables, *self.non_trainable_variables]

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that are trained."""
        return [each for each in self._by_name.values() if self.trainable and _is_trainable(each)]

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The variables that are not trained."""
        return [each for each in self._by_name.values() if not (self.trainable and _is_trainable(each))]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables

    def count_params(self) -> int:
        """Return the total number of elements of its variables."""
        return sum(int(each.shape.num_elements()) for each in self._by_name.values())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._by_name:
            return self._by_name[name]
        variables = ", ".join(self._by_name) if self.built else "none before it is built"
        raise AttributeError(f"the layer {self.name!r} has no {name!r}. Its variables: {variables}", name=name)

    def _get_variable(self, getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        variable = getter(name, *args, **kwargs)
        self._by_name.setdefault(name.removeprefix(f"{self._scope.name}/"), variable)
        return variable


class _FunctionLayer(Layer):
    """A layer that calls a function of `tpk.layers` with the arguments of the constructor."""

    _function: ClassVar[Callable[..., Any]]
    __signature__: ClassVar[inspect.Signature]
    _has_variables: ClassVar[bool]

    def __init_subclass__(cls, function: Callable[..., Any] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if function is None:  # a subclass in a script
            return
        parameters = dict(inspect.signature(function).parameters)
        cls._function = staticmethod(function)
        cls._has_variables = "trainable" in parameters
        for name in _OF_A_CALL:
            parameters.pop(name, None)
        cls.__signature__ = inspect.Signature([*parameters.values(), _FURTHER])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        bound.apply_defaults()
        self._arguments = dict(bound.arguments)
        further, name = self._arguments.pop("kwargs"), self._arguments.pop("name")
        super().__init__(name=name, **{"trainable": self._arguments.get("trainable", True), **further})
        for argument, value in self._arguments.items():
            setattr(self, argument, value)

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        # The current variable scope already has the right `reuse`. A function without variables needs only a name
        # scope, and reenters the existing one, because its name ends with a slash.
        name = v1.get_variable_scope() if self._has_variables else self._scope.original_name_scope
        return self._function(inputs, **self._arguments, name=name, **kwargs)


class Conv1D(_FunctionLayer, function=layers.conv1d):
    """Convolves sequences; see `tpk.layers.conv1d` for the arguments."""


class Conv2D(_FunctionLayer, function=layers.conv2d):
    """Convolves images; see `tpk.layers.conv2d` for the arguments."""


class Conv3D(_FunctionLayer, function=layers.conv3d):
    """Convolves volumes; see `tpk.layers.conv3d` for the arguments."""


class Conv2DTranspose(_FunctionLayer, function=layers.conv2d_transpose):
    """Applies a transposed convolution to images; see `tpk.layers.conv2d_transpose` for the arguments."""


class Conv3DTranspose(_FunctionLayer, function=layers.conv3d_transpose):
    """Applies a transposed convolution to volumes; see `tpk.layers.conv3d_transpose` for the arguments."""


class SeparableConv1D(_FunctionLayer, function=layers.separable_conv1d):
    """Convolves each channel, then mixes them; see `tpk.layers.separable_conv1d` for the arguments."""


class SeparableConv2D(_FunctionLayer, function=layers.separable_conv2d):
    """Convolves each channel, then mixes them; see `tpk.layers.separable_conv2d` for the arguments."""


class Dense(_FunctionLayer, function=layers.dense):
    """Connects every unit to all features; see `tpk.layers.dense` for the arguments."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the outputs for inputs of a shape."""
        return tf.TensorShape(input_shape)[:-1].concatenate(self.units)


class BatchNormalization(_FunctionLayer, function=layers.batch_normalization):
    """Normalizes each feature; see `tpk.layers.batch_normalization` for the arguments."""

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Normalize `inputs` with the statistics of the batch if `training`, or else with the moving averages."""
        return super().call(inputs, training=training)


class Dropout(_FunctionLayer, function=dropout):
    """Sets random inputs to zero; see `dropout` for the arguments."""

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Drop some of `inputs`, if `training`."""
        return super().call(inputs, training=training)


class Flatten(_FunctionLayer, function=layers.flatten):
    """Flattens all axes except the batch axis; see `tpk.layers.flatten` for the arguments."""


class AveragePooling1D(_FunctionLayer, function=layers.average_pooling1d):
    """Takes the average of each window; see `tpk.layers.average_pooling1d` for the arguments."""


class AveragePooling2D(_FunctionLayer, function=layers.average_pooling2d):
    """Takes the average of each window; see `tpk.layers.average_pooling2d` for the arguments."""


class AveragePooling3D(_FunctionLayer, function=layers.average_pooling3d):
    """Takes the average of each window; see `tpk.layers.average_pooling3d` for the arguments."""


class MaxPooling1D(_FunctionLayer, function=layers.max_pooling1d):
    """Takes the maximum of each window; see `tpk.layers.max_pooling1d` for the arguments."""


class MaxPooling2D(_FunctionLayer, function=layers.max_pooling2d):
    """Takes the maximum of each window; see `tpk.layers.max_pooling2d` for the arguments."""


class MaxPooling3D(_FunctionLayer, function=layers.max_pooling3d):
    """Takes the maximum of each window; see `tpk.layers.max_pooling3d` for the arguments."""


# The functions of these layers; `batch_normalization` and `dropout` are different here.
for _layer in _FunctionLayer.__subclasses__():
    globals().setdefault(_layer._function.__name__, _layer._function)

__all__ = own_names(__name__)

__getattr__ = finder_in("tf.layers", __all__, input_spec)


def _is_trainable(variable: Any) -> bool:
    # A custom getter can return a tensor instead of a variable.
    return bool(getattr(variable, "trainable", True))
