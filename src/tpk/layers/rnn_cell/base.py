"""The base of RNN cells: the variable scope, the initial state and the errors of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.scopes import check_graph_mode
from tpk.layers.layer_scope import LayerScope, snake_case


class RNNCell:
    """One step of a recurrent network, to subclass.

    A subclass has the properties `state_size` and `output_size`, and the method `call`. It makes its variables in
    `build` by `add_variable`, or in `call` by `tf.compat.v1.get_variable`. They are in a variable scope named after the
    cell, inside the scope of the first call: ``rnn/my_cell/kernel``. Later calls use the same variables.

    Args:
        trainable: whether the variables belong to ``TRAINABLE_VARIABLES``.
        name: the variable scope; None for the name of the class, ``MyCell`` as ``my_cell``. It is made unique unless
            `reuse` is set.
        dtype: the dtype of the variables; None for the dtype of the inputs.
        reuse: whether to use existing variables: None, True or `tf.compat.v1.AUTO_REUSE`.

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
        self.name = name or snake_case(type(self).__name__)
        self.dtype = None if dtype is None else tf.as_dtype(dtype)
        self._reuse = reuse
        self._graph: Any = None
        self._variable_scope: Any = None
        self._layer: LayerScope | None = None

    @property
    def state_size(self) -> Any:
        """The size of the state: an integer, a `tf.TensorShape`, or a structure of these."""
        raise NotImplementedError(f"{type(self).__name__} has no state_size: define the property.")

    @property
    def output_size(self) -> Any:
        """The size of the outputs: an integer, a `tf.TensorShape`, or a structure of these."""
        raise NotImplementedError(f"{type(self).__name__} has no output_size: define the property.")

    def build(self, inputs_shape: Any) -> None:
        """Make the variables, before the first `call` and outside of the loop that runs the cell.

        Args:
            inputs_shape: the `tf.TensorShape` of the inputs, or a structure of them.
        """

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs and the next state.

        Args:
            inputs: a tensor of shape [batch, features], or a structure of tensors.
            state: tensors of the sizes in `state_size`.

        Returns:
            The outputs, of size `output_size`, and the next state, a structure like `state`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no call: define `call(self, inputs, state)`.")

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Compute the outputs and the next state, within the cell's variable scope.

        Args:
            inputs: as for `call`.
            state: as for `call`.
            scope: the variable scope of the first call: a name, which is used unchanged, or a
                `tf.compat.v1.VariableScope`. None for the name of the cell.

        Returns:
            The result of `call`.

        Raises:
            ConfigError: if TensorFlow executes eagerly, the cell has its variables in another graph, or the inputs are
                invalid; it names the cell.
        """
        graph = outermost_graph(self)
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        with self._opened(graph, scope) as variable_scope:
            if self._layer is None:
                self._layer = LayerScope(type(self).__name__, tf.nest.flatten(inputs)[0], variable_scope)
                # Outside of a loop that calls the cell, so that losses of variables can be collected.
                with tf.init_scope():
                    self.build(tf.nest.map_structure(lambda each: each.shape, inputs))
            return self.call(inputs, state)

    def add_variable(self, name: str, shape: Any, initializer: Any = None) -> Any:
        """Create a variable of the cell, or get it if the scope reuses variables; call it in `build`.

        Args:
            name: the name within the cell, such as ``"kernel"``.
            shape: the static shape.
            initializer: an initializer or its name; None for the one of the enclosing variable scope, or else
                Glorot-uniform.

        Returns:
            The variable.
        """
        return self._opened_layer().variable(
            name, shape, dtype=self.dtype, initializer=initializer, trainable=self.trainable
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state at the start of a sequence: zeros.

        Args:
            batch_size: an integer, or a scalar integer tensor.
            dtype: the dtype of the state.

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
        """Return the layer scope, which checks arguments and makes variables; its errors name the cell."""
        if self._layer is None:
            raise ConfigError(
                f"{type(self).__name__} {self.name!r} makes its variables when it is called: add them in `build`."
            )
        return self._layer

    @contextmanager
    def _opened(self, graph: Any, scope: Any) -> Iterator[Any]:
        variable_scope = tf.compat.v1.variable_scope
        if self._variable_scope is None:
            # A name in use stays unchanged only if the scope reuses variables.
            scope = scope or (self.name if self._reuse else None)
            with variable_scope(scope, default_name=self.name, reuse=self._reuse) as opened:
                self._variable_scope, self._graph = opened, graph
                yield opened
            return
        if graph is not self._graph:
            raise ConfigError(
                f"{type(self).__name__} {self._variable_scope.name!r} has its variables in another graph. Make a new "
                "cell for each graph, e.g. in the function that builds the model."
            )
        again = variable_scope(self._variable_scope, reuse=True, auxiliary_name_scope=False)
        with again as opened, tf.name_scope(opened.original_name_scope):
            yield opened


def outermost_graph(cell: Any) -> Any:
    """Return the graph that gets the variables of `cell`, outside of all loops.

    Raises:
        ConfigError: if TensorFlow executes eagerly there.
    """
    with tf.init_scope():
        check_graph_mode(type(cell).__name__)
        return tf.compat.v1.get_default_graph()


def argument_error(cell: Any, what: str, got: object, expected: str, remedy: str) -> ConfigError:
    """Return the error for an invalid argument of a cell, which has no scope yet."""
    return ConfigError(f"{type(cell).__name__}({what}={got!r}): expected {expected}. {remedy}")


def check_like_cell(wrapper: Any, cell: Any, what: str = "cell") -> None:
    """Raise unless `cell` has everything that TensorFlow's RNNs need."""
    missing = [name for name in ("state_size", "output_size", "zero_state") if not hasattr(cell, name)]
    if missing or not callable(cell):
        expected = "an RNN cell: callable, with state_size, output_size and zero_state"
        raise argument_error(wrapper, what, cell, expected, "Pass an instance, e.g. LSTMCell(128).")
