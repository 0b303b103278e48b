"""`tf.contrib.crf`: linear-chain conditional random fields for sequences of tags.

Args of the functions:
    inputs: scores of tags, of shape [batch, time, tags]: the unary potentials.
    tag_indices: an integer tensor of shape [batch, time].
    sequence_lengths: an integer tensor of shape [batch].
    transition_params: scores of a tag after another one, of shape [tags, tags].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tpk_tensorflow1.missing import finder_in, own_names


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """Return the log-likelihood of each sequence of tags, and the transition scores.

    Without `transition_params`, they are the variable ``transitions`` of the current variable scope.
    """
    if transition_params is None:
        tags = inputs.shape[-1]
        transition_params = tf.compat.v1.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_sequence_score(inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the unnormalized score of each sequence of tags."""
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_multitag_sequence_score(inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the unnormalized score of all sequences of tags that `tag_bitmap` allows.

    Args:
        inputs: as for the other functions.
        tag_bitmap: a boolean tensor of shape [batch, time, tags]: the tags that are possible at each step.
        sequence_lengths: as for the other functions.
        transition_params: as for the other functions.
    """
    inputs = tf.convert_to_tensor(inputs)
    allowed = tf.where(tag_bitmap, inputs, tf.constant(-np.inf, inputs.dtype))
    return crf_log_norm(allowed, sequence_lengths, transition_params)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """Return the sum of the scores of each tag at its step."""
    scores = tf.gather(inputs, tag_indices, batch_dims=2)
    return tf.reduce_sum(scores * _mask(sequence_lengths, scores), 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the sum of the scores of the transitions between the tags."""
    tag_indices = tf.convert_to_tensor(tag_indices)
    scores = tf.gather_nd(transition_params, tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], 2))
    return tf.reduce_sum(scores * _mask(tf.maximum(sequence_lengths, 1) - 1, scores), 1)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the logarithm of the sum of ``exp(score)`` over all sequences of tags; 0 for an empty sequence."""
    by_time, lengths = tf.transpose(inputs, [1, 0, 2]), tf.convert_to_tensor(sequence_lengths)

    def advance(scores: Any, step: Any) -> Any:
        potentials, time = step
        following = potentials + tf.reduce_logsumexp(scores[:, :, None] + transition_params, 1)
        return tf.where((time < lengths)[:, None], following, scores)

    times = tf.range(1, tf.shape(by_time, lengths.dtype)[0], dtype=lengths.dtype)
    scores = tf.foldl(advance, (by_time[1:], times), by_time[0])
    return tf.where(lengths > 0, tf.reduce_logsumexp(scores, 1), tf.zeros([], scores.dtype))


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Return the best sequence of tags and its score, of NumPy arrays.

    Args:
        score: scores of tags, of shape [time, tags].
        transition_params: as for the other functions.
    """
    best, pointers = score[0], []
    for potentials in score[1:]:
        through = best[:, None] + transition_params
        pointers.append(np.argmax(through, 0))
        best = potentials + np.max(through, 0)
    tags = [int(np.argmax(best))]
    for pointer in reversed(pointers):
        tags.append(int(pointer[tags[-1]]))
    return tags[::-1], np.max(best)


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """Return the best sequences of tags, as int32 of shape [batch, time], and their scores.

    Args:
        potentials: the `inputs` of the other functions.
        transition_params: as for the other functions.
        sequence_length: the `sequence_lengths` of the other functions; tags after the end are 0.
    """
    by_time = tf.transpose(potentials, [1, 0, 2])
    lengths = tf.maximum(tf.cast(sequence_length, tf.int32), 1)
    times = tf.range(tf.shape(by_time)[0])
    stay = tf.zeros_like(by_time[0], tf.int32) + tf.range(tf.shape(by_time)[2])

    def advance(state: Any, step: Any) -> Any:
        scores, _ = state
        potentials, time = step
        # There is no transition to the first step.
        through = scores[:, :, None] + transition_params * tf.cast(time > 0, by_time.dtype)
        is_active = (time < lengths)[:, None]
        best = tf.where(is_active, potentials + tf.reduce_max(through, 1), scores)
        return best, tf.where(is_active, tf.argmax(through, 1, tf.int32), stay)

    scores, pointers = tf.scan(advance, (by_time, times), (tf.zeros_like(by_time[0]), stay))
    last = tf.argmax(scores[-1], 1, tf.int32)
    # Each step gives the tag at its time, and the tag before it.
    tags, _ = tf.scan(
        lambda state, pointer: (state[1], tf.gather(pointer, state[1], batch_dims=1)),
        pointers,
        (last, last),
        reverse=True,
    )
    tags = tf.transpose(tags) * tf.sequence_mask(lengths, tf.shape(potentials)[1], tf.int32)
    return tags, tf.reduce_max(scores[-1], 1)


def _mask(lengths: Any, scores: Any) -> Any:
    """Return 1 for the steps within the sequences and 0 for those after them, like scores of shape [batch, time]."""
    return tf.sequence_mask(lengths, tf.shape(scores)[1], scores.dtype)


__all__ = own_names(__name__)

__getattr__ = finder_in("tf.contrib.crf", __all__)
