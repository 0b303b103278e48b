"""`tf.contrib.legacy_seq2seq`: sequence-to-sequence models with ops for each step.

Args of the functions:
    encoder_inputs: a tensor for each step: vectors of shape [batch, features], or, for the functions with embeddings,
        integers of shape [batch].
    decoder_inputs: likewise.
    cell: an RNN cell. The encoder has a copy of it.
    num_encoder_symbols: the number of symbols of the encoder, which are integers.
    num_decoder_symbols: likewise.
    embedding_size: the size of their embeddings.
    output_projection: weights and biases that turn outputs into scores of symbols; by default the cell does that, in an
        `OutputProjectionWrapper`.
    feed_previous: whether the inputs after the first one are the best symbols of the outputs before; a boolean, or a
        scalar boolean tensor.
    dtype: the dtype of the state.
    scope: the variable scope, by default the name of the function.

Most functions return the outputs, a tensor of shape [batch, size] for each step of the decoder, and the final state.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.contrib import rnn
from tpk_tensorflow1.missing import finder_in, own_names

v1 = tf.compat.v1

Function = Callable[..., Any]
Tensors = Sequence[Any]
Outputs = tuple[list[Any], Any]


def rnn_decoder(
    decoder_inputs: Tensors, initial_state: Any, cell: Any, loop_function: Function | None = None, scope: Any = None
) -> Outputs:
    """Run a cell over the inputs.

    Args:
        decoder_inputs: as for the other functions.
        initial_state: the initial state.
        cell: the cell.
        loop_function: computes each input after the first one from the output before and the number of the step.
        scope: the variable scope.
    """
    with v1.variable_scope(scope or "rnn_decoder"):
        return _decode(cell, decoder_inputs, initial_state, loop_function)


def basic_rnn_seq2seq(
    encoder_inputs: Tensors, decoder_inputs: Tensors, cell: Any, dtype: Any = tf.float32, scope: Any = None
) -> Outputs:
    """Decode from the final state of an encoder."""
    with v1.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = rnn.static_rnn(_copy_of(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def embedding_rnn_seq2seq(*args: Any, **kwargs: Any) -> Outputs:
    """Decode embeddings from the final state of an encoder of embeddings; see the module for the arguments."""
    return _with_embeddings("rnn", lambda memory: rnn_decoder, *args, **kwargs)


def attention_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Function | None = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Outputs:
    """Run a cell over the inputs, with attention (Vinyals et al., https://arxiv.org/abs/1412.7449).

    Args:
        decoder_inputs: as for the other functions.
        initial_state: the initial state.
        attention_states: the memory, of shape [batch, time, size].
        cell: the cell.
        output_size: the size of the outputs, by default that of the cell.
        num_heads: how many means of the memory there are.
        loop_function: as for `rnn_decoder`.
        dtype: the dtype of the first means, which are zeros.
        scope: the variable scope.
        initial_state_attention: whether the first means result from the initial state instead.
    """
    with v1.variable_scope(scope or "attention_decoder", dtype=dtype) as opened:
        size = attention_states.shape[2]
        heads = []
        for head in range(num_heads):
            kernel = v1.get_variable(f"AttnW_{head}", [1, 1, size, size])
            features = tf.nn.conv2d(attention_states[:, :, None], kernel, 1, "SAME")
            heads.append((features, v1.get_variable(f"AttnV_{head}", [size])))

        def attend(state: Any) -> list[Any]:
            query, means = tf.concat(tf.nest.flatten(state), 1), []
            for head, (features, vector) in enumerate(heads):
                with v1.variable_scope(f"Attention_{head}", reuse=v1.AUTO_REUSE):
                    projected = rnn._linear(query, size, True)
                scores = tf.reduce_sum(vector * tf.tanh(features + projected[:, None, None]), [2, 3])
                means.append(tf.reduce_sum(tf.nn.softmax(scores)[:, :, None] * attention_states, 1))
            return means

        def step(inputs: Any, state: Any) -> tuple[Any, Any]:
            state, means = state
            outputs, state = cell(rnn._linear([inputs, *means], inputs.shape[1], True), state)
            means = attend(state)
            with v1.variable_scope("AttnOutputProjection"):
                return rnn._linear([outputs, *means], output_size or cell.output_size, True), (state, means)

        if initial_state_attention:
            means = attend(initial_state)
        else:
            means = [tf.zeros_like(attention_states[:, 0], opened.dtype)] * num_heads
        outputs, (state, _) = _decode(step, decoder_inputs, (initial_state, means), loop_function)
        return outputs, state


def embedding_attention_seq2seq(
    *args: Any, num_heads: int = 1, initial_state_attention: bool = False, **kwargs: Any
) -> Outputs:
    """Decode embeddings with attention over the outputs of an encoder.

    Args:
        args: see the module.
        num_heads: see `attention_decoder`.
        initial_state_attention: see there.
        kwargs: see the module.
    """
    attention = {"num_heads": num_heads, "initial_state_attention": initial_state_attention}

    def decoder_with(memory: Tensors) -> Function:
        return functools.partial(attention_decoder, attention_states=tf.stack(memory, 1), **attention)

    return _with_embeddings("attention", decoder_with, *args, **kwargs)


def model_with_buckets(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    targets: Tensors,
    weights: Tensors,
    buckets: Sequence[tuple[int, int]],
    seq2seq: Function,
    softmax_loss_function: Function | None = None,
    per_example_loss: bool = False,
    name: str | None = None,
) -> tuple[list[list[Any]], list[Any]]:
    """Build a model for each bucket of lengths, all with the same variables.

    Args:
        encoder_inputs: as for the other functions.
        decoder_inputs: likewise.
        targets: integers of shape [batch] for each step of the decoder.
        weights: floats of shape [batch] for each step of the decoder.
        buckets: the numbers of steps of encoder and decoder; the last bucket is the largest.
        seq2seq: a function of the inputs of encoder and decoder that returns outputs and state.
        softmax_loss_function: as for `sequence_loss`.
        per_example_loss: whether losses are those of each example.
        name: the name scope.

    Returns:
        The outputs of each bucket, and the losses.
    """
    loss_of = sequence_loss_by_example if per_example_loss else sequence_loss
    all_outputs, losses = [], []
    with tf.name_scope(name or "model_with_buckets"):
        for number, (inputs, steps) in enumerate(buckets):
            with v1.variable_scope(v1.get_variable_scope(), reuse=True if number else None):
                outputs, _ = seq2seq(encoder_inputs[:inputs], decoder_inputs[:steps])
            all_outputs.append(outputs)
            loss = loss_of(outputs, targets[:steps], weights[:steps], softmax_loss_function=softmax_loss_function)
            losses.append(loss)
    return all_outputs, losses


def sequence_loss_by_example(
    logits: Tensors,
    targets: Tensors,
    weights: Tensors,
    average_across_timesteps: bool = True,
    softmax_loss_function: Function | None = None,
    name: str | None = None,
) -> Any:
    """Return the weighted cross entropy of each example.

    Args:
        logits: a tensor of shape [batch, symbols] for each step.
        targets: an integer tensor of shape [batch] for each step.
        weights: a float tensor of shape [batch] for each step.
        average_across_timesteps: whether to divide by the sum of the weights.
        softmax_loss_function: a function of ``labels`` and ``logits``; by default the sparse softmax cross entropy.
        name: the name scope.
    """
    entropy = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name or "sequence_loss_by_example"):
        steps = zip(logits, targets, weights, strict=True)
        loss = tf.add_n([entropy(labels=target, logits=logit) * weight for logit, target, weight in steps])
        # The small number avoids a division by zero if all weights are zero.
        return loss / (tf.add_n(weights) + 1e-12) if average_across_timesteps else loss


def sequence_loss(
    logits: Tensors,
    targets: Tensors,
    weights: Tensors,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Function | None = None,
    name: str | None = None,
) -> Any:
    """Return the sum over the batch of `sequence_loss_by_example`, or the mean if `average_across_batch`."""
    with tf.name_scope(name or "sequence_loss"):
        losses = sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
        return tf.reduce_mean(losses) if average_across_batch else tf.reduce_sum(losses)


def _copy_of(cell: Any) -> Any:
    """Return a copy that shares the tensors of a cell, such as the fraction that a dropout keeps."""
    graph = v1.get_default_graph()
    shared = [*v1.global_variables(), *(tensor for op in graph.get_operations() for tensor in op.outputs)]
    return copy.deepcopy(cell, {id(each): each for each in shared})


def _decode(step: Function, inputs: Tensors, state: Any, loop_function: Function | None) -> Outputs:
    """Run `step`, which is a cell or like one, over the inputs."""
    outputs: list[Any] = []
    for number, each in enumerate(inputs):
        if number:
            v1.get_variable_scope().reuse_variables()
            if loop_function is not None:
                with v1.variable_scope("loop_function", reuse=True):
                    each = loop_function(outputs[-1], number)
        output, state = step(each, state)
        outputs.append(output)
    return outputs, state


def _with_embeddings(
    kind: str,
    decoder_with: Callable[[Tensors], Function],
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
) -> Outputs:
    """Encode embeddings, and decode embeddings.

    Args:
        kind: part of the names of the variable scopes.
        decoder_with: returns a function like `rnn_decoder`, given the outputs of the encoder.
        encoder_inputs: see the module for this argument and all others.
    """
    with v1.variable_scope(scope or f"embedding_{kind}_seq2seq", dtype=dtype) as opened:
        encoder = rnn.EmbeddingWrapper(_copy_of(cell), num_encoder_symbols, embedding_size)
        memory, state = rnn.static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        if output_projection is None:
            cell = rnn.OutputProjectionWrapper(cell, num_decoder_symbols)
        decode, states = decoder_with(memory), []

        def branch(feeds_previous: bool, reuse: bool | None = None) -> tuple[list[Any], list[Any]]:
            with v1.variable_scope(f"embedding_{kind}_decoder", reuse=reuse):
                embeddings = v1.get_variable("embedding", [num_decoder_symbols, embedding_size])

                def following(previous: Any, step: int) -> Any:
                    if output_projection is not None:
                        previous = v1.nn.xw_plus_b(previous, *output_projection)
                    embedded = tf.nn.embedding_lookup(embeddings, tf.argmax(previous, 1))
                    # As in TensorFlow 1, there are gradients only without a `tf.cond`.
                    return embedded if isinstance(feed_previous, bool) else tf.stop_gradient(embedded)

                embedded = [tf.nn.embedding_lookup(embeddings, each) for each in decoder_inputs]
                loop_function = following if feeds_previous else None
                outputs, final = decode(embedded, state, cell=cell, loop_function=loop_function)
            states.append(final)
            return outputs, tf.nest.flatten(final)

        if isinstance(feed_previous, bool):
            outputs, final = branch(feed_previous)
        else:
            outputs, final = tf.cond(feed_previous, lambda: branch(True), lambda: branch(False, True))
        return outputs, tf.nest.pack_sequence_as(states[0], final)


__all__ = own_names(__name__)

__getattr__ = finder_in("tf.contrib.legacy_seq2seq", __all__)
