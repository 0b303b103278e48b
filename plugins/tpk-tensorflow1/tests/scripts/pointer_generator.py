"""A summarizer that copies words: attention of its own around `_linear`, and a distribution over an extended
vocabulary.
"""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.rnn.python.ops.core_rnn_cell import _linear
from tensorflow.python.ops import array_ops, math_ops, nn_ops, variable_scope

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_integer("hidden_dim", 8, "size of hidden states")
tf.app.flags.DEFINE_integer("batch_size", 3, "size of a batch")
tf.app.flags.DEFINE_boolean("coverage", True, "penalize repetition")

VOCAB, OOVS, ENC, DEC = 9, 2, 5, 3


def attention_decoder(decoder_inputs, initial_state, encoder_states, enc_padding_mask, cell):
    """Return outputs, state, attention distributions, generation probabilities and the coverage."""
    with variable_scope.variable_scope("attention_decoder"):
        attn_size = encoder_states.get_shape()[2].value
        encoder_states = tf.expand_dims(encoder_states, axis=2)
        W_h = variable_scope.get_variable("W_h", [1, 1, attn_size, attn_size])
        encoder_features = nn_ops.conv2d(encoder_states, W_h, [1, 1, 1, 1], "SAME")
        v = variable_scope.get_variable("v", [attn_size])
        with variable_scope.variable_scope("coverage"):
            w_c = variable_scope.get_variable("w_c", [1, 1, 1, attn_size])

        def attention(decoder_state, coverage):
            with variable_scope.variable_scope("Attention"):
                decoder_features = _linear([decoder_state.c, decoder_state.h], attn_size, True)
                decoder_features = tf.expand_dims(tf.expand_dims(decoder_features, 1), 1)
                coverage_features = nn_ops.conv2d(coverage, w_c, [1, 1, 1, 1], "SAME")
                e = math_ops.reduce_sum(
                    v * math_ops.tanh(encoder_features + decoder_features + coverage_features), [2, 3]
                )
                attn_dist = nn_ops.softmax(e) * enc_padding_mask
                attn_dist /= tf.reshape(tf.reduce_sum(attn_dist, axis=1), [-1, 1])
                coverage += array_ops.reshape(attn_dist, [FLAGS.batch_size, -1, 1, 1])
                weights = array_ops.reshape(attn_dist, [FLAGS.batch_size, -1, 1, 1])
                context = math_ops.reduce_sum(weights * encoder_states, [1, 2])
            return array_ops.reshape(context, [-1, attn_size]), attn_dist, coverage

        outputs, attn_dists, p_gens, state = [], [], [], initial_state
        coverage = tf.zeros([FLAGS.batch_size, ENC, 1, 1])
        context = array_ops.zeros([FLAGS.batch_size, attn_size])
        context.set_shape([None, attn_size])
        for i, inp in enumerate(decoder_inputs):
            if i > 0:
                variable_scope.get_variable_scope().reuse_variables()
            x = _linear([inp, context], inp.get_shape()[1].value, True)
            cell_output, state = cell(x, state)
            context, attn_dist, coverage = attention(state, coverage)
            attn_dists.append(attn_dist)
            with tf.variable_scope("calculate_pgen"):
                p_gens.append(tf.sigmoid(_linear([context, state.c, state.h, x], 1, True)))
            with variable_scope.variable_scope("AttnOutputProjection"):
                outputs.append(_linear([cell_output, context], cell.output_size, True))
        return outputs, state, attn_dists, p_gens, coverage


def main(unused_argv):
    rng = np.random.RandomState(1)
    enc_batch = tf.placeholder(tf.int32, [FLAGS.batch_size, None])
    enc_lens = tf.placeholder(tf.int32, [FLAGS.batch_size])
    extended = tf.placeholder(tf.int32, [FLAGS.batch_size, None])
    dec_batch = tf.placeholder(tf.int32, [FLAGS.batch_size, DEC])
    target_batch = tf.placeholder(tf.int32, [FLAGS.batch_size, DEC])
    mask = tf.sequence_mask(enc_lens, ENC, tf.float32)
    uniform = tf.random_uniform_initializer(-0.3, 0.3, seed=123)
    with tf.variable_scope("seq2seq"):
        with tf.variable_scope("embedding"):
            embedding = tf.get_variable("embedding", [VOCAB, FLAGS.hidden_dim], dtype=tf.float32, initializer=uniform)
            emb_enc_inputs = tf.nn.embedding_lookup(embedding, enc_batch)
            emb_dec_inputs = [tf.nn.embedding_lookup(embedding, x) for x in tf.unstack(dec_batch, axis=1)]
        with tf.variable_scope("encoder"):
            cell_fw = tf.contrib.rnn.LSTMCell(FLAGS.hidden_dim, initializer=uniform, state_is_tuple=True)
            cell_bw = tf.contrib.rnn.LSTMCell(FLAGS.hidden_dim, initializer=uniform, state_is_tuple=True)
            outputs, (fw_st, bw_st) = tf.nn.bidirectional_dynamic_rnn(
                cell_fw, cell_bw, emb_enc_inputs, dtype=tf.float32, sequence_length=enc_lens, swap_memory=True
            )
            enc_states = tf.concat(axis=2, values=outputs)
        with tf.variable_scope("reduce_final_st"):
            old_c = tf.concat(axis=1, values=[fw_st.c, bw_st.c])
            old_h = tf.concat(axis=1, values=[fw_st.h, bw_st.h])
            new_c = tf.layers.dense(old_c, FLAGS.hidden_dim, tf.nn.relu, name="reduce_c")
            new_h = tf.layers.dense(old_h, FLAGS.hidden_dim, tf.nn.relu, name="reduce_h")
            dec_in_state = tf.contrib.rnn.LSTMStateTuple(new_c, new_h)
        with tf.variable_scope("decoder"):
            cell = tf.contrib.rnn.LSTMCell(FLAGS.hidden_dim, state_is_tuple=True, initializer=uniform)
            outputs, _, attn_dists, p_gens, _ = attention_decoder(emb_dec_inputs, dec_in_state, enc_states, mask, cell)
        with tf.variable_scope("output_projection"):
            w = tf.get_variable("w", [FLAGS.hidden_dim, VOCAB], dtype=tf.float32, initializer=uniform)
            vocab_dists = []
            for i, output in enumerate(outputs):
                if i > 0:
                    tf.get_variable_scope().reuse_variables()
                vocab_dists.append(tf.nn.softmax(tf.matmul(output, w)))
    batch_nums = tf.tile(tf.expand_dims(tf.range(0, limit=FLAGS.batch_size), 1), [1, ENC])
    indices = tf.stack((batch_nums, extended), axis=2)
    losses = []
    for step, (p_gen, vocab_dist, attn_dist) in enumerate(zip(p_gens, vocab_dists, attn_dists)):
        extra = tf.concat(axis=1, values=[p_gen * vocab_dist, tf.zeros((FLAGS.batch_size, OOVS))])
        final = extra + tf.scatter_nd(indices, (1 - p_gen) * attn_dist, [FLAGS.batch_size, VOCAB + OOVS])
        at = tf.stack((tf.range(0, limit=FLAGS.batch_size), target_batch[:, step]), axis=1)
        losses.append(-tf.log(tf.gather_nd(final, at)))
    coverage, coverage_losses = tf.zeros_like(attn_dists[0]), []
    for attn_dist in attn_dists:
        coverage_losses.append(tf.reduce_sum(tf.minimum(attn_dist, coverage), [1]))
        coverage += attn_dist
    total_loss = tf.reduce_mean(tf.add_n(losses)) + tf.reduce_mean(tf.add_n(coverage_losses))
    tvars = tf.trainable_variables()
    gradients = tf.gradients(total_loss, tvars, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE)
    grads, _ = tf.clip_by_global_norm(gradients, 2.0)
    optimizer = tf.train.AdagradOptimizer(0.15, initial_accumulator_value=0.1)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step, name="train_step")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        costs = []
        source = rng.randint(VOCAB + OOVS, size=[FLAGS.batch_size, ENC])
        for _ in range(30):
            feed = {
                enc_batch: np.where(source < VOCAB, source, 0),
                enc_lens: [5, 4, 3],
                extended: source,
                dec_batch: np.where(source < VOCAB, source, 0)[:, :DEC],
                target_batch: source[:, :DEC],
            }
            costs.append(sess.run([train_op, total_loss], feed)[1])
        found = sess.run({"p_gens": tf.concat(p_gens, 1), "attention": tf.stack(attn_dists)}, feed)
    np.savez("results.npz", costs=costs, variables=[v.op.name for v in tvars], **found)


if __name__ == "__main__":
    tf.app.run()
