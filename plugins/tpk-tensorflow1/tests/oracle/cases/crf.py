"""Conditional random fields."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import crf

LENGTHS = [5, 2, 0, 1]


def _potentials(time=5, seed=1):
    return tf.constant(np.random.RandomState(seed).randn(4, time, 3), tf.float32)


def _tags(time=5):
    return tf.constant(np.random.RandomState(2).randint(3, size=[4, time]), tf.int32)


def _transitions():
    return tf.constant(np.random.RandomState(3).randn(3, 3), tf.float32)


def scores_of_sequences():
    inputs, tags, transitions = _potentials(), _tags(), _transitions()
    lengths = tf.constant(LENGTHS)
    bitmap = tf.constant(np.random.RandomState(4).rand(4, 5, 3) > 0.4) | tf.one_hot(tags, 3, True, False)
    return {
        "unary": crf.crf_unary_score(tags, LENGTHS, inputs),
        "binary": crf.crf_binary_score(tags, LENGTHS, transitions),
        "sequence": crf.crf_sequence_score(inputs, tags, LENGTHS, transitions),
        "norm": crf.crf_log_norm(inputs, lengths, transitions),
        "norm of int64": crf.crf_log_norm(inputs, tf.constant(LENGTHS, tf.int64), transitions),
        "multitag": crf.crf_multitag_sequence_score(inputs, bitmap, lengths, transitions),
    }


def training_of_transitions():
    inputs = tf.get_variable("inputs", initializer=_potentials())
    likelihood, transitions = crf.crf_log_likelihood(inputs, _tags(), tf.constant(LENGTHS))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(-tf.reduce_mean(likelihood))
    return {"likelihood": likelihood, "transitions": transitions, "step": step}


def best_sequences():
    tags, scores = crf.crf_decode(_potentials(), _transitions(), tf.constant(LENGTHS))
    array = np.random.RandomState(1).randn(6, 3)
    return {
        "tags": tags,
        "scores": scores,
        "of int64": crf.crf_decode(_potentials(), _transitions(), tf.constant(LENGTHS, tf.int64)),
        "of an array": np.array(crf.viterbi_decode(array, np.random.RandomState(3).randn(3, 3))[0]),
        "score of an array": crf.viterbi_decode(array, np.random.RandomState(3).randn(3, 3))[1],
        "of one step": np.array(crf.viterbi_decode(array[:1], np.eye(3))[0]),
    }


def sequences_of_one_step():
    inputs, tags, transitions = _potentials(1), _tags(1), _transitions()
    unknown = tf.placeholder_with_default(inputs, [None, None, 3])
    lengths = tf.constant([1, 1, 0, 1])
    return [
        crf.crf_decode(inputs, transitions, lengths),
        crf.crf_decode(unknown, transitions, lengths),
        crf.crf_log_likelihood(inputs, tags, lengths, transitions)[0],
        crf.crf_log_likelihood(unknown, tags, lengths, transitions)[0],
        crf.crf_multitag_sequence_score(inputs, tf.ones([4, 1, 3], tf.bool), tf.ones([4], tf.int32), transitions),
    ]
