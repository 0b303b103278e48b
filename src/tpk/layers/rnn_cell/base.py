"""The base of RNN cells: where a cell's variables get their names, what state it starts from, what its errors say."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.layers.layer_scope import LayerScope


class RNNCell:
    """One step of a recurrent network, to subclass.

    A subclass has the properties `state_size` and `output_size`, and the method `call`. Variables are best made in
    `build`, by `add_variable`; `call` may take some by `tf.compat.v1.get_variable` as well. They are in a variable
    scope that is named after the cell, within that of the first call: ``rnn/my_cell/kernel``; later calls take the same
    ones.

    Args:
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope; None means the name of the class, ``MyCell`` as ``my_cell``. It is made unique, unless
            `reuse` asks for what is there.
        dtype: of the variables; None means that of the inputs.
        reuse: whether to take existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

    Example:
        ```python
        class LeakyCell(rnn_cell.RNNCell):
            state_size = output_size = 64

            def build(self, inputs_shape):
                self.kernel = self.add_variable("kernel", [int(inputs_shape[-1]), 64])

            def call(self, inputs, state):
                state = 0.9 * state + tf.tanh(inputs @ self.kernel)
                return state, state
        ```
    """

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, reuse: Any = None) -> None:
        self.trainable = trainable
        self.name = name or _snake_case(type(self).__name__)
        self.dtype = None if dtype is None else tf.as_dtype(dtype)
        self._reuse = reuse
        self._graph: Any = None
        self._variable_scope: Any = None
        self._layer: LayerScope | None = None

    @property
    def state_size(self) -> Any:
        """The size of the state: an integer, a `tf.TensorShape`, or a structure of them."""
        raise NotImplementedError(f"{type(self).__name__} has no state_size: define the property.")

    @property
    def output_size(self) -> Any:
        """The size of the outputs: an integer, a `tf.TensorShape`, or a structure of them."""
        raise NotImplementedError(f"{type(self).__name__} has no output_size: define the property.")

    def build(self, inputs_shape: Any) -> None:
        """Make the variables, before the first `call`; outside of the loop that runs the cell.

        Args:
            inputs_shape: the `tf.TensorShape` of the inputs, or a structure of them.
        """

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs and the next state.

        Args:
            inputs: a tensor of shape [batch, features], or a structure of tensors.
            state: tensors of the sizes `state_size`.

        Returns:
            The outputs, of size `output_size`, and the next state, a structure like `state`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no call: define `call(self, inputs, state)`.")

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Compute the outputs and the next state, within the cell's variable scope.

        Args:
            inputs: as for `call`.
            state: as for `call`.
            scope: the variable scope, if this is the first call: a name that is taken as it stands, or a
                `tf.compat.v1.VariableScope`. None means the name of the cell.

        Returns:
            What `call` does.

        Raises:
            ConfigError: if TensorFlow executes eagerly, the cell has its variables in another graph, or the inputs
                cannot be; it names the cell.
        """
        graph = outermost_graph(self)
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        with self._opened(graph, scope) as variable_scope:
            if self._layer is None:
                self._layer = LayerScope(type(self).__name__, tf.nest.flatten(inputs)[0], variable_scope)
                # Outside of a loop that calls the cell, so that losses of the variables can be collected.
                with tf.init_scope():
                    self.build(tf.nest.map_structure(lambda each: each.shape, inputs))
            return self.call(inputs, state)

    def add_variable(self, name: str, shape: Any, initializer: Any = None) -> Any:
        """Create a variable, or get it if the scope reuses; within `build`.

        Args:
            name: the name within the cell, such as ``"kernel"``.
            shape: the static shape.
            initializer: an initializer or its name; None means the enclosing variable scope's, and where that has none,
                Glorot-uniform.

        Returns:
            The variable.
        """
        return self._opened_layer().variable(
            name, shape, dtype=self.dtype, initializer=initializer, trainable=self.trainable
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state of a sequence that has not begun: zeros.

        Args:
            batch_size: an integer, or a scalar integer tensor.
            dtype: of the state.

        Returns:
            A structure like `state_size`, of tensors of shape [batch_size, size].
        """

        def zeros(size: Any) -> Any:
            sizes = tf.TensorShape(size).as_list()
            static = tf.get_static_value(batch_size) if tf.is_tensor(batch_size) else batch_size
            if static is not None:
                return tf.zeros([static, *sizes], dtype)
            state = tf.zeros(tf.stack([batch_size, *sizes]), dtype)
            state.set_shape([None, *sizes])
            return state

        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            return tf.nest.map_structure(zeros, self.state_size)

    def _opened_layer(self) -> LayerScope:
        """What checks arguments and makes variables, in errors that name the cell."""
        if self._layer is None:
            raise ConfigError(
                f"{type(self).__name__} {self.name!r} makes its variables when it is called: add them in `build`."
            )
        return self._layer

    @contextmanager
    def _opened(self, graph: Any, scope: Any) -> Iterator[Any]:
        variable_scope = tf.compat.v1.variable_scope
        if self._variable_scope is None:
            # A name that is asked for again is only taken as it stands where the scope reuses.
            scope = scope or (self.name if self._reuse else None)
            with variable_scope(scope, default_name=self.name, reuse=self._reuse) as opened:
                self._variable_scope, self._graph = opened, graph
                yield opened
            return
        if graph is not self._graph:
            raise ConfigError(
                f"{type(self).__name__} {self._variable_scope.name!r} has its variables in another graph. Make a cell "
                "anew for each graph, e.g. in the function that builds the model."
            )
        again = variable_scope(self._variable_scope, reuse=True, auxiliary_name_scope=False)
        with again as opened, tf.name_scope(opened.original_name_scope):
            yield opened


def outermost_graph(cell: Any) -> Any:
    """Return the graph to which `cell` adds variables, outside of all loops.

    Raises:
        ConfigError: if TensorFlow executes eagerly there.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            raise ConfigError(
                f"{type(cell).__name__} adds to a graph, but TensorFlow executes eagerly here. Build the model inside "
                "`with tf.Graph().as_default():`; a trainer does so when it calls the tower function."
            )
        return tf.compat.v1.get_default_graph()


def argument_error(cell: Any, what: str, got: object, expected: str, remedy: str) -> ConfigError:
    """Return the error that says that the argument `what` of a cell, which has no scope yet, cannot be."""
    return ConfigError(f"{type(cell).__name__}({what}={got!r}): expected {expected}. {remedy}")


def size_of(cell: Any, what: str, value: Any) -> int:
    """Return a positive integer."""
    try:
        size = operator.index(value)
    except TypeError:
        size = 0
    if size < 1:
        raise argument_error(cell, what, value, "a positive integer", f"Pass e.g. {what}=128.")
    return size


def clip_of(cell: Any, what: str, value: Any) -> float | None:
    """Return a positive number, or None for no clipping."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not number > 0:
        raise argument_error(cell, what, value, "a positive number or None", f"Pass e.g. {what}=50.0.")
    return number


def function_of(cell: Any, what: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return `function` if it can be called or is None."""
    if function is None or callable(function):
        return function
    raise argument_error(cell, what, function, "a function or None", "Pass the function itself.")


def check_like_cell(wrapper: Any, cell: Any, what: str = "cell") -> None:
    """Refuse what has not all that TensorFlow's RNNs take from a cell."""
    missing = [name for name in ("state_size", "output_size", "zero_state") if not hasattr(cell, name)]
    if missing or not callable(cell):
        expected = "an RNN cell: callable, with state_size, output_size and zero_state"
        raise argument_error(wrapper, what, cell, expected, "Pass an instance, e.g. LSTMCell(128).")


def _snake_case(name: str) -> str:
    """``BasicLSTMCell`` as ``basic_lstm_cell``; a scope's name begins with no underscore."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"private{words}" if words.startswith("_") else words
