"""A variational autoencoder with the reparameterization trick, as a class with its own session."""

import numpy as np
import tensorflow as tf


def xavier_init(fan_in, fan_out, constant=1):
    low = -constant * np.sqrt(6.0 / (fan_in + fan_out))
    high = constant * np.sqrt(6.0 / (fan_in + fan_out))
    return tf.random_uniform((fan_in, fan_out), minval=low, maxval=high, dtype=tf.float32)


class VariationalAutoencoder(object):
    def __init__(self, network_architecture, transfer_fct=tf.nn.softplus, learning_rate=0.001, batch_size=10):
        self.network_architecture = network_architecture
        self.transfer_fct = transfer_fct
        self.batch_size = batch_size
        self.x = tf.placeholder(tf.float32, [None, network_architecture["n_input"]])
        self._create_network(**network_architecture)
        self._create_loss_optimizer(learning_rate)
        self.sess = tf.InteractiveSession()
        self.sess.run(tf.global_variables_initializer())

    def _layers(self, prefix, sizes):
        weights = {}
        for name, fan_in, fan_out in sizes:
            weights[prefix + name] = tf.Variable(xavier_init(fan_in, fan_out))
            weights["b" + name] = tf.Variable(tf.zeros([fan_out], dtype=tf.float32))
        return weights

    def _create_network(self, n_hidden, n_input, n_z):
        w = self._layers("h", [("1", n_input, n_hidden), ("_mean", n_hidden, n_z), ("_log_sigma", n_hidden, n_z)])
        layer = self.transfer_fct(tf.add(tf.matmul(self.x, w["h1"]), w["b1"]))
        self.z_mean = tf.add(tf.matmul(layer, w["h_mean"]), w["b_mean"])
        self.z_log_sigma_sq = tf.add(tf.matmul(layer, w["h_log_sigma"]), w["b_log_sigma"])
        eps = tf.random_normal((self.batch_size, n_z), 0, 1, dtype=tf.float32)
        self.z = tf.add(self.z_mean, tf.multiply(tf.sqrt(tf.exp(self.z_log_sigma_sq)), eps))
        w = self._layers("h", [("2", n_z, n_hidden), ("_out", n_hidden, n_input)])
        layer = self.transfer_fct(tf.add(tf.matmul(self.z, w["h2"]), w["b2"]))
        self.x_reconstr_mean = tf.nn.sigmoid(tf.add(tf.matmul(layer, w["h_out"]), w["b_out"]))

    def _create_loss_optimizer(self, learning_rate):
        x, mean = self.x, self.x_reconstr_mean
        reconstr_loss = -tf.reduce_sum(x * tf.log(1e-10 + mean) + (1 - x) * tf.log(1e-10 + 1 - mean), 1)
        latent_loss = -0.5 * tf.reduce_sum(
            1 + self.z_log_sigma_sq - tf.square(self.z_mean) - tf.exp(self.z_log_sigma_sq), 1
        )
        self.cost = tf.reduce_mean(reconstr_loss + latent_loss)
        self.optimizer = tf.train.AdamOptimizer(learning_rate=learning_rate).minimize(self.cost)

    def partial_fit(self, X):
        opt, cost = self.sess.run((self.optimizer, self.cost), feed_dict={self.x: X})
        return cost

    def generate(self, z_mu=None):
        if z_mu is None:
            z_mu = np.random.normal(size=[self.batch_size, self.network_architecture["n_z"]])
        return self.sess.run(self.x_reconstr_mean, feed_dict={self.z: z_mu})


samples = (np.random.rand(40, 12) > np.linspace(0.1, 0.9, 12)).astype(np.float32)
vae = VariationalAutoencoder({"n_hidden": 8, "n_input": 12, "n_z": 2}, learning_rate=0.02)
costs = []
for _epoch in range(6):
    avg_cost = 0.0
    for i in range(len(samples) // vae.batch_size):
        avg_cost += vae.partial_fit(samples[i * 10 : (i + 1) * 10]) / len(samples) * vae.batch_size
    costs.append(avg_cost)
np.savez("results.npz", costs=np.float32(costs), generated=vae.generate(), mean=vae.z_mean.eval({vae.x: samples[:3]}))
vae.sess.close()
