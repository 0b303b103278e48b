"""A transformer with layer normalization, masks by sums, sinusoids, label smoothing and a rate that warms up."""

import numpy as np
import tensorflow as tf

VOCABULARY, UNITS, HEADS, BATCH, LENGTH = 12, 8, 2, 4, 5


def normalize(inputs, epsilon=1e-8, scope="ln", reuse=None):
    with tf.variable_scope(scope, reuse=reuse):
        params_shape = inputs.get_shape()[-1:]
        mean, variance = tf.nn.moments(inputs, [-1], keep_dims=True)
        beta = tf.Variable(tf.zeros(params_shape))
        gamma = tf.Variable(tf.ones(params_shape))
        normalized = (inputs - mean) / ((variance + epsilon) ** (0.5))
        return gamma * normalized + beta


def embedding(inputs, vocab_size, num_units, zero_pad=True, scale=True, scope="embedding", reuse=None):
    with tf.variable_scope(scope, reuse=reuse):
        lookup_table = tf.get_variable(
            "lookup_table",
            dtype=tf.float32,
            shape=[vocab_size, num_units],
            initializer=tf.contrib.layers.xavier_initializer(),
        )
        if zero_pad:
            lookup_table = tf.concat((tf.zeros(shape=[1, num_units]), lookup_table[1:, :]), 0)
        outputs = tf.nn.embedding_lookup(lookup_table, inputs)
        return outputs * (num_units**0.5) if scale else outputs


def positional_encoding(inputs, num_units, scope="positional_encoding"):
    N, T = tf.shape(inputs)[0], inputs.get_shape().as_list()[1]
    with tf.variable_scope(scope):
        position_ind = tf.tile(tf.expand_dims(tf.range(T), 0), [N, 1])
        position_enc = np.array(
            [[pos / np.power(10000, 2.0 * i / num_units) for i in range(num_units)] for pos in range(T)]
        )
        position_enc[:, 0::2] = np.sin(position_enc[:, 0::2])
        position_enc[:, 1::2] = np.cos(position_enc[:, 1::2])
        return tf.nn.embedding_lookup(tf.convert_to_tensor(position_enc, tf.float32), position_ind)


def multihead_attention(queries, keys, ids, num_heads=HEADS, dropout=0.0, training=True, causality=False, scope="mha"):
    with tf.variable_scope(scope):
        num_units = queries.get_shape().as_list()[-1]
        Q, K, V = (tf.layers.dense(each, num_units, activation=tf.nn.relu) for each in (queries, keys, keys))
        Q_, K_, V_ = (tf.concat(tf.split(each, num_heads, axis=2), axis=0) for each in (Q, K, V))
        outputs = tf.matmul(Q_, tf.transpose(K_, [0, 2, 1]))
        outputs = outputs / (K_.get_shape().as_list()[-1] ** 0.5)
        key_masks = tf.sign(tf.to_float(tf.abs(ids)))
        key_masks = tf.tile(tf.expand_dims(tf.tile(key_masks, [num_heads, 1]), 1), [1, tf.shape(queries)[1], 1])
        paddings = tf.ones_like(outputs) * (-(2**32) + 1)
        outputs = tf.where(tf.equal(key_masks, 0), paddings, outputs)
        if causality:
            diag_vals = tf.ones_like(outputs[0, :, :])
            tril = tf.linalg.LinearOperatorLowerTriangular(diag_vals).to_dense()
            masks = tf.tile(tf.expand_dims(tril, 0), [tf.shape(outputs)[0], 1, 1])
            outputs = tf.where(tf.equal(masks, 0), paddings, outputs)
        outputs = tf.nn.softmax(outputs)
        outputs = tf.layers.dropout(outputs, rate=dropout, training=tf.convert_to_tensor(training))
        outputs = tf.concat(tf.split(tf.matmul(outputs, V_), num_heads, axis=0), axis=2)
        return normalize(outputs + queries)


def feedforward(inputs, num_units=(16, UNITS), scope="feedforward"):
    with tf.variable_scope(scope):
        params = {
            "inputs": inputs,
            "filters": num_units[0],
            "kernel_size": 1,
            "activation": tf.nn.relu,
            "use_bias": True,
        }
        outputs = tf.layers.conv1d(**params)
        outputs = tf.layers.conv1d(inputs=outputs, filters=num_units[1], kernel_size=1, activation=None, use_bias=True)
        return normalize(outputs + inputs)


def label_smoothing(inputs, epsilon=0.1):
    K = inputs.get_shape().as_list()[-1]
    return ((1 - epsilon) * inputs) + (epsilon / K)


def noam_scheme(init_lr, global_step, warmup_steps=4.0):
    step = tf.cast(global_step + 1, dtype=tf.float32)
    return init_lr * warmup_steps**0.5 * tf.minimum(step * warmup_steps**-1.5, step**-0.5)


x = tf.placeholder(tf.int32, shape=(None, LENGTH))
y = tf.placeholder(tf.int32, shape=(None, LENGTH))
decoder_inputs = tf.concat((tf.ones_like(y[:, :1]) * 2, y[:, :-1]), -1)
with tf.variable_scope("encoder"):
    enc = embedding(x, VOCABULARY, UNITS) + positional_encoding(x, UNITS)
    enc *= tf.expand_dims(tf.sign(tf.abs(tf.reduce_sum(tf.to_float(tf.expand_dims(x, -1)), axis=-1))), -1)
    for i in range(2):
        with tf.variable_scope("num_blocks_{}".format(i)):
            enc = feedforward(multihead_attention(enc, enc, x))
with tf.variable_scope("decoder"):
    dec = embedding(decoder_inputs, VOCABULARY, UNITS) + positional_encoding(decoder_inputs, UNITS)
    dec = multihead_attention(dec, dec, decoder_inputs, causality=True, scope="self_attention")
    dec = feedforward(multihead_attention(dec, enc, x, scope="vanilla_attention"))
logits = tf.layers.dense(dec, VOCABULARY)
preds = tf.to_int32(tf.arg_max(logits, dimension=-1))
istarget = tf.to_float(tf.not_equal(y, 0))
acc = tf.reduce_sum(tf.to_float(tf.equal(preds, y)) * istarget) / (tf.reduce_sum(istarget))
y_smoothed = label_smoothing(tf.one_hot(y, depth=VOCABULARY))
loss = tf.nn.softmax_cross_entropy_with_logits_v2(logits=logits, labels=y_smoothed)
mean_loss = tf.reduce_sum(loss * istarget) / (tf.reduce_sum(istarget))
global_step = tf.Variable(0, name="global_step", trainable=False)
optimizer = tf.train.AdamOptimizer(learning_rate=noam_scheme(0.01, global_step), beta1=0.9, beta2=0.98, epsilon=1e-8)
train_op = optimizer.minimize(mean_loss, global_step=global_step)
random = np.random.RandomState(3)
source = random.randint(3, VOCABULARY, (BATCH, LENGTH))
source[0, 3:] = 0
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = [sess.run([mean_loss, train_op], {x: source, y: source[:, ::-1]})[0] for _ in range(6)]
    accuracy, outputs = sess.run([acc, logits], {x: source, y: source})
np.savez(
    "results.npz", costs=costs, accuracy=accuracy, outputs=outputs, variables=[v.name for v in tf.trainable_variables()]
)
