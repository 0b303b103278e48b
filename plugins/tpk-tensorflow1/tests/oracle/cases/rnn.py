"""Cells, and functions that run them over sequences."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn
from tensorflow.contrib.rnn.python.ops.core_rnn_cell import _Linear, _linear

LENGTHS = [5, 3]


def _sequences(features=3, seed=1):
    return tf.constant(np.random.RandomState(seed).randn(2, 5, features), tf.float32)


def _trained(outputs):
    losses = [tf.reduce_sum(tf.square(each)) for each in outputs]
    return tf.train.GradientDescentOptimizer(0.1).minimize(tf.add_n(losses))


def _dynamic(cell, inputs=None):
    inputs = _sequences() if inputs is None else inputs
    outputs, state = tf.nn.dynamic_rnn(cell, inputs, LENGTHS, dtype=tf.float32)
    return {"outputs": outputs, "state": state, "step": _trained([outputs])}


def _static(cell, inputs=None):
    outputs, state = rnn.static_rnn(
        cell, tf.unstack(_sequences(), axis=1) if inputs is None else inputs, dtype=tf.float32
    )
    return {"outputs": outputs, "state": state, "step": _trained(outputs)}


def lstm_with_peepholes_and_projection():
    return _dynamic(tf.nn.rnn_cell.LSTMCell(4, use_peepholes=True, cell_clip=0.3, num_proj=2, proj_clip=0.2))


def stack_of_gru_and_lstm():
    return _dynamic(rnn.MultiRNNCell([rnn.GRUCell(4), rnn.ResidualWrapper(rnn.BasicLSTMCell(4))]))


def stack_whose_state_is_longer():
    cell = rnn.MultiRNNCell([rnn.GRUCell(4), rnn.BasicLSTMCell(3, state_is_tuple=False)], state_is_tuple=False)
    outputs, state = cell(tf.ones([2, 3]), tf.reshape(tf.range(24.0), [2, 12]) / 24)
    return {"outputs": outputs, "state": state, "step": _trained([outputs])}


def fused_cells():
    inputs = tf.transpose(_sequences(), [1, 0, 2])
    forward = rnn.LSTMBlockFusedCell(4, forget_bias=0.5)(inputs, dtype=tf.float32, sequence_length=tf.constant(LENGTHS))
    backward = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(3))
    both = [forward, backward(inputs, dtype=tf.float32, sequence_length=tf.constant(LENGTHS))]
    with tf.variable_scope("scope"):
        whole = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(4))(inputs, forward[1])
    return {"both": both, "whole": whole, "step": _trained([both[0][0], both[1][0], whole[0]])}


def lstm_block_cells():
    cells = [rnn.LSTMBlockCell(4, forget_bias=0.5), rnn.LSTMBlockCell(4, 1.0, 0.3, name="clipped")]
    return _dynamic(rnn.MultiRNNCell(cells))


def layer_norm_lstm():
    return _dynamic(rnn.LayerNormBasicLSTMCell(4, forget_bias=0.5, norm_gain=0.9, norm_shift=0.1))


def layer_norm_lstm_without_norm():
    return _static(rnn.LayerNormBasicLSTMCell(4, activation=tf.nn.relu, layer_norm=False))


def nas_cell():
    return _dynamic(rnn.NASCell(4))


def projection():
    return _dynamic(rnn.OutputProjectionWrapper(rnn.GRUCell(4), 2, activation=tf.tanh))


def projection_in_a_static_rnn():
    return _static(rnn.OutputProjectionWrapper(rnn.GRUCell(4), 2))


def embeddings():
    words = [tf.constant([1, 3]), tf.constant([[0], [9]])]
    return _static(rnn.EmbeddingWrapper(rnn.GRUCell(4), 10, 3), words)


def embeddings_with_an_initializer():
    with tf.variable_scope("scope", initializer=tf.constant_initializer(0.1)):
        first = _static(rnn.EmbeddingWrapper(rnn.GRUCell(4), 10, 3), [tf.constant([1, 3])])
    ones = tf.ones_initializer()
    return [first, _static(rnn.EmbeddingWrapper(rnn.GRUCell(4), 10, 3, ones), [tf.constant([1, 3])])]


def bidirectional():
    cells = [rnn.GRUCell(4), rnn.LSTMCell(3)]
    dynamic = tf.nn.bidirectional_dynamic_rnn(*cells, inputs=_sequences(), sequence_length=LENGTHS, dtype=tf.float32)
    inputs = tf.unstack(_sequences(), axis=1)
    static = rnn.static_bidirectional_rnn(rnn.GRUCell(4), rnn.GRUCell(3), inputs, dtype=tf.float32, scope="static")
    return [dynamic, static]


def stack_of_bidirectional():
    def cells():
        return [rnn.GRUCell(4), rnn.LSTMCell(3)]

    inputs = _sequences()
    first = rnn.stack_bidirectional_dynamic_rnn(cells(), cells(), inputs, dtype=tf.float32, sequence_length=LENGTHS)
    states = [tf.ones([2, 4]), rnn.LSTMStateTuple(tf.ones([2, 3]), tf.zeros([2, 3]))]
    by_time = rnn.stack_bidirectional_dynamic_rnn(
        cells(), cells(), tf.transpose(inputs, [1, 0, 2]), states, states, time_major=True, scope="by_time"
    )
    return [first, by_time]


def names_of_several_cells():
    cells = [rnn.NASCell(4), rnn.NASCell(4), rnn.LayerNormBasicLSTMCell(4)]
    return _dynamic(rnn.MultiRNNCell(cells))


def cells_called_once():
    x, state = tf.ones([2, 3]), tf.ones([2, 4])
    first = rnn.GRUCell(4)(x, state)
    with tf.variable_scope("scope"):
        second = rnn.BasicRNNCell(4)(x, state)
        cell = rnn.NASCell(4)
        third = cell(x, cell(x, (state, state))[1])
    return [first, second, third]


def linear_maps():
    x, h = tf.unstack(_sequences(4, seed=2)[:, :2], axis=1)
    with tf.variable_scope("gates", initializer=tf.ones_initializer()):
        gates = _Linear([x, h], 3, True, bias_initializer=tf.constant_initializer(0.5))
    with tf.variable_scope("single"):
        single = _Linear(x, 2, False, kernel_initializer=tf.constant_initializer(0.3))
    outputs = [gates([x, h]), gates([h, 2 * x]), single(x), single(h), _linear([x, h], 2, True)]
    return {"outputs": outputs, "step": _trained(outputs)}
