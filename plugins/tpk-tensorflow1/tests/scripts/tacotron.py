"""The decoder of a speech synthesizer: frames from a recurrent network with attention, with cells and helpers of its
own.
"""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.rnn import GRUCell, MultiRNNCell, OutputProjectionWrapper, ResidualWrapper, RNNCell
from tensorflow.contrib.seq2seq import AttentionWrapper, BahdanauAttention, BasicDecoder, Helper, dynamic_decode

MELS, REDUCTION, DEPTH, BATCH = 3, 2, 8, 2


def prenet(inputs, scope=None):
    x = inputs
    with tf.variable_scope(scope or "prenet", reuse=tf.AUTO_REUSE):
        for i, size in enumerate([6, 4]):
            x = tf.layers.dense(x, units=size, activation=tf.nn.relu, name="dense_%d" % (i + 1))
    return x


class DecoderPrenetWrapper(RNNCell):
    """Runs inputs through a prenet before the cell."""

    def __init__(self, cell):
        super(DecoderPrenetWrapper, self).__init__()
        self._cell = cell

    @property
    def state_size(self):
        return self._cell.state_size

    @property
    def output_size(self):
        return self._cell.output_size

    def call(self, inputs, state):
        return self._cell(prenet(inputs, scope="decoder_prenet"), state)

    def zero_state(self, batch_size, dtype):
        return self._cell.zero_state(batch_size, dtype)


class ConcatOutputAndAttentionWrapper(RNNCell):
    """Concatenates the outputs of an attention cell and its attention."""

    def __init__(self, cell):
        super(ConcatOutputAndAttentionWrapper, self).__init__()
        self._cell = cell

    @property
    def state_size(self):
        return self._cell.state_size

    @property
    def output_size(self):
        return self._cell.output_size + self._cell.state_size.attention

    def call(self, inputs, state):
        output, state = self._cell(inputs, state)
        return tf.concat([output, state.attention], axis=-1), state

    def zero_state(self, batch_size, dtype):
        return self._cell.zero_state(batch_size, dtype)


class TacoHelper(Helper):
    """Feeds every r-th target frame in training, and the last frame of the outputs in synthesis."""

    def __init__(self, targets=None):
        with tf.name_scope("TacoHelper"):
            self._targets = None if targets is None else targets[:, REDUCTION - 1 :: REDUCTION, :]
            self._lengths = None if targets is None else tf.tile([tf.shape(self._targets)[1]], [BATCH])

    @property
    def batch_size(self):
        return BATCH

    @property
    def token_output_size(self):
        return REDUCTION

    @property
    def sample_ids_shape(self):
        return tf.TensorShape([])

    @property
    def sample_ids_dtype(self):
        return np.int32

    def initialize(self, name=None):
        return tf.tile([False], [BATCH]), tf.tile([[0.0]], [BATCH, MELS])

    def sample(self, time, outputs, state, name=None):
        return tf.tile([0], [BATCH])  # no discrete samples

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        with tf.name_scope(name or "TacoHelper"):
            if self._targets is None:
                finished = tf.reduce_all(tf.equal(outputs, 0.0), axis=1)
                return finished, outputs[:, -MELS:], state
            return time + 1 >= self._lengths, self._targets[:, time, :], state


def synthesizer(text, targets=None):
    embedding = tf.get_variable(
        "embedding", [5, DEPTH], dtype=tf.float32, initializer=tf.truncated_normal_initializer(stddev=0.5)
    )
    memory = tf.nn.embedding_lookup(embedding, text)
    attention_cell = AttentionWrapper(
        DecoderPrenetWrapper(GRUCell(DEPTH)),
        BahdanauAttention(DEPTH, memory),
        alignment_history=True,
        output_attention=False,
    )
    concat_cell = ConcatOutputAndAttentionWrapper(attention_cell)
    decoder_cell = MultiRNNCell(
        [OutputProjectionWrapper(concat_cell, DEPTH), ResidualWrapper(GRUCell(DEPTH)), ResidualWrapper(GRUCell(DEPTH))],
        state_is_tuple=True,
    )
    output_cell = OutputProjectionWrapper(decoder_cell, MELS * REDUCTION)
    initial_state = output_cell.zero_state(batch_size=BATCH, dtype=tf.float32)
    decoder = BasicDecoder(output_cell, TacoHelper(targets), initial_state)
    (outputs, _), final_state, _ = dynamic_decode(decoder, maximum_iterations=6)
    mels = tf.reshape(outputs, [BATCH, -1, MELS])
    alignments = tf.transpose(final_state[0].alignment_history.stack(), [1, 2, 0])
    return mels, alignments


rng = np.random.RandomState(1)
text = tf.constant([[0, 1, 2, 3], [4, 3, 2, 1]])
targets = tf.constant(rng.randn(BATCH, 12, MELS).astype(np.float32))
with tf.variable_scope("inference"):
    mels, alignments = synthesizer(text, targets)
with tf.variable_scope("inference", reuse=True):
    synthesized, _ = synthesizer(text)
loss = tf.reduce_mean(tf.abs(targets - mels))
global_step = tf.Variable(0, name="global_step", trainable=False)
optimizer = tf.train.AdamOptimizer(0.01, 0.9, 0.999)
gradients, variables = zip(*optimizer.compute_gradients(loss))
clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
train = optimizer.apply_gradients(zip(clipped, variables), global_step=global_step)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = [sess.run([global_step, loss, train])[1] for _ in range(20)]
    found = sess.run({"alignments": alignments, "synthesized": synthesized})
np.savez("results.npz", costs=costs, variables=[v.op.name for v in tf.trainable_variables()], **found)
