"""Cells, and functions that run them over sequences."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn

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


def lstm_block_cell():
    return _dynamic(rnn.LSTMBlockCell(4, forget_bias=0.5))


def gru_block_cell():
    return _dynamic(rnn.GRUBlockCell(4))


def gru_block_cell_v2():
    return _dynamic(rnn.GRUBlockCellV2(4))


def layer_norm_lstm():
    return _dynamic(rnn.LayerNormBasicLSTMCell(4, forget_bias=0.5, norm_gain=0.9, norm_shift=0.1))


def layer_norm_lstm_without_norm():
    return _static(rnn.LayerNormBasicLSTMCell(4, activation=tf.nn.relu, layer_norm=False))


def nas_cell():
    return _dynamic(rnn.NASCell(4))


def nas_cell_with_projection():
    return _static(rnn.NASCell(4, num_proj=2, use_bias=True))


def conv_1d_lstm():
    return _static(rnn.Conv1DLSTMCell(input_shape=[6, 3], output_channels=4, kernel_shape=[3]), _images([6, 3]))


def conv_2d_lstm():
    cell = rnn.Conv2DLSTMCell(input_shape=[6, 6, 3], output_channels=4, kernel_shape=[3, 3], use_bias=False)
    return _dynamic(cell, tf.stack(_images([6, 6, 3]), 1))


def conv_3d_lstm():
    cell = rnn.Conv3DLSTMCell(input_shape=[2, 3, 4, 2], output_channels=1, kernel_shape=[1, 3, 3], forget_bias=0.5)
    return _static(cell, _images([2, 3, 4, 2]))


def conv_lstm_by_its_rank():
    return _static(rnn.ConvLSTMCell(1, [6, 3], 4, [3], name="conv"), _images([6, 3]))


def _images(shape):
    values = np.random.RandomState(1).randn(5, 2, *shape).astype("float32")
    return [tf.constant(each) for each in values]


def highway():
    return _dynamic(rnn.HighwayWrapper(rnn.GRUCell(3)))


def highway_with_a_gate_of_its_own():
    return _static(rnn.HighwayWrapper(rnn.GRUCell(3), couple_carry_transform_gates=False, carry_bias_init=0.5))


def projections():
    cell = rnn.InputProjectionWrapper(rnn.GRUCell(4), 6, activation=tf.nn.relu)
    return _dynamic(rnn.OutputProjectionWrapper(cell, 2, activation=tf.tanh))


def projections_in_a_static_rnn():
    return _static(rnn.OutputProjectionWrapper(rnn.InputProjectionWrapper(rnn.GRUCell(4), 6), 2))


def embeddings():
    words = [tf.constant([1, 3]), tf.constant([[0], [9]])]
    return _static(rnn.EmbeddingWrapper(rnn.GRUCell(4), 10, 3), words)


def embeddings_with_an_initializer():
    with tf.variable_scope("scope", initializer=tf.constant_initializer(0.1)):
        first = _static(rnn.EmbeddingWrapper(rnn.GRUCell(4), 10, 3), [tf.constant([1, 3])])
    ones = tf.ones_initializer()
    return [first, _static(rnn.EmbeddingWrapper(rnn.GRUCell(4), 10, 3, ones), [tf.constant([1, 3])])]


def attention_over_the_last_outputs():
    return _dynamic(rnn.AttentionCellWrapper(rnn.BasicLSTMCell(4), 3))


def attention_with_a_state_of_one_tensor():
    cell = rnn.BasicLSTMCell(4, state_is_tuple=False)
    sizes = {"attn_size": 6, "attn_vec_size": 7, "input_size": 8}
    return _static(rnn.AttentionCellWrapper(cell, 3, state_is_tuple=False, **sizes))


def fused_lstm():
    inputs = tf.transpose(_sequences(), [1, 0, 2])
    outputs, state = rnn.LSTMBlockFusedCell(4)(inputs, dtype=tf.float32, sequence_length=LENGTHS)
    peepholes = rnn.LSTMBlockFusedCell(3, use_peephole=True, cell_clip=0.2, forget_bias=0.5)
    others, other_state = peepholes(outputs, (tf.ones([2, 3]), tf.zeros([2, 3])))
    return {"all": [outputs, state, others, other_state], "step": _trained([others])}


def fused_lstm_in_reverse():
    inputs = tf.transpose(_sequences(), [1, 0, 2])
    reverse = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(4))
    outputs, state = reverse(inputs, dtype=tf.float32, sequence_length=LENGTHS)
    again, _ = reverse(inputs * 2, dtype=tf.float32)
    return {"outputs": outputs, "state": state, "again": again, "step": _trained([outputs])}


def fused_adaptors():
    inputs = tf.transpose(_sequences(), [1, 0, 2])
    adaptor = rnn.FusedRNNCellAdaptor(rnn.GRUCell(4), use_dynamic_rnn=True)
    with tf.variable_scope("dynamic"):
        first = adaptor(inputs, dtype=tf.float32, sequence_length=LENGTHS)
    with tf.variable_scope("static"):
        second = rnn.FusedRNNCellAdaptor(rnn.GRUCell(4))(inputs, tf.ones([2, 4]))
    with tf.variable_scope("list"):
        adaptor = rnn.FusedRNNCellAdaptor(rnn.GRUCell(4), use_dynamic_rnn=True)
        third = rnn.TimeReversedFusedRNN(adaptor)(tf.unstack(inputs), dtype=tf.float32)
    return [first, second, third]


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
    dynamic = rnn.stack_bidirectional_dynamic_rnn(cells(), cells(), inputs, dtype=tf.float32, sequence_length=LENGTHS)
    states = [tf.ones([2, 4]), rnn.LSTMStateTuple(tf.ones([2, 3]), tf.zeros([2, 3]))]
    by_time = rnn.stack_bidirectional_dynamic_rnn(
        cells(), cells(), tf.transpose(inputs, [1, 0, 2]), states, states, time_major=True, scope="by_time"
    )
    static = rnn.stack_bidirectional_rnn(
        cells(), cells(), tf.unstack(inputs, axis=1), dtype=tf.float32, sequence_length=LENGTHS, scope="static"
    )
    return [dynamic, by_time, static]


def names_of_several_cells():
    cells = [rnn.NASCell(4), rnn.NASCell(4), rnn.LayerNormBasicLSTMCell(4)]
    return _dynamic(rnn.MultiRNNCell(cells))


def cells_called_once():
    x, state = tf.ones([2, 3]), tf.ones([2, 4])
    first = rnn.GRUCell(4)(x, state)
    with tf.variable_scope("scope"):
        second = rnn.GRUBlockCell(4)(x, state)
        cell = rnn.NASCell(4)
        third = cell(x, cell(x, (state, state))[1])
    return [first, second, third]
