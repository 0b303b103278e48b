"""Cells: dropout, scopes and devices of variables, and errors."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.layers import rnn_cell

v1 = tf.compat.v1


class Memo(rnn_cell.RNNCell):
    """Gives its inputs back, and has a state of several parts that it lets alone."""

    state_size = (rnn_cell.LSTMStateTuple(8, 8), {"a": 8, "b": 8})
    output_size = 8

    def call(self, inputs: Any, state: Any) -> Any:
        return inputs + 0.0, tf.nest.map_structure(lambda part: part + 0.0, state)


def dropped(steps: int = 1, run: str = "static", **options: Any) -> tuple[np.ndarray, Any]:
    """Which outputs of each step are zero, of shape [batch, steps, 8], and which parts of the state, after the last."""
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(3)
        cell = rnn_cell.DropoutWrapper(Memo(), **options)
        x = tf.ones([50, steps, 8])
        state = tf.nest.map_structure(lambda size: tf.ones([50, size]), Memo.state_size)
        if run == "static":
            outputs, state = v1.nn.static_rnn(cell, tf.unstack(x, axis=1), state)
            outputs = tf.stack(outputs, 1)
        else:
            outputs, state = v1.nn.dynamic_rnn(cell, x, initial_state=state)
        sess.run(v1.global_variables_initializer())
        outputs, state = sess.run([outputs, state])
        again = sess.run(cell.zero_state(2, tf.float32))
    assert tf.nest.map_structure(np.shape, again) == tf.nest.map_structure(lambda size: (2, size), Memo.state_size)
    return outputs == 0, tf.nest.map_structure(lambda part: bool((part == 0).any()), state)


@pytest.mark.parametrize("run", ["static", "dynamic"])
@pytest.mark.parametrize("what", ["input_keep_prob", "output_keep_prob"])
def test_dropout_drops_others_in_each_step(run: str, what: str) -> None:
    zero, state = dropped(4, run, **{what: 0.7})
    assert np.mean(zero) == pytest.approx(0.3, abs=0.05)
    masks = {zero[:, step].tobytes() for step in range(4)} | {zero[row].tobytes() for row in range(50)}
    assert len(masks) == 54
    assert not any(tf.nest.flatten(state))


@pytest.mark.parametrize("run", ["static", "dynamic"])
def test_variational_dropout_drops_the_same_in_each_step_and_sequence(run: str) -> None:
    for what in ("input_keep_prob", "output_keep_prob"):
        zero, _ = dropped(4, run, variational_recurrent=True, **{what: tf.constant(0.5)})
        assert (zero == zero[:1, :1]).all()
        assert zero[0, 0].any() and not zero[0, 0].all()


def test_kept_elements_are_scaled() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(3)
        for variational in (False, True):
            cell = rnn_cell.DropoutWrapper(Memo(), 0.25, variational_recurrent=variational, dtype=tf.float16)
            outputs, _ = cell(tf.ones([5, 8], tf.float16), cell.zero_state(5, tf.float16))
            assert outputs.dtype == tf.float16
            sess.run(v1.global_variables_initializer())
            assert set(np.unique(sess.run(outputs))) == {0, 4}


def test_dropout_of_the_state_leaves_the_memory_alone() -> None:
    _, state = dropped(state_keep_prob=0.5)
    assert state == (rnn_cell.LSTMStateTuple(c=False, h=True), {"a": True, "b": True})


def test_dropout_of_chosen_parts_of_the_state() -> None:
    def choose(part: Any) -> Any:
        return {"a": False, "b": True} if isinstance(part, dict) else not isinstance(part, rnn_cell.LSTMStateTuple)

    _, state = dropped(state_keep_prob=0.5, dropout_state_filter_visitor=choose, variational_recurrent=True)
    assert state == (rnn_cell.LSTMStateTuple(c=False, h=False), {"a": False, "b": True})


def test_dropout_depends_on_the_step_of_the_training_and_on_the_seed() -> None:
    """So a resumed training drops the same elements as one that was never stopped."""
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(3)
        x = tf.ones([20, 3, 8])
        masks = []
        for seed in (1, 2):
            with v1.variable_scope(f"seed{seed}"):
                cell = rnn_cell.DropoutWrapper(rnn_cell.GRUCell(8), output_keep_prob=0.5, seed=seed)
                masks.append(tf.equal(v1.nn.dynamic_rnn(cell, x, dtype=tf.float32)[0], 0))
        step = v1.train.get_global_step()
        sess.run(v1.global_variables_initializer())
        first, other_seed = sess.run(masks)
        np.testing.assert_array_equal(first, sess.run(masks[0]))
        sess.run(step.assign_add(1))
        assert (first != sess.run(masks[0])).any() and (first != other_seed).any()
        sess.run(step.assign_add(-1))
        np.testing.assert_array_equal(first, sess.run(masks[0]))


def test_a_cell_is_on_its_device() -> None:
    with tf.Graph().as_default() as graph:
        cell = rnn_cell.DeviceWrapper(rnn_cell.GRUCell(3), "/device:CPU:7")
        v1.nn.dynamic_rnn(cell, tf.ones([2, 4, 3]), dtype=tf.float32)
        v1.nn.static_rnn(cell, [tf.ones([2, 3])], dtype=tf.float32)
        assert {variable.device for variable in v1.global_variables()} == {"/device:CPU:7"}
        (matmul, *_) = [op for op in graph.get_operations() if op.type == "MatMul"]
        assert matmul.device == "/device:CPU:7"


def test_a_cell_of_ones_own_makes_its_variables_once() -> None:
    class Leaky2Cell(rnn_cell.RNNCell):
        state_size = output_size = 3
        built_for: list[Any] = []

        def build(self, inputs_shape: Any) -> None:
            self.built_for.append(inputs_shape.as_list())
            self.kernel = self.add_variable("kernel", [int(inputs_shape[-1]), 3], "he_normal")

        def call(self, inputs: Any, state: Any) -> Any:
            state = 0.9 * state + tf.tanh(inputs @ self.kernel)
            return state, state

    with tf.Graph().as_default(), v1.variable_scope("scope", regularizer=tf.nn.l2_loss):
        cell = Leaky2Cell(trainable=False, dtype=tf.float64)
        for _ in range(2):
            outputs, _ = v1.nn.dynamic_rnn(cell, tf.ones([2, 4, 5], tf.float64), dtype=tf.float64)
        assert outputs.dtype == tf.float64
        assert [variable.op.name for variable in v1.global_variables()] == ["scope/rnn/leaky2_cell/kernel"]
        assert not v1.trainable_variables() and Leaky2Cell.built_for == [[2, 5]]
        (loss,) = v1.losses.get_regularization_losses()
        assert loss.graph is v1.get_default_graph()


@pytest.mark.parametrize(
    ("name", "scope"),
    [("BNLSTMCell", "bnlstm_cell"), ("Conv1DLSTMCell", "conv1dlstm_cell"), ("_Sum2DCell", "private__sum2d_cell")],
)
def test_the_scope_of_a_cell_is_named_after_its_class_as_in_tensorflow(name: str, scope: str) -> None:
    cell = type(name, (rnn_cell.RNNCell,), {"state_size": 1, "output_size": 1})()
    assert cell.name == scope


def test_a_state_knows_its_dtype_and_its_shape() -> None:
    with tf.Graph().as_default():
        size = v1.placeholder(tf.int32, [])
        cell = rnn_cell.LSTMCell(3, num_proj=2)
        state = cell.zero_state(size, tf.float16)
        assert state.dtype == tf.float16
        assert [part.shape.as_list() for part in state] == [[None, 3], [None, 2]]
        assert cell.zero_state(tf.constant(4), tf.float32).h.shape == (4, 2)


def test_a_stack_ignores_columns_of_its_state_after_those_of_its_cells() -> None:
    with tf.Graph().as_default(), v1.Session() as sess:
        cell = rnn_cell.MultiRNNCell([rnn_cell.GRUCell(2), rnn_cell.GRUCell(3)], state_is_tuple=False)
        state = tf.range(16.0)[None] / 16
        outputs = [cell(tf.ones([1, 4]), state[:, :size]) for size in (5, 16)]
        sess.run(v1.global_variables_initializer())
        expected, found = sess.run(outputs)
        np.testing.assert_array_equal(np.concatenate(found, 1), np.concatenate(expected, 1))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected size"):
            sess.run(cell(tf.ones([1, 4]), state[:, :4]))


def test_one_cell_in_two_places_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tpk"):
        rnn_cell.MultiRNNCell([rnn_cell.GRUCell(3)] * 2)
    assert "a cell occurs twice" in caplog.text


@pytest.mark.parametrize("num_units", [8 / 2, v1.Dimension(4)])
def test_the_number_of_units_may_be_a_whole_float_or_a_dimension(num_units: Any) -> None:
    with tf.Graph().as_default():
        outputs, _ = v1.nn.dynamic_rnn(rnn_cell.LSTMCell(num_units), tf.zeros([2, 3, 5]), dtype=tf.float32)
        assert outputs.shape == [2, 3, 4]


def lstm() -> rnn_cell.LSTMCell:
    return rnn_cell.LSTMCell(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rnn_cell.GRUCell(0), "GRUCell: num_units must be an integer, 1 or more, not 0"),
        (lambda: rnn_cell.BasicRNNCell(2.5), r"BasicRNNCell: num_units must be an integer.*not 2\.5"),  # type: ignore[arg-type]
        (lambda: rnn_cell.LSTMCell(4, num_proj=0), "LSTMCell: num_proj must be an integer, 1 or more, not 0"),
        (lambda: rnn_cell.LSTMCell(4, cell_clip=-1), "LSTMCell: cell_clip must be positive, not -1"),
        (lambda: rnn_cell.LSTMCell(4, proj_clip="a"), "LSTMCell: proj_clip must be positive, not 'a'"),  # type: ignore[arg-type]
        (lambda: rnn_cell.LSTMCell(4, num_unit_shards=2), r"\(num_unit_shards=2\): expected None.*partitioner"),
        (lambda: rnn_cell.MultiRNNCell([]), r"MultiRNNCell\(cells=\[\]\): expected a list of one cell or more"),
        (lambda: rnn_cell.MultiRNNCell(lstm()), r"MultiRNNCell\(cells=<.*>\): expected a list"),  # type: ignore[arg-type]
        (lambda: rnn_cell.MultiRNNCell([lstm(), 3]), r"MultiRNNCell\(cells\[1\]=3\): expected an RNN cell"),
        (lambda: rnn_cell.MultiRNNCell([lstm()], False), r"\(state_is_tuple=False\): expected True, as .* a tuple"),
        (lambda: rnn_cell.ResidualWrapper("cell"), r"ResidualWrapper\(cell='cell'\): expected an RNN cell"),
        (lambda: rnn_cell.DropoutWrapper(lstm(), 0.0), r"DropoutWrapper\(input_keep_prob=0\.0\): expected a number in"),
        (lambda: rnn_cell.DropoutWrapper(lstm(), 1, 1.5), r"\(output_keep_prob=1\.5\): expected .*not the one to drop"),
        (lambda: rnn_cell.DropoutWrapper(lstm(), state_keep_prob="a"), r"\(state_keep_prob='a'\): expected a number"),
    ],
)
def test_arguments_that_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def zeros(*shape: int, dtype: Any = tf.float32) -> Any:
    return tf.zeros(shape, dtype)


def of_wrong_verdict(state: Any) -> Any:
    return (True, "b")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lstm()(zeros(2, 3), zeros(2, 8)), "LSTMCell layer 'lstm_cell': the state is .*expected an LSTMStateT"),
        (
            lambda: rnn_cell.GRUCell(3)(v1.placeholder(tf.float32, [2, None]), zeros(2, 3)),
            "GRUCell layer 'gru_cell': .*whose axis 1, the features, is known",
        ),
        (lambda: rnn_cell.GRUCell(3)(zeros(2, 5, 3), zeros(2, 3)), r"a shape of rank 2: \(batch, features\)"),
        (lambda: rnn_cell.GRUCell(3)(zeros(2, 3, dtype=tf.int32), zeros(2, 3)), "'int32', expected a floating-point"),
        (lambda: rnn_cell.GRUCell(3, "rellu")(zeros(2, 3), zeros(2, 3)), "activation is 'rellu', expected a function"),
        (
            lambda: rnn_cell.MultiRNNCell([rnn_cell.GRUCell(3)])(zeros(2, 3), zeros(2, 3)),
            "MultiRNNCell layer 'multi_rnn_cell': the state is .*expected a tuple with the states of the 1 cells",
        ),
        (
            lambda: rnn_cell.ResidualWrapper(rnn_cell.GRUCell(3))(zeros(2, 4), zeros(2, 3)),
            r"ResidualWrapper: the inputs of GRUCell have the shape \(2, 4\), and its outputs \(2, 3\)",
        ),
        (
            lambda: rnn_cell.DropoutWrapper(lstm(), state_keep_prob=0.5, dropout_state_filter_visitor=of_wrong_verdict)(
                zeros(2, 4), (zeros(2, 4), zeros(2, 4))
            ),
            r"dropout_state_filter_visitor returned \(True, 'b'\) for the state .*as many booleans",
        ),
        (
            lambda: rnn_cell.DropoutWrapper(lstm(), 0.5, variational_recurrent=True)(
                v1.placeholder(tf.float32, [2, None]), (zeros(2, 4), zeros(2, 4))
            ),
            r"variational_recurrent=True\): the shape of what is dropped is \(2, None\)",
        ),
        (lambda: rnn_cell.RNNCell(name="mine").add_variable("kernel", [3]), "RNNCell 'mine' makes its variables when"),
    ],
)
def test_calls_that_are_refused(call: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.tf2_only("executes eagerly")
@pytest.mark.parametrize("cell", [lstm(), rnn_cell.DropoutWrapper(lstm(), 0.5)], ids=["cell", "wrapper"])
def test_eager_execution_is_an_error(cell: Any) -> None:
    with pytest.raises(ConfigError, match=f"{type(cell).__name__} adds to a graph, but TensorFlow executes eagerly"):
        cell(tf.zeros([2, 4]), (tf.zeros([2, 4]), tf.zeros([2, 4])))


def test_a_cell_belongs_to_one_graph() -> None:
    cell = rnn_cell.GRUCell(3, name="mine")
    with tf.Graph().as_default():
        cell(tf.zeros([2, 4]), tf.zeros([2, 3]))
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="GRUCell 'mine' has its variables in another graph"):
        cell(tf.zeros([2, 4]), tf.zeros([2, 3]))


@pytest.mark.parametrize("what", ["state_size", "output_size"])
def test_what_a_cell_of_ones_own_lacks_is_said(what: str) -> None:
    with pytest.raises(NotImplementedError, match=f"RNNCell has no {what}"):
        getattr(rnn_cell.RNNCell(), what)
    with tf.Graph().as_default(), pytest.raises(NotImplementedError, match="RNNCell has no call"):
        rnn_cell.RNNCell()(tf.zeros([2, 4]), tf.zeros([2, 3]))
