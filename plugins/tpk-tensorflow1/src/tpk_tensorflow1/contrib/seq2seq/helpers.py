"""Where the inputs of a `BasicDecoder` come from: given sequences, or its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.contrib.rnn import transpose_batch_time
from tpk_tensorflow1.missing import own_names

v1 = tf.compat.v1

Function = Callable[..., Any]


class Helper:
    """The base of helpers.

    A subclass has `batch_size`, and these methods:

    - ``initialize(name=None)`` returns which sequences are finished before the first step, and its inputs.
    - ``sample(time, outputs, state, name=None)`` returns a sample of each sequence for the outputs of a step.
    - ``next_inputs(time, outputs, state, sample_ids, name=None)`` returns which sequences are finished, the inputs of
      the next step, and its state.
    """

    batch_size: Any
    sample_ids_shape: Any = tf.TensorShape([])
    sample_ids_dtype: Any = tf.int32


class TrainingHelper(Helper):
    """A helper whose inputs are given sequences; a sample is the index of the largest output.

    Args:
        inputs: a tensor of shape [batch, time, ...], or a structure of them.
        sequence_length: an integer tensor of shape [batch].
        time_major: whether the inputs have the shape [time, batch, ...].
        name: the name scope.
    """

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        with tf.name_scope(name or "TrainingHelper"):
            self.inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
            by_time = self.inputs if time_major else tf.nest.map_structure(transpose_batch_time, self.inputs)
            self._arrays = tf.nest.map_structure(_array_of, by_time)
            self._zeros = tf.nest.map_structure(lambda each: tf.zeros_like(each[0]), by_time)
            self.sequence_length = tf.convert_to_tensor(sequence_length)
            self.batch_size = tf.size(self.sequence_length)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Return which sequences are empty, and the first inputs."""
        return self._inputs_at(0)

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        """Return the index of the largest output."""
        return tf.argmax(outputs, -1, tf.int32)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        """Return which sequences are over, and the next inputs; zeros if all are over."""
        return (*self._inputs_at(time + 1), state)

    def _inputs_at(self, time: Any) -> tuple[Any, Any]:
        finished = time >= self.sequence_length
        inputs = tf.cond(
            tf.reduce_all(finished),
            lambda: tf.nest.map_structure(tf.identity, self._zeros),
            lambda: tf.nest.map_structure(lambda array: array.read(time), self._arrays),
        )
        return finished, inputs


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """A `TrainingHelper` that replaces some inputs by embeddings of samples of the outputs (Bengio et al.,
    https://arxiv.org/abs/1506.03099).

    Args:
        inputs: a tensor of shape [batch, time, size].
        sequence_length: an integer tensor of shape [batch].
        embedding: a tensor of embeddings, or a function of integers.
        sampling_probability: the probability that an input is replaced.
        time_major: whether the inputs have the shape [time, batch, size].
        seed: the seed of the samples.
        scheduling_seed: the seed of the choice of inputs.
        name: the name scope.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major, name or "ScheduledEmbeddingSamplingWrapper")
        self._embedding_fn = _lookup(embedding)
        self._probability = tf.convert_to_tensor(sampling_probability, tf.float32)
        self._seed, self._scheduling_seed = seed, scheduling_seed

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        """Return a sample of the outputs where the next input is replaced, otherwise -1."""
        with tf.control_dependencies([outputs]):  # A loop runs ops without inputs in any order.
            drawn = tf.random.uniform([self.batch_size], seed=self._scheduling_seed)
        return tf.where(drawn < self._probability, _drawn_from(outputs, self._seed), -1)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        """Return which sequences are over, and the next inputs, given or embeddings of samples."""
        finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
        sampled = tf.where(sample_ids >= 0)
        embedded = self._embedding_fn(tf.gather_nd(sample_ids, sampled))
        return finished, tf.tensor_scatter_nd_update(inputs, sampled, embedded), state


class GreedyEmbeddingHelper(Helper):
    """A helper whose inputs are embeddings of the largest outputs.

    Args:
        embedding: a tensor of embeddings, or a function of integers.
        start_tokens: the integers before the first step, of shape [batch].
        end_token: the integer that finishes a sequence.
    """

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding_fn = _lookup(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32)
        self._end_token = tf.convert_to_tensor(end_token, tf.int32)
        if self._start_tokens.shape.rank != 1 or self._end_token.shape.rank != 0:
            raise ValueError(f"{type(self).__name__}: start_tokens and end_token do not have the shapes [batch] and []")
        self.batch_size = tf.size(self._start_tokens)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Return that no sequence is finished, and the embeddings of `start_tokens`."""
        return tf.fill([self.batch_size], False), self._embedding_fn(self._start_tokens)

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        """Return the index of the largest output."""
        return tf.argmax(outputs, -1, tf.int32)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        """Return which samples are the end token, and the embeddings of the samples."""
        return tf.equal(sample_ids, self._end_token), self._embedding_fn(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """A helper whose inputs are embeddings of samples of the outputs.

    Args:
        embedding: as for `GreedyEmbeddingHelper`.
        start_tokens: likewise.
        end_token: likewise.
        softmax_temperature: the outputs are divided by it; None for 1.
        seed: the seed of the samples.
    """

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature = softmax_temperature
        self._seed = seed

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        """Return a sample of the outputs, which are logits."""
        return _drawn_from(outputs if self._temperature is None else outputs / self._temperature, self._seed)


def _drawn_from(logits: Any, seed: int | None) -> Any:
    return v1.multinomial(logits, 1, seed=seed, output_dtype=tf.int32)[:, 0]


def _lookup(embedding: Any) -> Function:
    """Return a function of integers for a tensor of embeddings, or the function that is given instead."""
    return embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)


def _array_of(by_time: Any) -> Any:
    array = tf.TensorArray(by_time.dtype, size=tf.shape(by_time)[0], element_shape=by_time.shape[1:])
    return array.unstack(by_time)


__all__ = own_names(__name__)
