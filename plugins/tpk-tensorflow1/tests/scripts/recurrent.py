"""Recurrent classifiers: a static and a bidirectional network, one with lengths, and a stack with dropout."""

from __future__ import print_function

import inspect
import random

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn

STEPS, INPUTS, HIDDEN, CLASSES = 6, 4, 8, 2


class ToySequenceData(object):
    """Rising or random sequences of different lengths."""

    def __init__(self, n_samples=40, max_seq_len=STEPS, min_seq_len=3, max_value=100):
        self.data, self.labels, self.seqlen = [], [], []
        self.batch_id = 0
        for _ in range(n_samples):
            length = random.randint(min_seq_len, max_seq_len)
            self.seqlen.append(length)
            if random.random() < 0.5:
                start = random.randint(0, max_value - length)
                s = [[float(i) / max_value] for i in range(start, start + length)]
            else:
                s = [[float(random.randint(0, max_value)) / max_value] for i in range(length)]
            self.labels.append([1.0, 0.0] if s == sorted(s) else [0.0, 1.0])
            self.data.append(s + [[0.0] for i in range(max_seq_len - length)])

    def next(self, batch_size):
        if self.batch_id == len(self.data):
            self.batch_id = 0
        end = min(self.batch_id + batch_size, len(self.data))
        batch = [each[self.batch_id : end] for each in (self.data, self.labels, self.seqlen)]
        self.batch_id = end
        return batch


def static(x, out):
    cell = rnn.BasicLSTMCell(HIDDEN, forget_bias=1.0)
    outputs, states = rnn.static_rnn(cell, tf.unstack(x, STEPS, 1), dtype=tf.float32)
    return tf.matmul(outputs[-1], out["weights"]) + out["biases"]


def bidirectional(x, out):
    lstm_fw_cell = rnn.BasicLSTMCell(HIDDEN // 2, forget_bias=1.0)
    lstm_bw_cell = rnn.BasicLSTMCell(HIDDEN // 2, forget_bias=1.0)
    try:
        outputs, _, _ = rnn.static_bidirectional_rnn(
            lstm_fw_cell, lstm_bw_cell, tf.unstack(x, STEPS, 1), dtype=tf.float32
        )
    except Exception:
        outputs = rnn.static_bidirectional_rnn(lstm_fw_cell, lstm_bw_cell, tf.unstack(x, STEPS, 1), dtype=tf.float32)
    return tf.matmul(outputs[-1], out["weights"]) + out["biases"]


def stacked(x, out):
    keep_prob = tf.placeholder_with_default(1.0, [])

    def lstm_cell():
        if "reuse" in inspect.getargspec(rnn.BasicLSTMCell.__init__).args:
            cell = rnn.BasicLSTMCell(HIDDEN, forget_bias=0.0, reuse=tf.get_variable_scope().reuse)
        else:
            cell = rnn.BasicLSTMCell(HIDDEN, forget_bias=0.0)
        return rnn.DropoutWrapper(cell, output_keep_prob=keep_prob)

    mlstm_cell = rnn.MultiRNNCell([lstm_cell() for _ in range(2)], state_is_tuple=True)
    init_state = mlstm_cell.zero_state(tf.shape(x)[0], dtype=tf.float32)
    outputs, state = [], init_state
    with tf.variable_scope("RNN"):
        for timestep in range(STEPS):
            if timestep > 0:
                tf.get_variable_scope().reuse_variables()
            (cell_output, state) = mlstm_cell(x[:, timestep, :], state)
            outputs.append(cell_output)
    return tf.matmul(outputs[-1], out["weights"]) + out["biases"]


def with_lengths(x, seqlen, out):
    cell = tf.contrib.rnn.BasicLSTMCell(HIDDEN)
    outputs, states = tf.contrib.rnn.static_rnn(cell, tf.unstack(x, STEPS, 1), dtype=tf.float32, sequence_length=seqlen)
    outputs = tf.transpose(tf.stack(outputs), [1, 0, 2])
    batch_size = tf.shape(outputs)[0]
    index = tf.range(0, batch_size) * STEPS + (seqlen - 1)
    outputs = tf.gather(tf.reshape(outputs, [-1, HIDDEN]), index)
    return tf.matmul(outputs, out["weights"]) + out["biases"]


def train(network):
    features = 1 if network is with_lengths else INPUTS
    x = tf.placeholder("float", [None, STEPS, features])
    y = tf.placeholder("float", [None, CLASSES])
    seqlen = tf.placeholder(tf.int32, [None])
    out = {
        "weights": tf.Variable(tf.random_normal([HIDDEN, CLASSES])),
        "biases": tf.Variable(tf.random_normal([CLASSES])),
    }
    pred = network(x, seqlen, out) if network is with_lengths else network(x, out)
    cost = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits=pred, labels=y))
    optimizer = tf.train.AdamOptimizer(learning_rate=0.05).minimize(cost)
    toy = ToySequenceData()
    values = np.random.rand(10, STEPS, INPUTS)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        costs = []
        for _ in range(8):
            batch_x, batch_y, batch_seqlen = toy.next(10)
            if network is not with_lengths:
                batch_x = values
                batch_y = np.eye(2)[(values.sum((1, 2)) > STEPS * INPUTS / 2).astype(int)]
            costs.append(sess.run([cost, optimizer], {x: batch_x, y: batch_y, seqlen: batch_seqlen})[0])
    return np.array(costs).reshape(2, 4).mean(1), [v.name for v in tf.trainable_variables()]


results = {}
for network in (static, bidirectional, with_lengths, stacked):
    random.seed(1)
    with tf.Graph().as_default():
        name = network.__name__
        results[name + " costs"], results[name + " variables"] = train(network)
np.savez("results.npz", **results)
