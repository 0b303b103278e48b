"""A small transformer that is trained as gpt-2 is: hyperparameters from JSON, top-k samples, and a Saver."""

import json

import numpy as np
import tensorflow as tf
from tensorflow.contrib.training import HParams


def default_hparams():
    return HParams(n_vocab=0, n_ctx=16, n_embd=8, n_head=2, n_layer=2)


def shape_list(x):
    static, dynamic = x.shape.as_list(), tf.shape(x)
    return [dynamic[i] if s is None else s for i, s in enumerate(static)]


def norm(x, scope, axis=-1, epsilon=1e-5):
    with tf.variable_scope(scope):
        n_state = x.shape[-1].value
        g = tf.get_variable("g", [n_state], initializer=tf.constant_initializer(1))
        b = tf.get_variable("b", [n_state], initializer=tf.constant_initializer(0))
        u = tf.reduce_mean(x, axis=axis, keepdims=True)
        s = tf.reduce_mean(tf.square(x - u), axis=axis, keepdims=True)
        return (x - u) * tf.rsqrt(s + epsilon) * g + b


def conv1d(x, scope, nf, w_init_stdev=0.02):
    with tf.variable_scope(scope):
        *start, nx = shape_list(x)
        w = tf.get_variable("w", [1, nx, nf], initializer=tf.random_normal_initializer(stddev=w_init_stdev))
        b = tf.get_variable("b", [nf], initializer=tf.constant_initializer(0))
        return tf.reshape(tf.matmul(tf.reshape(x, [-1, nx]), tf.reshape(w, [-1, nf])) + b, start + [nf])


def attn(x, scope, n_state, hparams):
    def split_heads(x):
        *start, m = shape_list(x)
        return tf.transpose(tf.reshape(x, start + [hparams.n_head, m // hparams.n_head]), [0, 2, 1, 3])

    with tf.variable_scope(scope):
        q, k, v = map(split_heads, tf.split(conv1d(x, "c_attn", n_state * 3), 3, axis=2))
        w = tf.matmul(q, k, transpose_b=True) * tf.rsqrt(tf.cast(v.shape[-1].value, x.dtype))
        length = shape_list(w)[-1]
        mask = tf.cast(tf.range(length)[:, None] >= tf.range(length), w.dtype)
        a = tf.matmul(tf.nn.softmax(w * mask - 1e10 * (1 - mask)), v)
        a = tf.transpose(a, [0, 2, 1, 3])
        *start, heads, size = shape_list(a)
        return conv1d(tf.reshape(a, start + [heads * size]), "c_proj", n_state)


def model(hparams, X, reuse=False):
    with tf.variable_scope("model", reuse=reuse):
        batch, sequence = shape_list(X)
        wpe = tf.get_variable(
            "wpe", [hparams.n_ctx, hparams.n_embd], initializer=tf.random_normal_initializer(stddev=0.01)
        )
        wte = tf.get_variable(
            "wte", [hparams.n_vocab, hparams.n_embd], initializer=tf.random_normal_initializer(stddev=0.02)
        )
        h = tf.gather(wte, X) + tf.gather(wpe, tf.range(sequence)[None])
        for layer in range(hparams.n_layer):
            with tf.variable_scope("h%d" % layer):
                nx = h.shape[-1].value
                h += attn(norm(h, "ln_1"), "attn", nx, hparams)
                h += conv1d(tf.nn.relu(conv1d(norm(h, "ln_2"), "mlp_fc", nx * 4)), "mlp_proj", nx)
        h = norm(h, "ln_f")
        logits = tf.matmul(tf.reshape(h, [batch * sequence, hparams.n_embd]), wte, transpose_b=True)
        return tf.reshape(logits, [batch, sequence, hparams.n_vocab])


def top_k_logits(logits, k):
    values, _ = tf.nn.top_k(logits, k=k)
    return tf.where(logits < values[:, -1, tf.newaxis], tf.ones_like(logits, dtype=logits.dtype) * -1e10, logits)


text = "in the beginning was the word, and the word was short. " * 3
chars = sorted(set(text))
tokens = np.array([chars.index(c) for c in text])
with open("hparams.json", "w") as f:
    json.dump({"n_vocab": len(chars), "n_ctx": 12}, f)
hparams = default_hparams()
with open("hparams.json") as f:
    hparams.override_from_dict(json.load(f))
hparams.parse("n_layer=1")

with tf.Session() as sess:
    context = tf.placeholder(tf.int32, [2, None])
    output = model(hparams, context)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=context[:, 1:], logits=output[:, :-1]))
    train_vars = [v for v in tf.trainable_variables() if "model" in v.name]
    opt = tf.train.AdamOptimizer(learning_rate=0.02)
    opt_apply = opt.apply_gradients(list(zip(tf.gradients(loss, train_vars, gate_gradients=True), train_vars)))
    sample = top_k_logits(output[:, -1, :], k=3)
    saver = tf.train.Saver(var_list=train_vars, max_to_keep=5, keep_checkpoint_every_n_hours=2)
    sess.run(tf.global_variables_initializer())
    random, costs = np.random.RandomState(0), []
    for _ in range(15):
        starts = random.randint(0, len(tokens) - 12, 2)
        batch = [tokens[start : start + 12] for start in starts]
        _, cost = sess.run((opt_apply, loss), feed_dict={context: batch})
        costs.append(cost)
    saver.save(sess, "model", global_step=15)
    saver.restore(sess, tf.train.latest_checkpoint("."))
    logits = sess.run(sample, {context: batch})
np.savez("results.npz", costs=costs, logits=logits, hparams=str(hparams), variables=[v.op.name for v in train_vars])
