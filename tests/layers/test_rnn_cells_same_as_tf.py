"""The cells have the same variables, outputs, states and gradients as in `tf.compat.v1.nn.rnn_cell`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk.layers import rnn_cell as tpk_cells

v1 = tf.compat.v1
RNG = np.random.default_rng(7)
SEQUENCES = RNG.normal(size=[3, 5, 4]).astype(np.float32)
LENGTHS = [5, 2, 0]


@pytest.fixture(scope="module")
def tf_cells() -> Any:
    """Those of TensorFlow 2.15, the last that has them; later ones keep a copy that is private."""
    if tuple(int(part) for part in tf.__version__.split(".")[:2]) < (2, 16):
        return v1.nn.rnn_cell
    return pytest.importorskip("tensorflow.python.keras.layers.legacy_rnn.rnn_cell_impl")


def dynamic(cell: Any, x: Any, **options: Any) -> Any:
    return v1.nn.dynamic_rnn(cell, x, LENGTHS, dtype=tf.float32, **options)


def static(cell: Any, x: Any) -> Any:
    return v1.nn.static_rnn(cell, tf.unstack(x[:, :2], axis=1), dtype=tf.float32)


CELLS: dict[str, Callable[[Any], Any]] = {
    "BasicRNNCell": lambda cells: cells.BasicRNNCell(6),
    "BasicRNNCell with options": lambda cells: cells.BasicRNNCell(6, tf.nn.relu, name="mine"),
    "GRUCell": lambda cells: cells.GRUCell(6),
    "GRUCell with options": lambda cells: cells.GRUCell(
        6, "sigmoid", kernel_initializer=v1.ones_initializer(), bias_initializer=v1.zeros_initializer(), name="a"
    ),
    "BasicLSTMCell": lambda cells: cells.BasicLSTMCell(6),
    "BasicLSTMCell with options": lambda cells: cells.BasicLSTMCell(
        6, forget_bias=0.0, state_is_tuple=False, activation=tf.sin
    ),
    "LSTMCell": lambda cells: cells.LSTMCell(6),
    "LSTMCell with all": lambda cells: cells.LSTMCell(
        6, use_peepholes=True, cell_clip=0.4, num_proj=3, proj_clip=0.1, forget_bias=0.5, activation=tf.nn.softsign
    ),
    "LSTMCell with one tensor": lambda cells: cells.LSTMCell(6, num_proj=3, state_is_tuple=False),
    "MultiRNNCell": lambda cells: cells.MultiRNNCell([cells.LSTMCell(6), cells.GRUCell(5, name="top")]),
    "MultiRNNCell with one tensor": lambda cells: cells.MultiRNNCell(
        [cells.BasicLSTMCell(3, state_is_tuple=False), cells.GRUCell(5)], state_is_tuple=False
    ),
    "MultiRNNCell of one cell twice": lambda cells: cells.MultiRNNCell([cells.GRUCell(4)] * 2),
    "ResidualWrapper": lambda cells: cells.ResidualWrapper(cells.LSTMCell(4)),
    "ResidualWrapper with a function": lambda cells: cells.ResidualWrapper(
        cells.LSTMCell(2), lambda inputs, outputs: tf.concat([inputs, outputs], 1)[:, :2]
    ),
    "DropoutWrapper that keeps all": lambda cells: cells.DropoutWrapper(cells.MultiRNNCell([cells.GRUCell(3)]), 1.0),
    "wrapped wrappers": lambda cells: cells.MultiRNNCell(
        [cells.DropoutWrapper(cells.ResidualWrapper(cells.DeviceWrapper(cells.GRUCell(4), "/device:CPU:0")))] * 1
    ),
}


def shared_cell(cells: Any, x: Any) -> Any:
    cell = cells.LSTMCell(3)
    with v1.variable_scope("a"):
        first, _ = static(cell, x)
    with v1.variable_scope("b"):
        return first, dynamic(cell, x)[0]


def towers(cells: Any, x: Any) -> Any:
    for index in range(2):
        with v1.variable_scope(v1.get_variable_scope(), reuse=index > 0), tf.name_scope(f"tower{index}"):
            outputs, _ = dynamic(cells.MultiRNNCell([cells.BasicRNNCell(3), cells.GRUCell(4)]), x)
            both = [outputs[:, -1], static(cells.GRUCell(4), x)[0][-1]]
    return both


def scopes(cells: Any, x: Any) -> Any:
    """In a scope with a regularizer and a partitioner, by names, and without an RNN of TensorFlow."""
    with v1.variable_scope("outer", regularizer=tf.nn.l2_loss):
        outputs, state = dynamic(cells.LSTMCell(4, use_peepholes=True), x, scope="decoder")
    with v1.variable_scope("parts", partitioner=v1.fixed_size_partitioner(2)):
        x = outputs[:, 0]
        cell = cells.LSTMCell(4, initializer=v1.ones_initializer())
        for _ in range(2):
            x, state = cell(x, state)
    for reuse in (None, None, True):
        x, _ = cells.BasicRNNCell(4, name="named", reuse=reuse)(x, x)
    x, _ = cells.BasicRNNCell(4, reuse=v1.AUTO_REUSE)(x, x)
    x, _ = cells.BasicRNNCell(4)(x, x)
    x, _ = cells.BasicRNNCell(4)(x, x)
    return cells.DropoutWrapper(cells.BasicRNNCell(4), 1.0)(x, x, scope="as_it_stands")


def frozen(cells: Any, x: Any) -> Any:
    def stop(getter: Any, *args: Any, **options: Any) -> Any:
        return tf.stop_gradient(getter(*args, **options))

    outputs, state = dynamic(cells.GRUCell(4, trainable=False), x)
    with v1.variable_scope("stopped", custom_getter=stop, initializer=v1.ones_initializer()):
        return dynamic(cells.LSTMCell(3), outputs, initial_state=cells.LSTMStateTuple(state[:, :3], state[:, 1:]))


def own_cells(cells: Any, x: Any) -> Any:
    class Own(cells.RNNCell):  # type: ignore[misc, name-defined]
        state_size = output_size = 4

        def call(self, inputs: Any, state: Any) -> Any:
            outputs = tf.tanh(inputs @ v1.get_variable("weights", [4, 4]) + state)
            return outputs, outputs

    class Called(cells.RNNCell):  # type: ignore[misc, name-defined]
        state_size = output_size = 4

        def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
            with v1.variable_scope(scope or "called"):
                outputs = tf.tanh(inputs @ v1.get_variable("weights", [4, 4]) + state)
            return outputs, outputs

    with v1.variable_scope("static"):
        first = static(cells.MultiRNNCell([Own(), Called(), Own(name="own_name")]), x)
    return first, dynamic(cells.MultiRNNCell([Own(), Called()]), x)


def bidirectional(cells: Any, x: Any) -> Any:
    outputs, states = v1.nn.bidirectional_dynamic_rnn(cells.LSTMCell(4), cells.GRUCell(3), x, LENGTHS, dtype=tf.float32)
    with v1.variable_scope("static"):
        steps = tf.unstack(tf.concat(outputs, 2)[:, :2], axis=1)
        return v1.nn.static_bidirectional_rnn(cells.GRUCell(2), cells.LSTMCell(2), steps, dtype=tf.float32), states


MODELS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{run.__name__} {name}": lambda cells, x, run=run, cell=cell: run(cell(cells), x)
        for name, cell in CELLS.items()
        for run in ([static, dynamic] if name in ("LSTMCell with all", "MultiRNNCell") else [static])
    },
    **{model.__name__: model for model in (shared_cell, towers, scopes, frozen, own_cells, bidirectional)},
}


def behaviour(cells: Any, model: Callable[[Any, Any], Any]) -> tuple[Any, list[np.ndarray]]:
    """Names and shapes of variables and losses; outputs, and their gradients, for variables of some values."""
    # Optimizing the graph takes longer than running it.
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), v1.Session(config=config) as sess, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = tf.constant(SEQUENCES)
        outputs = tf.nest.flatten(model(cells, x))
        variables, trainable = v1.global_variables(), v1.trainable_variables()
        losses = v1.losses.get_regularization_losses()
        found = (
            [(variable.name, variable.shape.as_list(), variable in trainable) for variable in variables],
            sorted(loss.name for loss in losses),
            [output.shape.as_list() for output in outputs],
        )
        cost = tf.add_n([tf.reduce_sum(output**2) for output in outputs] + losses)
        # A gradient that is stopped in a loop is zero; outside of a loop, it is None.
        gradients = tf.gradients(cost, [x, *trainable], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        numbers = np.random.default_rng(8)
        values = [numbers.normal(0.1, 0.5, variable.shape).astype(np.float32) for variable in variables]
        loads = [variable.assign(value) for variable, value in zip(variables, values, strict=True)]
        sess.run(v1.global_variables_initializer())
        constant = [value for value in sess.run(variables) if np.ptp(value) == 0]
        sess.run([load.op for load in loads])
        return found, [*constant, *sess.run([*outputs, cost, *map(tf.convert_to_tensor, gradients)])]


@pytest.mark.parametrize("model", MODELS)
def test_behaves_like_that_of_tensorflow(tf_cells: Any, model: str) -> None:
    ours, values = behaviour(tpk_cells, MODELS[model])
    theirs, expected = behaviour(tf_cells, MODELS[model])
    assert ours == theirs
    assert len(values) == len(expected)
    for value, wanted in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=1e-5)
