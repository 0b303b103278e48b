"""Sequence-to-sequence models with ops for each step."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import legacy_seq2seq as seq2seq, rnn


def _words(seed, steps=3):
    return [tf.constant(each) for each in np.random.RandomState(seed).randint(7, size=[steps, 2])]


def _vectors(seed, steps=3):
    return [tf.constant(each, tf.float32) for each in np.random.RandomState(seed).randn(steps, 2, 4)]


def _trained(outputs, *others):
    loss = tf.add_n([tf.reduce_sum(tf.square(each)) for each in outputs])
    return {"outputs": outputs, "others": others, "step": tf.train.GradientDescentOptimizer(0.05).minimize(loss)}


def rnn_decoder():
    cell = rnn.BasicLSTMCell(4)
    outputs, state = seq2seq.rnn_decoder(_vectors(1), cell.zero_state(2, tf.float32), cell)
    return _trained(outputs, state)


def rnn_decoder_with_a_loop_function():
    embedding = tf.get_variable("embedding", [4, 4])

    def following(previous, step):
        return tf.nn.embedding_lookup(embedding, tf.stop_gradient(tf.argmax(previous, 1))) + step

    cell = rnn.MultiRNNCell([rnn.GRUCell(4), rnn.GRUCell(4)])
    outputs, state = seq2seq.rnn_decoder(
        _vectors(1), cell.zero_state(2, tf.float32), cell, loop_function=following, scope="rnnlm"
    )
    return _trained(outputs, state)


def basic():
    outputs, state = seq2seq.basic_rnn_seq2seq(_vectors(1), _vectors(2), rnn.GRUCell(4))
    return _trained(outputs, state)


def embedding():
    outputs, state = seq2seq.embedding_rnn_seq2seq(_words(1), _words(2, 2), rnn.BasicLSTMCell(4), 7, 7, 5)
    return _trained(outputs, state)


def embedding_with_dropout():
    keep = tf.placeholder_with_default(1.0, [])
    cells = [rnn.DropoutWrapper(rnn.BasicLSTMCell(4), output_keep_prob=keep) for _ in range(2)]
    outputs, state = seq2seq.embedding_rnn_seq2seq(_words(1), _words(2, 2), rnn.MultiRNNCell(cells), 7, 7, 5)
    return _trained(outputs, state)


def embedding_with_a_switch():
    outputs, state = seq2seq.embedding_rnn_seq2seq(
        _words(1), _words(2, 2), rnn.BasicLSTMCell(4), 7, 7, 5, feed_previous=tf.constant(True)
    )
    return _trained(outputs, state)


def attention_decoder():
    memory = tf.stack(_vectors(3, 5), 1)
    cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(4), rnn.GRUCell(4)])
    outputs, state = seq2seq.attention_decoder(_vectors(1), cell.zero_state(2, tf.float32), memory, cell)
    return _trained(outputs, state)


def attention_decoder_with_heads():
    memory = tf.stack(_vectors(3, 5), 1)
    outputs, state = seq2seq.attention_decoder(
        _vectors(1), tf.ones([2, 4]), memory, rnn.GRUCell(4), 6, num_heads=2, initial_state_attention=True
    )
    return _trained(outputs, state)


def embedding_attention():
    cell = rnn.MultiRNNCell([rnn.GRUCell(4), rnn.GRUCell(4)])
    outputs, state = seq2seq.embedding_attention_seq2seq(_words(1), _words(2, 2), cell, 7, 7, 5)
    return _trained(outputs, state)


def embedding_attention_with_a_switch():
    feed_previous = tf.placeholder_with_default(True, [])
    outputs, state = seq2seq.embedding_attention_seq2seq(
        _words(1), _words(2, 2), rnn.BasicLSTMCell(4), 7, 7, 5, feed_previous=feed_previous
    )
    return _trained(outputs, state)


def embedding_with_projection():
    projection = tf.get_variable("w", [4, 7]), tf.get_variable("b", [7])
    outputs, state = seq2seq.embedding_rnn_seq2seq(
        _words(1), _words(2, 2), rnn.GRUCell(4), 7, 7, 5, projection, feed_previous=True
    )
    return _trained(outputs, state)


def embedding_attention_with_projection():
    projection = tf.get_variable("w", [4, 7]), tf.get_variable("b", [7])
    outputs, state = seq2seq.embedding_attention_seq2seq(
        _words(1), _words(2, 2), rnn.GRUCell(4), 7, 7, 5, output_projection=projection, feed_previous=True
    )
    return _trained(outputs, state)


def losses():
    logits, targets = _vectors(1), [each % 4 for each in _words(2)]
    weights = [tf.constant([1.0, 0.5]), tf.constant([0.0, 0.5]), tf.constant([0.0, 1.0])]

    def squared(labels, logits):
        return tf.square(tf.cast(labels, tf.float32) - logits[:, 0])

    return {
        "by example": seq2seq.sequence_loss_by_example(logits, targets, weights),
        "sums": seq2seq.sequence_loss_by_example(logits, targets, weights, average_across_timesteps=False),
        "custom": seq2seq.sequence_loss_by_example(logits, targets, weights, softmax_loss_function=squared),
        "all": seq2seq.sequence_loss(logits, targets, weights),
        "batch": seq2seq.sequence_loss(logits, targets, weights, average_across_batch=False),
        "of one": seq2seq.sequence_loss_by_example([tf.concat(logits, 0)], [tf.concat(targets, 0)], [tf.ones([6])]),
    }


def buckets():
    def model(encoder_inputs, decoder_inputs):
        return seq2seq.basic_rnn_seq2seq(encoder_inputs, decoder_inputs, rnn.GRUCell(4))

    targets, weights = [each % 4 for each in _words(3)], [tf.ones([2])] * 3
    outputs, losses = seq2seq.model_with_buckets(_vectors(1), _vectors(2), targets, weights, [(2, 2), (3, 3)], model)
    with tf.variable_scope("again"):
        _, by_example = seq2seq.model_with_buckets(
            _vectors(1), _vectors(2), targets, weights, [(2, 3)], model, per_example_loss=True
        )
    return [outputs, losses, by_example]
