"""Attention over a memory, and the cell that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tpk_tensorflow1 import rnn_cell
from tpk_tensorflow1.layers import Dense
from tpk_tensorflow1.missing import own_names

v1 = tf.compat.v1

Function = Callable[..., Any]


class AttentionMechanism:
    """The base of attention mechanisms.

    Its objects have `batch_size`, `alignments_size`, `state_size` and `values`, and the methods `initial_alignments`
    and `initial_state`. They are called with a query and a state, and return alignments and the next state.
    """


class _BaseAttentionMechanism(AttentionMechanism):
    """Attention whose state is the alignments: a weight for each step of the memory.

    A subclass computes the score of each step in `_score`.

    Args:
        num_units: the size to which the memory is projected.
        memory: a tensor of shape [batch, time, size].
        memory_sequence_length: an integer tensor of shape [batch]; None for all steps.
        normalize: an option of the scores.
        probability_fn: maps scores to alignments; None for the softmax.
        score_mask_value: the score after the end of a sequence; None for minus infinity.
        dtype: the dtype of the layers.
        name: the name scope.
    """

    _scope: str

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Function | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        self._num_units = num_units
        self._normalize = normalize
        self._of_scores = probability_fn or tf.nn.softmax
        self._lengths = memory_sequence_length
        self._mask_value = -np.inf if score_mask_value is None else score_mask_value
        self.query_layer = Dense(num_units, use_bias=False, name="query_layer", dtype=dtype)
        self.memory_layer = Dense(num_units, use_bias=False, name="memory_layer", dtype=dtype)
        with tf.name_scope(name or type(self).__name__):
            self.values = tf.convert_to_tensor(memory)
            if memory_sequence_length is not None:
                mask = tf.sequence_mask(memory_sequence_length, tf.shape(memory)[1], self.values.dtype)
                self.values *= mask[:, :, None]
            self.keys = self.memory_layer(self.values)
            sizes = zip(self.keys.shape[:2].as_list(), tf.unstack(tf.shape(self.keys)[:2]), strict=True)
            self.batch_size, self.alignments_size = (known or dynamic for known, dynamic in sizes)
        self.state_size = self._alignments_size = self.alignments_size
        self._keys, self._values = self.keys, self.values

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Return the alignments before the first step: zeros."""
        return tf.zeros([batch_size, self.alignments_size], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state before the first step: the alignments."""
        return self.initial_alignments(batch_size, dtype)

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Return the alignments for a query, which are the next state.

        Args:
            query: a tensor of shape [batch, size].
            state: the alignments before.
        """
        with v1.variable_scope(None, self._scope):
            alignments = self._probability_fn(self._score(query), state)
        return alignments, alignments

    def _probability_fn(self, score: Any, previous: Any) -> Any:
        return self._of_scores(_maybe_mask_score(score, self._lengths, self._mask_value))


class BahdanauAttention(_BaseAttentionMechanism):
    """The additive attention of Bahdanau et al., https://arxiv.org/abs/1409.0473.

    With `normalize`, its weights are normalized (Salimans et al., https://arxiv.org/abs/1602.07868).
    """

    _scope = "bahdanau_attention"

    def _score(self, query: Any) -> Any:
        hidden = self.keys + self.query_layer(query)[:, None]
        vector = v1.get_variable("attention_v", [self._num_units], hidden.dtype)
        if self._normalize:
            initializer = v1.constant_initializer(self._num_units**-0.5)
            length = v1.get_variable("attention_g", [], hidden.dtype, initializer)
            hidden += v1.get_variable("attention_b", [self._num_units], hidden.dtype, v1.zeros_initializer())
            vector = length * vector * tf.math.rsqrt(tf.reduce_sum(tf.square(vector)))
        return tf.reduce_sum(vector * tf.tanh(hidden), 2)


class LuongAttention(_BaseAttentionMechanism):
    """The multiplicative attention of Luong et al., https://arxiv.org/abs/1508.04025.

    With `scale`, which is its argument instead of `normalize`, scores are multiplied by a variable.
    """

    _scope = "luong_attention"

    def __init__(
        self, num_units: int, memory: Any, memory_sequence_length: Any = None, scale: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(num_units, memory, memory_sequence_length, scale, **kwargs)

    def _score(self, query: Any) -> Any:
        if query.shape[-1] != self._num_units:
            name, features = type(self).__name__, query.shape[-1]
            raise ValueError(f"{name}: the query has {features} features, expected num_units={self._num_units}")
        score = tf.einsum("bd,btd->bt", query, self.keys)
        return (
            score * v1.get_variable("attention_g", [], score.dtype, v1.ones_initializer()) if self._normalize else score
        )


class _Monotonic(_BaseAttentionMechanism):
    """Makes an attention monotonic (Raffel et al., https://arxiv.org/abs/1704.00784).

    Args:
        args: as for the attention.
        sigmoid_noise: the standard deviation of noise that is added to scores.
        sigmoid_noise_seed: the seed of the noise.
        score_bias_init: the initial value of a bias of the scores.
        mode: as for `monotonic_attention`.
        kwargs: as for the attention.
    """

    def __init__(
        self,
        *args: Any,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._noise, self._seed = sigmoid_noise, sigmoid_noise_seed
        self._bias_initializer = v1.constant_initializer(score_bias_init)
        self._mode = mode

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Return the alignments before the first step: all weight on the first step of the memory."""
        return tf.one_hot(tf.zeros([batch_size], tf.int32), self.alignments_size, dtype=dtype)

    def _score(self, query: Any) -> Any:
        score = super()._score(query)
        return score + v1.get_variable("attention_score_bias", [], score.dtype, self._bias_initializer)

    def _probability_fn(self, score: Any, previous: Any) -> Any:
        score = _maybe_mask_score(score, self._lengths, self._mask_value)
        if self._noise:
            with tf.control_dependencies([score]):  # A loop runs ops without inputs in any order.
                score += self._noise * tf.random.normal(tf.shape(score), dtype=score.dtype, seed=self._seed)
        choices = tf.cast(score > 0, score.dtype) if self._mode == "hard" else tf.sigmoid(score)
        return monotonic_attention(choices, previous, self._mode)


class BahdanauMonotonicAttention(_Monotonic, BahdanauAttention):
    """A monotonic `BahdanauAttention`."""

    _scope = "bahdanau_monotonic_attention"


class LuongMonotonicAttention(_Monotonic, LuongAttention):
    """A monotonic `LuongAttention`."""

    _scope = "luong_monotonic_attention"


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`.

    Attributes:
        cell_state: the state of the cell.
        attention: the output of the last step.
        time: the number of the step.
        alignments: the alignments of the last step.
        alignment_history: a `tf.TensorArray` of all alignments, or ().
        attention_state: the state of the mechanism.
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Return a copy with other values."""
        return self._replace(**kwargs)


class AttentionWrapper(rnn_cell.RNNCell):
    """A cell that attends to a memory: its outputs depend on the memory's mean, weighted by alignments.

    Args:
        cell: the cell.
        attention_mechanism: an `AttentionMechanism`.
        attention_layer_size: the size of the layer that combines the outputs of the cell and the mean; None for the
            mean itself.
        alignment_history: whether the state has the alignments of all steps.
        cell_input_fn: combines the inputs and the attention of the step before; by default it concatenates them.
        output_attention: whether the attention is the output; otherwise it is the output of the cell.
        initial_cell_state: the initial state of the cell; by default its zero state.
        name: the variable scope, by default ``attention_wrapper``.
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: int | None = None,
        alignment_history: bool = False,
        cell_input_fn: Function | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if isinstance(attention_mechanism, list | tuple):
            raise TypeError("AttentionWrapper: there is a list of attention mechanisms, expected one mechanism")
        self._attention_mechanism = attention_mechanism
        self._attention_layer, self._attention_layer_size = None, attention_mechanism.values.shape[-1]
        if attention_layer_size is not None:
            self._attention_layer = Dense(attention_layer_size, use_bias=False, name="attention_layer")
            self._attention_layer_size = attention_layer_size
        self._cell = cell
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: tf.concat([inputs, attention], -1))
        self._alignment_history = alignment_history
        self._output_attention = output_attention
        self._initial_cell_state = initial_cell_state

    @property
    def output_size(self) -> Any:
        """The size of the outputs."""
        return self._attention_layer_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        """The sizes of the state."""
        size = self._attention_mechanism.alignments_size
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            attention=self._attention_layer_size,
            time=tf.TensorShape([]),
            alignments=size,
            alignment_history=size if self._alignment_history else (),
            attention_state=self._attention_mechanism.state_size,
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """Return the initial state.

        Args:
            batch_size: the batch size, which must be that of the memory; a decoder with beams has as many times more.
            dtype: the dtype of the state.
        """

        mechanism = self._attention_mechanism
        message = (
            "AttentionWrapper: the memory has another batch size than the state. With a BeamSearchDecoder, pass the "
            "memory and its lengths through tile_batch, and batch_size * beam_width to zero_state"
        )
        is_equal = v1.assert_equal(batch_size, mechanism.batch_size, message=message)
        with tf.name_scope("AttentionWrapperZeroState"), tf.control_dependencies([is_equal]):
            cell_state = self._initial_cell_state
            if cell_state is None:
                cell_state = self._cell.zero_state(batch_size, dtype)
            alignments, history = mechanism.initial_alignments(batch_size, dtype), ()
            if self._alignment_history:
                history = tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=alignments.shape)
            return AttentionWrapperState(
                cell_state=tf.nest.map_structure(tf.identity, cell_state),
                attention=tf.zeros([batch_size, self._attention_layer_size], dtype),
                time=tf.zeros([], tf.int32),
                alignments=alignments,
                alignment_history=history,
                attention_state=mechanism.initial_state(batch_size, dtype),
            )

    def call(self, inputs: Any, state: AttentionWrapperState) -> tuple[Any, AttentionWrapperState]:
        """Compute the outputs, and the next state."""
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(f"AttentionWrapper: the state is {state!r}; start from zero_state().clone(cell_state=...)")
        cell_inputs = self._cell_input_fn(inputs, state.attention)
        outputs, cell_state = self._cell(cell_inputs, state.cell_state)
        attention, alignments, attention_state = _compute_attention(
            self._attention_mechanism, outputs, state.attention_state, self._attention_layer
        )
        history = state.alignment_history
        if self._alignment_history:
            history = history.write(state.time, alignments)
        state = AttentionWrapperState(cell_state, attention, state.time + 1, alignments, history, attention_state)
        return attention if self._output_attention else outputs, state


def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> Any:
    """Return monotonic alignments.

    Args:
        p_choose_i: the probability of choosing each step of the memory, of shape [batch, time].
        previous_attention: the alignments before, of shape [batch, time].
        mode: ``"recursive"`` is exact; ``"parallel"`` is faster, but inexact for long memories; ``"hard"`` takes
            probabilities that are 0 or 1.
    """
    p, previous = tf.convert_to_tensor(p_choose_i), tf.convert_to_tensor(previous_attention)
    if mode == "recursive":
        skipped = tf.concat([tf.ones_like(p[:, :1]), 1 - p[:, :-1]], 1)
        arrived = tf.scan(
            lambda before, each: each[0] * before + each[1],
            (tf.transpose(skipped), tf.transpose(previous)),
            tf.zeros_like(p[:, 0]),
        )
        return p * tf.transpose(arrived)
    if mode == "parallel":
        not_chosen = safe_cumprod(1 - p, axis=1, exclusive=True)
        return p * not_chosen * tf.cumsum(previous / tf.clip_by_value(not_chosen, 1e-10, 1), axis=1)
    if mode == "hard":
        p *= tf.cumsum(previous, axis=1)
        return p * tf.math.cumprod(1 - p, axis=1, exclusive=True)
    raise ValueError(f"monotonic_attention(mode={mode!r}): expected 'recursive', 'parallel' or 'hard'")


def safe_cumprod(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the cumulative product of numbers in [0, 1], as the exponential of a sum; see `tf.cumsum`."""
    x = tf.convert_to_tensor(x)
    tiny = np.finfo(x.dtype.as_numpy_dtype).tiny
    return tf.exp(tf.cumsum(tf.math.log(tf.clip_by_value(x, tiny, 1)), *args, **kwargs))


def hardmax(logits: Any, name: str | None = None) -> Any:
    """Return 1 for the largest of the last axis, and 0 for the others."""
    logits = tf.convert_to_tensor(logits)
    return tf.one_hot(tf.argmax(logits, -1), tf.shape(logits)[-1], dtype=logits.dtype, name=name or "Hardmax")


def _compute_attention(
    attention_mechanism: Any, cell_output: Any, attention_state: Any, attention_layer: Any
) -> tuple[Any, Any, Any]:
    """Return the attention, the alignments and the next state of a mechanism."""
    alignments, next_state = attention_mechanism(cell_output, state=attention_state)
    mean = tf.squeeze(tf.matmul(alignments[:, None], attention_mechanism.values), 1)
    attention = mean if attention_layer is None else attention_layer(tf.concat([cell_output, mean], 1))
    return attention, alignments, next_state


def _maybe_mask_score(score: Any, memory_sequence_length: Any, score_mask_value: Any) -> Any:
    """Replace the scores of steps after the end of sequences."""
    if memory_sequence_length is None:
        return score
    message = "memory_sequence_length: expected positive lengths; there are no alignments with an empty memory"
    with tf.control_dependencies([v1.assert_positive(memory_sequence_length, message=message)]):
        mask = tf.sequence_mask(memory_sequence_length, tf.shape(score)[1])
    return tf.where(mask, score, tf.cast(score_mask_value, score.dtype))


__all__ = own_names(__name__)
