"""Cells, and functions that run them over sequences."""

import numpy as np
import tensorflow as tf


def _words():
    return tf.constant(np.random.RandomState(1).randn(2, 5, 3), tf.float32)


def _trained(outputs):
    return tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(outputs)))


def lstm_with_peepholes_and_projection():
    cell = tf.nn.rnn_cell.LSTMCell(4, use_peepholes=True, cell_clip=0.3, num_proj=2, proj_clip=0.2)
    outputs, state = tf.nn.dynamic_rnn(cell, _words(), [5, 3], dtype=tf.float32)
    return {"outputs": outputs, "state": state, "step": _trained(outputs)}


def lstm_block_cell():
    outputs, state = tf.nn.dynamic_rnn(tf.contrib.rnn.LSTMBlockCell(4), _words(), dtype=tf.float32)
    return {"outputs": outputs, "state": state, "step": _trained(outputs)}
