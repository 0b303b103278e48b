"""A classifier of documents with attention to words and to sentences, and with a highway layer."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn

DOCS, SENTENCES, WORDS, VOCABULARY, HIDDEN, CLASSES = 4, 3, 5, 20, 6, 2


def length(sequences):
    used = tf.sign(tf.reduce_max(tf.abs(sequences), reduction_indices=2))
    return tf.cast(tf.reduce_sum(used, reduction_indices=1), tf.int32)


class HAN:
    def __init__(self):
        with tf.name_scope("placeholder"):
            self.input_x = tf.placeholder(tf.int32, [None, SENTENCES, WORDS], name="input_x")
            self.input_y = tf.placeholder(tf.float32, [None, CLASSES], name="input_y")
        word_embedded = self.word2vec()
        sent_vec = self.sent2vec(word_embedded)
        doc_vec = self.doc2vec(sent_vec)
        self.out = tf.contrib.layers.fully_connected(
            inputs=self.highway(doc_vec), num_outputs=CLASSES, activation_fn=None
        )

    def word2vec(self):
        with tf.name_scope("embedding"):
            embedding_mat = tf.Variable(tf.truncated_normal((VOCABULARY, 4)))
            return tf.nn.embedding_lookup(embedding_mat, self.input_x)

    def sent2vec(self, word_embedded):
        with tf.name_scope("sent2vec"):
            word_embedded = tf.reshape(word_embedded, [-1, WORDS, 4])
            encoded = self.BidirectionalGRUEncoder(word_embedded, name="word_encoder")
            return self.AttentionLayer(encoded, name="word_attention")

    def doc2vec(self, sent_vec):
        with tf.name_scope("doc2vec"):
            sent_vec = tf.reshape(sent_vec, [-1, SENTENCES, HIDDEN * 2])
            encoded = self.BidirectionalGRUEncoder(sent_vec, name="sent_encoder")
            return self.AttentionLayer(encoded, name="sent_attention")

    def BidirectionalGRUEncoder(self, inputs, name):
        with tf.variable_scope(name):
            (fw_outputs, bw_outputs), (fw_state, bw_state) = tf.nn.bidirectional_dynamic_rnn(
                cell_fw=rnn.GRUCell(HIDDEN),
                cell_bw=rnn.GRUCell(HIDDEN),
                inputs=inputs,
                sequence_length=length(inputs),
                dtype=tf.float32,
            )
            return tf.concat((fw_outputs, bw_outputs), 2)

    def AttentionLayer(self, inputs, name):
        with tf.variable_scope(name):
            u_context = tf.Variable(tf.truncated_normal([HIDDEN * 2]), name="u_context")
            h = tf.contrib.layers.fully_connected(inputs, HIDDEN * 2, activation_fn=tf.nn.tanh)
            alpha = tf.nn.softmax(tf.reduce_sum(tf.multiply(h, u_context), axis=2, keep_dims=True), dim=1)
            return tf.reduce_sum(tf.multiply(inputs, alpha), axis=1)

    def highway(self, x):
        size = x.get_shape()[1]
        with tf.variable_scope("highway"):
            W_T = tf.get_variable("weight_transform", [size, size], initializer=tf.truncated_normal_initializer(0, 0.1))
            b_T = tf.get_variable("bias_transform", [size], initializer=tf.constant_initializer(-1.0))
            T = tf.sigmoid(tf.nn.xw_plus_b(x, W_T, b_T), name="transform_gate")
            H = tf.contrib.layers.linear(x, size.value, scope="H")
            return tf.add(tf.multiply(tf.nn.elu(H), T), tf.multiply(x, tf.subtract(1.0, T, name="carry_gate")), "y")


han = HAN()
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=han.input_y, logits=han.out, name="loss"))
global_step = tf.Variable(0, trainable=False)
optimizer = tf.train.AdamOptimizer(0.02)
tvars = tf.trainable_variables()
grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), 5)
grads_and_vars = tuple(zip(grads, tvars))
train_op = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
grad_summaries = []
for g, v in grads_and_vars:
    if g is not None:
        grad_summaries.append(tf.summary.histogram("{}/grad/hist".format(v.name.replace(":", "_")), g))
grad_summary = tf.summary.merge(grad_summaries)
x = np.random.randint(0, VOCABULARY, (DOCS, SENTENCES, WORDS))
y = np.eye(CLASSES)[[0, 1, 0, 1]]
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = [sess.run([train_op, loss, grad_summary], {han.input_x: x, han.input_y: y})[1] for _ in range(6)]
    summary = tf.Summary.FromString(sess.run(grad_summary, {han.input_x: x, han.input_y: y}))
np.savez("results.npz", costs=costs, variables=[v.name for v in tvars], tags=[value.tag for value in summary.value])
