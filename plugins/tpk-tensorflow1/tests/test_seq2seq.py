"""Decoders, attention and beam search of `tf.contrib.seq2seq`, against plain computations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow
import tpk_tensorflow1 as tf
from tpk_tensorflow1.contrib import rnn, seq2seq

rng = np.random.default_rng(0)
TRANSITIONS = rng.normal(size=[5, 5]).astype(np.float32)
"""The logits of a symbol after another one."""


@pytest.fixture
def graph():
    with tensorflow.Graph().as_default() as graph:
        tensorflow.compat.v1.disable_control_flow_v2()  # scripts run without it
        yield graph
        tensorflow.compat.v1.enable_control_flow_v2()


def run(fetches):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches)


class Markov(tf.nn.rnn_cell.RNNCell):
    """A cell whose outputs depend on its inputs only."""

    state_size = 1
    output_size = 5

    def call(self, inputs, state):
        return inputs, state


def best_sequences(start, end, steps, length_penalty):
    """Return all sequences of symbols that begin after `start`, from the best to the worst."""
    log_probabilities = TRANSITIONS - np.log(np.exp(TRANSITIONS).sum(1, keepdims=True))
    scores = {}
    for symbols in itertools.product(range(5), repeat=steps):
        length = symbols.index(end) + 1 if end in symbols else steps
        pairs = itertools.pairwise((start, *symbols[:length]))
        score = sum(log_probabilities[pair] for pair in pairs)
        # The penalty counts the end token, but not in the step in which it comes, here the last one.
        counted = length - 1 if length == steps and end in symbols else length
        scores[symbols[:length] + (end,) * (steps - length)] = score / ((5 + counted) / 6) ** length_penalty
    return sorted(scores, key=scores.get, reverse=True)


@pytest.mark.parametrize("length_penalty", [0.0, 2.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(graph, length_penalty):
    width = 5**3
    decoder = seq2seq.BeamSearchDecoder(
        Markov(), TRANSITIONS, [0, 3], 2, tf.zeros([2 * width, 1]), width, length_penalty_weight=length_penalty
    )
    outputs, _, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=3)
    found = run(outputs.predicted_ids)
    for example, start in enumerate([0, 3]):
        best = best_sequences(start, 2, 3, length_penalty)[:10]
        assert [tuple(found[example, :, beam]) for beam in range(10)] == best


def test_greedy_decoding_follows_the_largest_outputs_until_the_end_token(graph):
    helper = seq2seq.GreedyEmbeddingHelper(TRANSITIONS, [0, 3], 2)
    outputs, _, lengths = seq2seq.dynamic_decode(
        seq2seq.BasicDecoder(Markov(), helper, tf.zeros([2, 1])), impute_finished=True, maximum_iterations=6
    )
    samples, counts = run([outputs.sample_id, lengths])
    for start, sample, count in zip([0, 3], samples, counts, strict=True):
        expected = [start]
        while expected[-1] != 2 or len(expected) == 1:
            expected.append(int(TRANSITIONS[expected[-1]].argmax()))
            if len(expected) == 7:
                break
        assert sample[:count].tolist() == expected[1:]


@pytest.mark.parametrize("attention", ["BahdanauAttention", "LuongAttention", "LuongMonotonicAttention"])
def test_attention_ignores_what_is_after_the_end_of_a_sequence(graph, attention):
    memory, longer = rng.normal(size=[2, 4, 3]), rng.normal(size=[2, 2, 3])
    alignments = []
    for values in (memory, np.concatenate([memory, longer], 1)):
        with tf.variable_scope("scope", reuse=tf.AUTO_REUSE):
            mechanism = getattr(seq2seq, attention)(6, tf.constant(values, tf.float32), [4, 2])
            state = mechanism.initial_state(2, tf.float32)
            alignments.append(mechanism(tf.ones([2, 6]), state)[0])
    short, padded = run(alignments)
    np.testing.assert_allclose(padded[:, :4], short, rtol=1e-5, atol=1e-7)
    assert padded[0, 4:].tolist() == [0, 0]
    assert padded[1, 2:].tolist() == [0, 0, 0, 0]


def test_monotonic_alignments_are_those_of_the_recursion(graph):
    p = rng.uniform(0.1, 0.9, size=[3, 5])
    previous = rng.dirichlet(np.ones(5), size=3)
    recursive, parallel, hard = run(
        [
            seq2seq.monotonic_attention(p, previous, "recursive"),
            seq2seq.monotonic_attention(p, previous, "parallel"),
            seq2seq.monotonic_attention(np.eye(5)[[3, 1, 4]], np.eye(5)[[1, 1, 2]], "hard"),
        ]
    )
    np.testing.assert_allclose(parallel, recursive, rtol=1e-6)
    np.testing.assert_array_equal(hard, np.eye(5)[[3, 1, 4]])
    with pytest.raises(ValueError, match="expected 'recursive', 'parallel' or 'hard'"):
        seq2seq.monotonic_attention(p, previous, "soft")


def test_an_attention_cell_trains_and_keeps_its_alignments(graph):
    memory = tf.constant(rng.normal(size=[2, 4, 3]), tf.float32)
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(5), seq2seq.BahdanauAttention(6, memory), 7, alignment_history=True)
    helper = seq2seq.TrainingHelper(tf.ones([2, 3, 2]), [3, 2])
    outputs, state, _ = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32)))
    assert outputs.rnn_output.shape.as_list() == [2, None, 7]
    assert all(gradient is not None for gradient in tf.gradients(outputs.rnn_output, tf.trainable_variables()))
    np.testing.assert_allclose(run(state.alignment_history.stack()).sum(2), np.ones([3, 2]), rtol=1e-5)


def test_errors_of_decoders(graph):
    memory = tf.ones([2, 4, 3])
    mechanism = seq2seq.LuongAttention(6, memory)
    with pytest.raises(ValueError, match=r"LuongAttention: the query has 5 features, expected num_units=6"):
        mechanism(tf.ones([2, 5]), mechanism.initial_state(2, tf.float32))
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(6), mechanism)
    with pytest.raises(tf.errors.InvalidArgumentError, match="pass the memory and its lengths through tile_batch"):
        cell.zero_state(6, tf.float32)
    with pytest.raises(TypeError, match="start from zero_state"):
        cell(tf.ones([2, 3]), tf.ones([2, 6]))
    with pytest.raises(TypeError, match="expected one mechanism"):
        seq2seq.AttentionWrapper(rnn.GRUCell(6), [mechanism, mechanism])
    with pytest.raises(ValueError, match=r"do not have the shapes \[batch\] and \[\]"):
        seq2seq.GreedyEmbeddingHelper(TRANSITIONS, [0, 3], [2])
    with pytest.raises(ValueError, match="there is no coverage penalty; set"):
        seq2seq.BeamSearchDecoder(Markov(), TRANSITIONS, [0], 2, tf.zeros([3, 1]), 3, coverage_penalty_weight=0.2)
    with_history = seq2seq.AttentionWrapper(rnn.GRUCell(6), mechanism, alignment_history=True)
    with pytest.raises(ValueError, match=r"beams need AttentionWrapper\(alignment_history=False\)"):
        seq2seq.BeamSearchDecoder(with_history, TRANSITIONS, [0], 2, with_history.zero_state(2, tf.float32), 2)
