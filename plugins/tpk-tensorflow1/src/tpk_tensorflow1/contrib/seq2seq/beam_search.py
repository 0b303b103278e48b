"""Beam search: the sequences with the best scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tpk_tensorflow1.contrib.seq2seq.decoding import Decoder
from tpk_tensorflow1.contrib.seq2seq.helpers import _lookup
from tpk_tensorflow1.missing import own_names


class BeamSearchDecoderState(NamedTuple):
    """The state of a `BeamSearchDecoder`.

    Attributes:
        cell_state: the state of the cell, of shape [batch, beams, ...].
        log_probs: the log-probability of each beam.
        finished: whether each beam is finished.
        lengths: the length of each beam, with the end token.
        accumulated_attention_probs: ().
    """

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any


class BeamSearchDecoderOutput(NamedTuple):
    """The outputs of the steps of a `BeamSearchDecoder`, of shape [batch, time, beams].

    Attributes:
        scores: the scores of the best beams.
        predicted_ids: their last integers.
        parent_ids: the beams of the step before from which they come.
    """

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """The outputs of `dynamic_decode` with a `BeamSearchDecoder`.

    Attributes:
        predicted_ids: the sequences, from the best to the worst, of shape [batch, time, beams].
        beam_search_decoder_output: the outputs of the steps.
    """

    predicted_ids: Any
    beam_search_decoder_output: Any


class BeamSearchDecoder(Decoder):
    """A decoder for the sequences with the best scores.

    The score of a sequence is its log-probability, divided by ``((5 + length) / 6) ** length_penalty_weight`` (Wu et
    al., https://arxiv.org/abs/1609.08144).

    Args:
        cell: the cell.
        embedding: a tensor of embeddings, or a function of integers.
        start_tokens: the integers before the first step, of shape [batch].
        end_token: the integer that finishes a sequence.
        initial_state: the initial state of the cell, with beams: pass tensors through `tile_batch`.
        beam_width: the number of beams.
        output_layer: a layer that makes logits of the outputs of the cell.
        length_penalty_weight: 0 for no penalty.
        coverage_penalty_weight: must be 0.
    """

    tracks_own_finished = True

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: float = 0.0,
        coverage_penalty_weight: float = 0.0,
    ) -> None:
        if coverage_penalty_weight:
            raise ValueError("BeamSearchDecoder: there is no coverage penalty; set coverage_penalty_weight=0")
        if any(isinstance(each, tf.TensorArray) for each in tf.nest.flatten(initial_state)):
            raise ValueError("BeamSearchDecoder: beams need AttentionWrapper(alignment_history=False)")
        self._cell = cell
        self._embedding_fn = _lookup(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32)
        self._end_token = end_token
        self._beam_width = beam_width
        self._output_layer = output_layer
        self._length_penalty_weight = length_penalty_weight
        self.batch_size = self._start_tokens.shape[0] or tf.size(self._start_tokens)
        self._initial_cell_state = _map_batches(self._split, initial_state)

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        """The shapes of the outputs of a step."""
        return BeamSearchDecoderOutput(*[tf.TensorShape([self._beam_width])] * 3)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        """The dtypes of the outputs of a step."""
        return BeamSearchDecoderOutput(self._dtype, tf.int32, tf.int32)

    @property
    def _dtype(self) -> Any:
        return tf.nest.flatten(self._initial_cell_state)[0].dtype

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Return which beams are finished before the first step, its inputs and its state."""
        is_first = tf.one_hot(tf.zeros([self.batch_size], tf.int32), self._beam_width, True, False)
        # All beams begin with the same token, and so all but the first are impossible.
        log_probs = tf.where(is_first, tf.zeros([], self._dtype), tf.constant(-np.inf, self._dtype))
        tokens = tf.tile(self._start_tokens[:, None], [1, self._beam_width])
        lengths = tf.zeros_like(log_probs, tf.int64)
        state = BeamSearchDecoderState(self._initial_cell_state, log_probs, ~is_first, lengths, ())
        return ~is_first, self._embedding_fn(tokens), state

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Return the outputs, the next state, the next inputs, and which beams are finished."""
        with tf.name_scope(name or "BeamSearchDecoderStep"):
            inputs, cell_state = _map_batches(self._merge, (inputs, state.cell_state))
            logits, cell_state = self._cell(inputs, cell_state)
            if self._output_layer is not None:
                logits = self._output_layer(logits)
            logits, cell_state = _map_batches(self._split, (logits, cell_state))
            outputs, state = self._search(logits, state._replace(cell_state=cell_state))
            return outputs, state, self._embedding_fn(outputs.predicted_ids), state.finished

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Return the sequences, and the final state."""
        longest = tf.cast(tf.reduce_max(final_state.lengths, 1), tf.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _search(self, logits: Any, state: BeamSearchDecoderState) -> tuple[Any, BeamSearchDecoderState]:
        """Choose the best beams among all continuations."""
        symbols = logits.shape[-1] or tf.shape(logits)[-1]
        is_end = tf.one_hot(self._end_token, symbols, True, False)
        # A finished beam goes on with end tokens only, which change neither its probability nor its length.
        after_end = tf.where(is_end, tf.zeros([], logits.dtype), logits.dtype.min)
        log_probs = tf.where(state.finished[:, :, None], after_end, tf.nn.log_softmax(logits))
        log_probs += state.log_probs[:, :, None]
        is_longer = tf.logical_and(~state.finished[:, :, None], ~is_end)
        scores = log_probs
        if self._length_penalty_weight:
            lengths = tf.cast(state.lengths[:, :, None] + tf.cast(is_longer, tf.int64), scores.dtype)
            scores /= ((5 + lengths) / 6) ** self._length_penalty_weight
        best_scores, best = tf.math.top_k(self._flat(scores), self._beam_width)
        beams, ids = best // symbols, best % symbols

        def chosen(values: Any) -> Any:
            return tf.gather(values, beams, batch_dims=1)

        was_finished = chosen(state.finished)
        next_state = BeamSearchDecoderState(
            cell_state=_map_batches(chosen, state.cell_state),
            log_probs=tf.gather(self._flat(log_probs), best, batch_dims=1),
            finished=tf.logical_or(was_finished, tf.equal(ids, self._end_token)),
            lengths=chosen(state.lengths) + tf.cast(~was_finished, tf.int64),
            accumulated_attention_probs=(),
        )
        return BeamSearchDecoderOutput(best_scores, ids, beams), next_state

    def _flat(self, values: Any) -> Any:
        return tf.reshape(values, [self.batch_size, -1])

    def _split(self, values: Any) -> Any:
        """Turn the shape [batch * beams, ...] into [batch, beams, ...]."""
        batch = tf.get_static_value(tf.convert_to_tensor(self.batch_size))
        split = tf.reshape(values, tf.concat([[self.batch_size, self._beam_width], tf.shape(values)[1:]], 0))
        split.set_shape([batch, self._beam_width, *values.shape[1:]])
        return split

    def _merge(self, values: Any) -> Any:
        """Turn the shape [batch, beams, ...] into [batch * beams, ...]."""
        merged = tf.reshape(values, tf.concat([[self.batch_size * self._beam_width], tf.shape(values)[2:]], 0))
        merged.set_shape([merged.shape[0], *values.shape[2:]])
        return merged


def _map_batches(function: Callable[[Any], Any], structure: Any) -> Any:
    """Call a function of each tensor in a structure that is not a scalar, such as the number of the step."""
    return tf.nest.map_structure(lambda each: each if each.shape.rank == 0 else function(each), structure)


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Repeat each example of a batch.

    Args:
        t: a tensor of shape [batch, ...], or a structure of them.
        multiplier: how often.
        name: the name scope.

    Returns:
        A tensor of shape [batch * multiplier, ...], or a structure of them.
    """
    with tf.name_scope(name or "tile_batch"):
        return tf.nest.map_structure(lambda each: tf.repeat(each, multiplier, 0), t)


def gather_tree(
    step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any, name: str | None = None
) -> Any:
    """Return the sequence of each beam of the last step.

    Args:
        step_ids: the integer of each beam at each step, of shape [time, batch, beams].
        parent_ids: the beam of the step before from which it comes, of the same shape.
        max_sequence_lengths: the number of steps in each batch entry, of shape [batch].
        end_token: what follows the first end token of a sequence, and its last step.
        name: the name scope.

    Returns:
        Integers of the shape of `step_ids`.
    """
    with tf.name_scope(name or "gather_tree"):
        step_ids, parents = tf.convert_to_tensor(step_ids), tf.convert_to_tensor(parent_ids)
        beams = tf.range(tf.shape(step_ids)[2], dtype=parents.dtype) + tf.zeros_like(parents[0])
        in_sequence = tf.transpose(tf.sequence_mask(max_sequence_lengths, tf.shape(step_ids)[0]))[:, :, None]
        parents = tf.where(in_sequence, parents, beams)
        # Each step gives the ancestor at its time, and the one before it.
        ancestors, _ = tf.scan(
            lambda state, parent: (state[1], tf.gather(parent, state[1], batch_dims=1)),
            parents,
            (beams, beams),
            reverse=True,
        )
        ids = tf.where(in_sequence, tf.gather(step_ids, ancestors, batch_dims=2), end_token)
        ends = tf.cumsum(tf.cast(tf.equal(ids, end_token), tf.int32), exclusive=True)
        ids = tf.where(ends > 0, end_token, ids)
        ids.set_shape(step_ids.shape)
        return ids


__all__ = own_names(__name__)
