"""The cells of `tf.contrib.rnn`, and the models of `tf.contrib.legacy_seq2seq`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow
import tpk_tensorflow1 as tf
from tpk_tensorflow1.contrib import legacy_seq2seq, rnn

rng = np.random.default_rng(0)
SEQUENCES = rng.normal(size=[2, 4, 3]).astype(np.float32)

CELLS = {
    "layer_norm_basic_lstm_cell": lambda: rnn.LayerNormBasicLSTMCell(5),
    "nas_cell": lambda: rnn.NASCell(5),
    "output_projection_wrapper": lambda: rnn.OutputProjectionWrapper(rnn.GRUCell(5), 6),
}


@pytest.fixture
def graph():
    with tensorflow.Graph().as_default() as graph:
        tensorflow.compat.v1.disable_control_flow_v2()  # scripts run without it
        tf.set_random_seed(1)
        yield graph
        tensorflow.compat.v1.enable_control_flow_v2()


def run(fetches, feeds=None):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feeds)


@pytest.mark.parametrize("name", CELLS)
def test_a_loop_and_ops_for_each_step_use_a_cell_alike(graph, name):
    with tf.variable_scope("model"):
        outputs, state = tf.nn.dynamic_rnn(CELLS[name](), SEQUENCES, dtype=tf.float32)
    with tf.variable_scope("model", reuse=True):
        steps, last = rnn.static_rnn(CELLS[name](), tf.unstack(SEQUENCES, axis=1), dtype=tf.float32)
    assert all(each.op.name.startswith(f"model/rnn/{name}/") for each in tf.global_variables())
    assert all(gradient is not None for gradient in tf.gradients(outputs, tf.trainable_variables()))
    first, second = run([(outputs, state), (tf.stack(steps, 1), last)])
    for found, expected in zip(tensorflow.nest.flatten(first), tensorflow.nest.flatten(second), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gates_of_the_layer_norm_cell_are_normalized(graph):
    with tf.variable_scope("rnn", initializer=tf.random_normal_initializer()):
        _, state = rnn.LayerNormBasicLSTMCell(64, activation=tensorflow.identity)(
            tf.ones([2, 3]), rnn.LSTMStateTuple(tf.zeros([2, 64]), tf.zeros([2, 64]))
        )
    memory = run(state.c)
    np.testing.assert_allclose(memory.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(memory.std(1), 1, rtol=1e-4)


def test_fused_cells_run_over_sequences_whose_first_axis_is_the_time(graph):
    by_time = tf.transpose(SEQUENCES, [1, 0, 2])
    lengths = tf.constant([4, 2])
    forward = rnn.LSTMBlockFusedCell(5)(by_time, dtype=tf.float32, sequence_length=lengths)
    backward = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(5))(by_time, dtype=tf.float32, sequence_length=lengths)
    names = [each.op.name for each in tf.global_variables()]
    assert names == [f"lstm_fused_cell{number}/{name}" for number in ("", "_1") for name in ("kernel", "bias")]
    with tf.variable_scope("both"):
        expected = tf.nn.bidirectional_dynamic_rnn(
            rnn.LSTMCell(5), rnn.LSTMCell(5), SEQUENCES, lengths, dtype=tf.float32
        )
    variables = tf.global_variables()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([tf.assign(new, old) for old, new in zip(variables[:4], variables[4:], strict=True)])
        found, (outputs, states) = sess.run([(forward, backward), expected])
    for (by_time, state), output, expected_state in zip(found, outputs, states, strict=True):
        np.testing.assert_allclose(by_time.transpose([1, 0, 2]), output, rtol=1e-5)
        np.testing.assert_allclose(state.c, expected_state.c, rtol=1e-5)


def test_a_stack_of_bidirectional_layers_reads_a_sequence_in_both_directions(graph):
    def outputs_for(sequences):
        cells = [[rnn.GRUCell(5), rnn.GRUCell(4)] for _ in range(2)]
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
            return rnn.stack_bidirectional_dynamic_rnn(*cells, sequences, dtype=tf.float32)[0]

    changed = SEQUENCES.copy()
    changed[:, -1] += 1
    before, after = run([outputs_for(SEQUENCES), outputs_for(changed)])
    assert before.shape == (2, 4, 8)
    assert (before[:, 0] != after[:, 0]).any()


@pytest.mark.parametrize("name", ["embedding_rnn_seq2seq", "embedding_attention_seq2seq"])
def test_a_tensor_decides_whether_a_decoder_reads_its_outputs(graph, name):
    encoder_inputs, decoder_inputs = ([tf.constant(each) for each in rng.integers(7, size=[3, 2])] for _ in range(2))

    def outputs_for(feed_previous):
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE, initializer=tf.random_normal_initializer()):
            outputs, _ = getattr(legacy_seq2seq, name)(
                encoder_inputs, decoder_inputs, rnn.GRUCell(4), 7, 7, 5, feed_previous=feed_previous
            )
        return tf.stack(outputs)

    decides = tf.placeholder(tf.bool, [])
    fetches = {key: outputs_for(key) for key in (False, True)}
    fetches["tensor"] = outputs_for(decides)
    for choice in (False, True):
        found = run(fetches, {decides: choice})
        np.testing.assert_allclose(found["tensor"], found[choice], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[True][0], found[False][0], rtol=1e-5, atol=1e-6)
        assert np.abs(found[True] - found[False]).max() > 1e-3


def test_the_copy_of_a_cell_in_the_encoder_shares_its_tensors(graph):
    keep, words = tf.placeholder(tf.float32, []), [tf.constant([1, 2])] * 2
    cell = rnn.DropoutWrapper(rnn.GRUCell(4), output_keep_prob=keep)
    outputs, _ = legacy_seq2seq.embedding_rnn_seq2seq(words, words, cell, 7, 7, 5)
    first, second = (run(tf.stack(outputs), {keep: fraction}) for fraction in (1.0, 0.01))
    assert (first != second).any()


def test_buckets_share_variables_and_have_losses_of_their_own(graph):
    inputs = [tf.constant(each) for each in rng.normal(size=[3, 2, 4]).astype(np.float32)]
    targets, weights = [tf.constant([1, 2])] * 3, [tf.constant([1.0, 0.5])] * 3

    def model(encoder_inputs, decoder_inputs):
        return legacy_seq2seq.basic_rnn_seq2seq(encoder_inputs, decoder_inputs, rnn.GRUCell(4))

    outputs, losses = legacy_seq2seq.model_with_buckets(inputs, inputs, targets, weights, [(1, 2), (3, 3)], model)
    assert len(tf.trainable_variables()) == 8
    logits, losses = run([outputs, losses])
    for bucket, loss in zip(logits, losses, strict=True):
        entropy = [np.log(np.exp(each).sum(1)) - each[[0, 1], [1, 2]] for each in bucket]
        assert loss == pytest.approx(np.mean(entropy), rel=1e-5)
