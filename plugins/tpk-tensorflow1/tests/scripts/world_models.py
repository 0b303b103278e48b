"""A world model: an autoencoder of frames with `tf.layers`, and a recurrent network with a mixture density on top."""

from __future__ import print_function

import json
from collections import namedtuple

import numpy as np
import tensorflow as tf

HyperParams = namedtuple("HyperParams", ["z_size", "rnn_size", "num_mixture", "seq_width", "grad_clip"])


class ConvVAE(object):
    def __init__(self, z_size, batch_size, learning_rate=0.003, kl_tolerance=0.5, reuse=False):
        with tf.variable_scope("conv_vae", reuse=reuse):
            self.g = tf.Graph()
            with self.g.as_default():
                self._build(z_size, batch_size, learning_rate, kl_tolerance)
        self.sess = tf.Session(graph=self.g)
        self.sess.run(self.init)

    def _build(self, z_size, batch_size, learning_rate, kl_tolerance):
        self.x = tf.placeholder(tf.float32, shape=[None, 16, 16, 3])
        h = tf.layers.conv2d(self.x, 4, 4, strides=2, activation=tf.nn.relu, name="enc_conv1")
        h = tf.layers.conv2d(h, 8, 4, strides=2, activation=tf.nn.relu, name="enc_conv2")
        h = tf.reshape(h, [-1, 2 * 2 * 8])
        self.mu = tf.layers.dense(h, z_size, name="enc_fc_mu")
        self.sigma = tf.exp(tf.layers.dense(h, z_size, name="enc_fc_log_var") / 2.0)
        self.z = self.mu + self.sigma * tf.random_normal([batch_size, z_size], seed=1)
        h = tf.reshape(tf.layers.dense(self.z, 32, name="dec_fc"), [-1, 1, 1, 32])
        h = tf.layers.conv2d_transpose(h, 8, 6, strides=2, activation=tf.nn.relu, name="dec_deconv1")
        self.y = tf.layers.conv2d_transpose(h, 3, 6, strides=2, activation=tf.nn.sigmoid, name="dec_deconv2")
        self.global_step = tf.Variable(0, name="global_step", trainable=False)
        r_loss = tf.reduce_mean(tf.reduce_sum(tf.square(self.x - self.y), reduction_indices=[1, 2, 3]))
        kl = -0.5 * tf.reduce_sum(
            1 + tf.log(tf.square(self.sigma)) - tf.square(self.mu) - tf.square(self.sigma), reduction_indices=1
        )
        self.loss = r_loss + tf.reduce_mean(tf.maximum(kl, kl_tolerance * z_size))
        optimizer = tf.train.AdamOptimizer(tf.Variable(learning_rate, trainable=False))
        self.train_op = optimizer.apply_gradients(optimizer.compute_gradients(self.loss), global_step=self.global_step)
        self.init = tf.global_variables_initializer()

    def get_model_params(self):
        with self.g.as_default():
            return [self.sess.run(v) for v in tf.trainable_variables()]

    def set_model_params(self, params):
        with self.g.as_default():
            for v, value in zip(tf.trainable_variables(), params):
                assert v.get_shape() == np.array(value).shape
                self.sess.run(v.assign(np.array(value)))


def mdn_rnn(hps, batch, steps):
    """Return the placeholders and the loss of a recurrent network whose outputs are mixtures of normals."""
    x = tf.placeholder(tf.float32, [batch, steps, hps.seq_width])
    target = tf.placeholder(tf.float32, [batch, steps, hps.z_size])
    cell = tf.contrib.rnn.LayerNormBasicLSTMCell(hps.rnn_size, layer_norm=False)
    outputs, state = tf.nn.dynamic_rnn(
        cell, x, initial_state=cell.zero_state(batch, tf.float32), swap_memory=True, dtype=tf.float32, scope="RNN"
    )
    with tf.variable_scope("RNN"):
        w = tf.get_variable("output_w", [hps.rnn_size, hps.z_size * hps.num_mixture * 3])
        b = tf.get_variable("output_b", [hps.z_size * hps.num_mixture * 3], initializer=tf.zeros_initializer())
    output = tf.nn.xw_plus_b(tf.reshape(outputs, [-1, hps.rnn_size]), w, b)
    logmix, mean, logstd = tf.split(tf.reshape(output, [-1, hps.num_mixture * 3]), 3, 1)
    logmix = logmix - tf.reduce_logsumexp(logmix, 1, keepdims=True)
    flat = tf.reshape(target, [-1, 1])
    log_prob = logmix - 0.5 * ((flat - mean) / tf.exp(logstd)) ** 2 - logstd - np.log(np.sqrt(2.0 * np.pi))
    return x, target, -tf.reduce_mean(tf.reduce_logsumexp(log_prob, 1, keepdims=True)), state


rng = np.random.RandomState(0)
frames = (rng.randint(0, 256, (10, 16, 16, 3)) * np.linspace(0, 1, 16).reshape([1, 16, 1, 1])).astype(np.float32) / 255
vae = ConvVAE(z_size=4, batch_size=10)
vae.set_model_params([0.3 * rng.randn(*np.shape(value)) for value in vae.get_model_params()])
costs = []
for _ in range(30):
    loss, _, step = vae.sess.run([vae.loss, vae.train_op, vae.global_step], feed_dict={vae.x: frames})
    costs.append(loss)
with open("vae.json", "wt") as outfile:
    json.dump([np.round(value * 10000).astype(np.int).tolist() for value in vae.get_model_params()], outfile)
mu = vae.sess.run(vae.mu, {vae.x: frames})

hps = HyperParams(z_size=4, rnn_size=6, num_mixture=2, seq_width=5, grad_clip=1.0)
with tf.Graph().as_default():
    x, target, cost, last_state = mdn_rnn(hps, 2, 4)
    optimizer = tf.train.AdamOptimizer(0.01)
    gvs = [
        (tf.clip_by_value(grad, -hps.grad_clip, hps.grad_clip), var) for grad, var in optimizer.compute_gradients(cost)
    ]
    train_op = optimizer.apply_gradients(gvs)
    actions = rng.uniform(-1, 1, [2, 4, 1])
    z = mu[:10].reshape(2, 5, 4)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        feeds = {x: np.concatenate((z[:, :4], actions), axis=2), target: z[:, 1:]}
        rnn_costs = [sess.run([cost, train_op], feeds)[0] for _ in range(10)]
        state = sess.run(last_state, feeds)
        names = [v.op.name for v in tf.trainable_variables()]
np.savez("results.npz", costs=costs, step=step, rnn_costs=rnn_costs, c=state.c, h=state.h, names=names)
