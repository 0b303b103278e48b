"""A translation model with seq2seq: trained with a TrainingHelper, and used with greedy decoding and beam search."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq
from tensorflow.python.layers import core as layers_core

tf.app.flags.DEFINE_integer("num_units", 16, "units of encoder and decoder")
tf.app.flags.DEFINE_integer("beam_width", 3, "0 for greedy decoding")
tf.app.flags.DEFINE_integer("num_train_steps", 40, "steps")
FLAGS = tf.app.flags.FLAGS

SOS, EOS, VOCAB = 0, 1, 8


def batch(rng, size=8):
    """The target is the source backward."""
    lengths = rng.randint(2, 5, size=size)
    source = np.full([size, 4], EOS)
    target = np.full([size, 5], EOS)
    for row, length in enumerate(lengths):
        source[row, :length] = rng.randint(2, VOCAB, size=length)
        target[row, :length] = source[row, :length][::-1]
    return source, lengths, target, lengths + 1


class Model(object):
    def __init__(self, mode):
        self.source = tf.placeholder(tf.int32, [None, None])
        self.source_lengths = tf.placeholder(tf.int32, [None])
        batch_size = tf.size(self.source_lengths)
        with tf.variable_scope("dynamic_seq2seq", initializer=tf.random_uniform_initializer(-0.3, 0.3)):
            with tf.variable_scope("embeddings"):
                embedding = tf.get_variable("embedding_share", [VOCAB, FLAGS.num_units])
            with tf.variable_scope("encoder"):
                inputs = tf.nn.embedding_lookup(embedding, tf.transpose(self.source))
                outputs, states = tf.nn.bidirectional_dynamic_rnn(
                    tf.contrib.rnn.BasicLSTMCell(FLAGS.num_units // 2),
                    tf.contrib.rnn.BasicLSTMCell(FLAGS.num_units // 2),
                    inputs,
                    dtype=tf.float32,
                    sequence_length=self.source_lengths,
                    time_major=True,
                )
                memory = tf.transpose(tf.concat(outputs, -1), [1, 0, 2])
                encoder_state = tf.contrib.rnn.LSTMStateTuple(
                    tf.concat([states[0].c, states[1].c], 1), tf.concat([states[0].h, states[1].h], 1)
                )
            with tf.variable_scope("decoder/output_projection"):
                output_layer = layers_core.Dense(VOCAB, use_bias=False, name="output_projection")
            lengths = self.source_lengths
            if mode == "beam":
                memory = seq2seq.tile_batch(memory, multiplier=FLAGS.beam_width)
                lengths = seq2seq.tile_batch(lengths, multiplier=FLAGS.beam_width)
                encoder_state = seq2seq.tile_batch(encoder_state, multiplier=FLAGS.beam_width)
            with tf.variable_scope("decoder") as decoder_scope:
                attention = seq2seq.LuongAttention(FLAGS.num_units, memory, memory_sequence_length=lengths, scale=True)
                cell = seq2seq.AttentionWrapper(
                    tf.contrib.rnn.BasicLSTMCell(FLAGS.num_units),
                    attention,
                    attention_layer_size=FLAGS.num_units,
                    alignment_history=mode == "greedy",
                    name="attention",
                )
                beams = FLAGS.beam_width if mode == "beam" else 1
                state = cell.zero_state(batch_size * beams, tf.float32).clone(cell_state=encoder_state)
                starts = tf.fill([batch_size], SOS)
                if mode == "train":
                    self.target = tf.placeholder(tf.int32, [None, None])
                    self.target_lengths = tf.placeholder(tf.int32, [None])
                    shifted = tf.concat([starts[:, None], self.target[:, :-1]], 1)
                    helper = seq2seq.TrainingHelper(
                        tf.nn.embedding_lookup(embedding, tf.transpose(shifted)), self.target_lengths, time_major=True
                    )
                    decoder = seq2seq.BasicDecoder(cell, helper, state)
                    outputs, _, _ = seq2seq.dynamic_decode(
                        decoder, output_time_major=True, swap_memory=True, scope=decoder_scope
                    )
                    self.compute_loss(output_layer(outputs.rnn_output))
                    return
                maximum = tf.reduce_max(self.source_lengths) * 2
                if mode == "beam":
                    decoder = seq2seq.BeamSearchDecoder(
                        cell=cell,
                        embedding=embedding,
                        start_tokens=starts,
                        end_token=EOS,
                        initial_state=state,
                        beam_width=FLAGS.beam_width,
                        output_layer=output_layer,
                        length_penalty_weight=1.0,
                    )
                else:
                    helper = seq2seq.GreedyEmbeddingHelper(embedding, starts, EOS)
                    decoder = seq2seq.BasicDecoder(cell, helper, state, output_layer=output_layer)
                outputs, final_state, _ = seq2seq.dynamic_decode(
                    decoder, maximum_iterations=maximum, output_time_major=True, scope=decoder_scope
                )
                if mode == "beam":
                    self.translations = outputs.predicted_ids
                else:
                    self.translations = outputs.sample_id
                    self.alignments = final_state.alignment_history.stack()

    def compute_loss(self, logits):
        target = tf.transpose(self.target)[: tf.shape(logits)[0]]
        crossent = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits)
        weights = tf.sequence_mask(self.target_lengths, tf.shape(logits)[0], dtype=logits.dtype)
        self.loss = tf.reduce_sum(crossent * tf.transpose(weights)) / tf.to_float(tf.size(self.target_lengths))
        params = tf.trainable_variables()
        gradients, self.grad_norm = tf.clip_by_global_norm(tf.gradients(self.loss, params), 5.0)
        self.global_step = tf.Variable(0, trainable=False)
        rate = tf.train.exponential_decay(0.02, self.global_step, 20, 0.9, staircase=True)
        self.update = tf.train.AdamOptimizer(rate).apply_gradients(zip(gradients, params), global_step=self.global_step)


def main(_):
    rng = np.random.RandomState(1)
    results = {"costs": []}
    with tf.Graph().as_default(), tf.Session() as sess:
        model = Model("train")
        sess.run(tf.global_variables_initializer())
        for _ in range(FLAGS.num_train_steps):
            source, source_lengths, target, target_lengths = batch(rng)
            feed = {
                model.source: source,
                model.source_lengths: source_lengths,
                model.target: target,
                model.target_lengths: target_lengths,
            }
            results["costs"].append(sess.run([model.loss, model.update], feed)[0])
        results["variables"] = [v.op.name for v in tf.trainable_variables()]
        path = tf.train.Saver().save(sess, "./translate.ckpt", global_step=model.global_step)
    source, source_lengths, _, _ = batch(rng)
    for mode in ("greedy", "beam"):
        with tf.Graph().as_default(), tf.Session() as sess:
            model = Model(mode)
            tf.train.Saver(tf.trainable_variables()).restore(sess, path)
            feed = {model.source: source, model.source_lengths: source_lengths}
            results[mode] = sess.run(model.translations, feed)
            if mode == "greedy":
                results["alignments"] = sess.run(model.alignments, feed)
    np.savez("results.npz", **results)


if __name__ == "__main__":
    tf.app.run()
