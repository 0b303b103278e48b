"""Names in sentences: a bidirectional network and a conditional random field, decoded in NumPy and in the graph."""

import numpy as np
import tensorflow as tf

WORDS, TAGS, UNITS = 20, 4, 8


def sentences(rng, size):
    """A tag depends on the word and on the word before it."""
    lengths = rng.randint(2, 7, size=size)
    words = rng.randint(1, WORDS, size=[size, 6]) * (np.arange(6) < lengths[:, None])
    before = np.concatenate([np.zeros([size, 1], int), words[:, :-1]], 1)
    tags = (words % 2 + 2 * (before % 2)) * (words > 0)
    return words, tags, lengths


word_ids = tf.placeholder(tf.int32, shape=[None, None], name="word_ids")
labels = tf.placeholder(tf.int32, shape=[None, None], name="labels")
sequence_lengths = tf.placeholder(tf.int32, shape=[None], name="sequence_lengths")
dropout = tf.placeholder(dtype=tf.float32, shape=[], name="dropout")

with tf.variable_scope("words"):
    embeddings = tf.get_variable("_word_embeddings", dtype=tf.float32, shape=[WORDS, UNITS])
    word_embeddings = tf.nn.embedding_lookup(embeddings, word_ids, name="word_embeddings")
word_embeddings = tf.nn.dropout(word_embeddings, dropout)
with tf.variable_scope("bi-lstm"):
    (output_fw, output_bw), _ = tf.nn.bidirectional_dynamic_rnn(
        tf.contrib.rnn.LSTMCell(UNITS),
        tf.contrib.rnn.LSTMCell(UNITS),
        word_embeddings,
        sequence_length=sequence_lengths,
        dtype=tf.float32,
    )
    output = tf.concat([output_fw, output_bw], axis=-1)
with tf.variable_scope("proj"):
    W = tf.get_variable("W", dtype=tf.float32, shape=[2 * UNITS, TAGS])
    b = tf.get_variable("b", shape=[TAGS], dtype=tf.float32, initializer=tf.zeros_initializer())
    nsteps = tf.shape(output)[1]
    pred = tf.matmul(tf.reshape(output, [-1, 2 * UNITS]), W) + b
    logits = tf.reshape(pred, [-1, nsteps, TAGS])
log_likelihood, trans_params = tf.contrib.crf.crf_log_likelihood(logits, labels, sequence_lengths)
loss = tf.reduce_mean(-log_likelihood)
decoded, scores = tf.contrib.crf.crf_decode(logits, trans_params, sequence_lengths)
train_op = tf.train.AdamOptimizer(0.05).minimize(loss)

rng = np.random.RandomState(1)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = []
    for _ in range(40):
        words, tags, lengths = sentences(rng, 16)
        feed = {word_ids: words, labels: tags, sequence_lengths: lengths, dropout: 1.0}
        costs.append(sess.run([train_op, loss], feed)[1])
    words, tags, lengths = sentences(rng, 8)
    feed = {word_ids: words, sequence_lengths: lengths, dropout: 1.0}
    values = sess.run([logits, trans_params, decoded, scores], feed)
viterbi = []
for logit, length in zip(values[0], lengths):
    viterbi_seq, viterbi_score = tf.contrib.crf.viterbi_decode(logit[:length], values[1])
    viterbi += viterbi_seq
hits = [tag == want for found, truth, n in zip(values[2], tags, lengths) for tag, want in zip(found[:n], truth[:n])]
np.savez(
    "results.npz",
    costs=costs,
    transitions=values[1],
    decoded=values[2],
    scores=values[3],
    viterbi=np.array(viterbi, np.int64),
    accuracy=np.mean(hits),
    variables=[v.op.name for v in tf.trainable_variables()],
)
