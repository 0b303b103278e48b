"""The loop that runs a decoder, the decoder that runs a cell with a helper, and the loss of its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tpk_tensorflow1.contrib.rnn import transpose_batch_time

__all__ = ["BasicDecoder", "BasicDecoderOutput", "Decoder", "dynamic_decode", "sequence_loss"]

v1 = tf.compat.v1


class Decoder:
    """The base of decoders.

    A subclass has `batch_size`, and `output_size` and `output_dtype`, the shapes and dtypes of the outputs of a step,
    and these methods:

    - ``initialize(name=None)`` returns which sequences are finished before the first step, its inputs and its state.
    - ``step(time, inputs, state, name=None)`` returns the outputs, the next state, the next inputs, and which sequences
      are finished.
    """

    tracks_own_finished = False
    """Whether a finished sequence can be unfinished in the next step."""

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """Return the outputs and the state that `dynamic_decode` returns, for those of all steps, by time."""
        return outputs, final_state


def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any, Any]:
    """Run a decoder until all sequences are finished.

    Args:
        decoder: a `Decoder`.
        output_time_major: whether outputs have the shape [time, batch, ...] instead of [batch, time, ...].
        impute_finished: whether the outputs of finished sequences are replaced by zeros, and their state is kept.
        maximum_iterations: the maximum number of steps, an integer or a tensor; None for no limit.
        parallel_iterations: as for `tf.while_loop`.
        swap_memory: as for `tf.while_loop`.
        scope: the variable scope, by default ``decoder``.
        kwargs: further arguments for `Decoder.step`.

    Returns:
        The outputs, the final state, and the length of each sequence.
    """

    def body(time: Any, arrays: Any, state: Any, inputs: Any, finished: Any, lengths: Any) -> Any:
        outputs, next_state, next_inputs, next_finished = decoder.step(time, inputs, state, **kwargs)
        if not decoder.tracks_own_finished:
            next_finished = tf.logical_or(next_finished, finished)
        lengths = tf.where(finished, lengths, time + 1)
        if impute_finished:
            outputs = tf.nest.map_structure(lambda each: v1.where(finished, tf.zeros_like(each), each), outputs)

            def kept(old: Any, new: Any) -> Any:
                return v1.where(finished, old, new) if tf.is_tensor(new) and new.shape.rank != 0 else new

            next_state = tf.nest.map_structure(kept, state, next_state)
        arrays = tf.nest.map_structure(lambda array, each: array.write(time, each), arrays, outputs)
        return time + 1, arrays, next_state, next_inputs, next_finished, lengths

    with v1.variable_scope(scope, "decoder"):
        finished, inputs, state = decoder.initialize()
        if maximum_iterations is not None:
            finished = tf.logical_or(finished, maximum_iterations <= 0)
        batch = tf.TensorShape([tf.get_static_value(tf.convert_to_tensor(decoder.batch_size))])

        def array(size: Any, dtype: Any) -> Any:
            shape = batch.concatenate(tf.TensorShape(size))
            return tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=shape)

        arrays = tf.nest.map_structure(array, decoder.output_size, decoder.output_dtype)
        _, arrays, state, _, _, lengths = v1.while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            body,
            (tf.constant(0), arrays, state, inputs, finished, tf.zeros_like(finished, tf.int32)),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
            maximum_iterations=maximum_iterations,
        )
        outputs = tf.nest.map_structure(lambda array: array.stack(), arrays)
        outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = tf.nest.map_structure(transpose_batch_time, outputs)
        return outputs, state, lengths


class BasicDecoderOutput(NamedTuple):
    """The outputs of a `BasicDecoder`.

    Attributes:
        rnn_output: the outputs of the cell, or of the output layer.
        sample_id: what the helper has sampled from them.
    """

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """A decoder that runs a cell on inputs from a helper.

    Args:
        cell: the cell.
        helper: a `Helper`.
        initial_state: the initial state of the cell.
        output_layer: a layer for the outputs of the cell, such as `tf.layers.Dense`.
    """

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        self._cell = cell
        self._helper = helper
        self._initial_state = initial_state
        self._output_layer = output_layer
        self.batch_size = helper.batch_size

    @property
    def output_size(self) -> BasicDecoderOutput:
        """The shapes of the outputs and the samples."""
        size = self._cell.output_size
        if self._output_layer is not None:
            size = self._output_layer.compute_output_shape(tf.TensorShape([None]).concatenate(size))[1:]
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        """The dtypes of the outputs and the samples."""
        dtype = tf.nest.flatten(self._initial_state)[0].dtype
        dtypes = tf.nest.map_structure(lambda _: dtype, self.output_size.rnn_output)
        return BasicDecoderOutput(dtypes, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Return which sequences are finished before the first step, its inputs and its state."""
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """Return the outputs, the next state, the next inputs, and which sequences are finished."""
        with tf.name_scope(name or "BasicDecoderStep"):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(time=time, outputs=outputs, state=state, sample_ids=ids)
        return BasicDecoderOutput(outputs, ids), state, inputs, finished


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the weighted cross entropy of sequences of logits.

    Args:
        logits: a tensor of shape [batch, time, classes].
        targets: an integer tensor of shape [batch, time].
        weights: a float tensor of shape [batch, time].
        average_across_timesteps: whether to take the weighted mean over time.
        average_across_batch: whether to take the weighted mean over the batch.
        softmax_loss_function: a function of ``labels`` and ``logits``; by default the sparse softmax cross entropy.
        name: the name scope.

    Returns:
        A scalar, or a tensor of shape [time], [batch] or [batch, time], depending on the means.
    """
    entropy = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name or "sequence_loss"):
        flat = tf.reshape(logits, [-1, tf.shape(logits)[2]])
        losses = tf.reshape(entropy(labels=tf.reshape(targets, [-1]), logits=flat), tf.shape(logits)[:2]) * weights
        axes = [axis for axis, mean in enumerate((average_across_batch, average_across_timesteps)) if mean]
        if not axes:
            return losses
        # The small number avoids a division by zero if all weights are zero.
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)
