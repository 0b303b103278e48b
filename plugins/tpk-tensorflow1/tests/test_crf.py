"""`tf.contrib.crf` against a sum over all sequences of tags."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow
from tpk_tensorflow1.contrib import crf

rng = np.random.default_rng(0)
INPUTS, TRANSITIONS = rng.normal(size=[3, 4, 3]), rng.normal(size=[3, 3])
LENGTHS = [4, 2, 1]


def run(function):
    with tensorflow.Graph().as_default(), tensorflow.compat.v1.Session() as sess:
        return sess.run(function())


def scores_of_all_sequences(example):
    """Map each sequence of tags of an example to its score."""
    length = LENGTHS[example]
    return {
        tags: sum(INPUTS[example, range(length), tags]) + sum(TRANSITIONS[tags[:-1], tags[1:]])
        for tags in itertools.product(range(3), repeat=length)
    }


def test_likelihoods_are_fractions_of_the_sum_over_all_sequences():
    tags = np.array([[0, 2, 1, 1], [2, 0, 0, 0], [1, 0, 0, 0]])
    likelihoods = run(lambda: crf.crf_log_likelihood(tensorflow.constant(INPUTS), tags, LENGTHS, TRANSITIONS)[0])
    for example, found in enumerate(likelihoods):
        scores = scores_of_all_sequences(example)
        probability = np.exp(scores[tuple(tags[example, : LENGTHS[example]])]) / np.exp([*scores.values()]).sum()
        assert found == pytest.approx(np.log(probability))


def test_decoding_finds_the_best_of_all_sequences():
    tags, best_scores = run(lambda: crf.crf_decode(INPUTS, TRANSITIONS, LENGTHS))
    for example, length in enumerate(LENGTHS):
        scores = scores_of_all_sequences(example)
        best = max(scores, key=scores.get)
        assert tuple(tags[example]) == (*best, *[0] * (4 - length))
        assert best_scores[example] == pytest.approx(scores[best])
        assert crf.viterbi_decode(INPUTS[example, :length], TRANSITIONS) == (list(best), pytest.approx(scores[best]))


def test_a_bitmap_allows_some_of_the_sequences():
    bitmap = np.ones([3, 4, 3], bool)
    bitmap[0, 1, 2] = bitmap[0, 3, 0] = False
    found = run(lambda: crf.crf_multitag_sequence_score(INPUTS, bitmap, LENGTHS, TRANSITIONS))
    allowed = [score for tags, score in scores_of_all_sequences(0).items() if tags[1] != 2 and tags[3] != 0]
    assert found[0] == pytest.approx(np.log(np.exp(allowed).sum()))
