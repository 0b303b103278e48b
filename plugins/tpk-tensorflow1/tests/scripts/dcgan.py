"""A DCGAN: transposed convolutions that are reshaped to their own static shape, and two optimizers."""

from __future__ import division, print_function

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_integer("batch_size", 8, "images of a batch")
flags.DEFINE_integer("z_dim", 6, "size of the noise")
FLAGS = flags.FLAGS


def conv2d(input_, output_dim, name):
    with tf.variable_scope(name):
        w = tf.get_variable(
            "w", [5, 5, input_.get_shape()[-1], output_dim], initializer=tf.truncated_normal_initializer(stddev=0.02)
        )
        conv = tf.nn.conv2d(input_, w, strides=[1, 2, 2, 1], padding="SAME")
        biases = tf.get_variable("biases", [output_dim], initializer=tf.constant_initializer(0.0))
        return tf.reshape(tf.nn.bias_add(conv, biases), conv.get_shape())


def deconv2d(input_, output_shape, name):
    with tf.variable_scope(name):
        w = tf.get_variable(
            "w", [5, 5, output_shape[-1], input_.get_shape()[-1]], initializer=tf.random_normal_initializer(stddev=0.02)
        )
        deconv = tf.nn.conv2d_transpose(input_, w, output_shape=output_shape, strides=[1, 2, 2, 1])
        biases = tf.get_variable("biases", [output_shape[-1]], initializer=tf.constant_initializer(0.0))
        return tf.reshape(tf.nn.bias_add(deconv, biases), deconv.get_shape())


def linear(input_, output_size, name):
    with tf.variable_scope(name):
        shape = input_.get_shape().as_list()
        matrix = tf.get_variable(
            "Matrix", [shape[1], output_size], tf.float32, tf.random_normal_initializer(stddev=0.02)
        )
        bias = tf.get_variable("bias", [output_size], initializer=tf.constant_initializer(0.0))
        return tf.matmul(input_, matrix) + bias


def generator(z, size=16):
    with tf.variable_scope("generator"):
        quarter = size / 4
        h0 = tf.reshape(linear(z, int(quarter * quarter * 8), "g_h0_lin"), [-1, int(quarter), int(quarter), 8])
        h1 = deconv2d(tf.nn.relu(h0), [FLAGS.batch_size, size // 2, size // 2, 4], "g_h1")
        h2 = deconv2d(tf.nn.relu(h1), [FLAGS.batch_size, size, size, 1], "g_h2")
        return tf.nn.tanh(h2)


def discriminator(image, reuse=False):
    with tf.variable_scope("discriminator") as scope:
        if reuse:
            scope.reuse_variables()
        h0 = tf.maximum(conv2d(image, 4, "d_h0_conv"), 0.2 * conv2d(image, 4, "d_h0_leak"))
        h1 = tf.nn.relu(conv2d(h0, 8, "d_h1_conv"))
        return linear(tf.reshape(h1, [FLAGS.batch_size, -1]), 1, "d_h2_lin")


def main(_):
    images = tf.placeholder(tf.float32, [FLAGS.batch_size, 32 / 2, 32 / 2, 1], name="real_images")
    z = tf.placeholder(tf.float32, [None, FLAGS.z_dim], name="z")
    fake = generator(z)
    real_logits, fake_logits = discriminator(images), discriminator(fake, reuse=True)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits
    d_loss = tf.reduce_mean(entropy(logits=real_logits, labels=tf.ones_like(real_logits))) + tf.reduce_mean(
        entropy(logits=fake_logits, labels=tf.zeros_like(fake_logits))
    )
    g_loss = tf.reduce_mean(entropy(logits=fake_logits, labels=tf.ones_like(fake_logits)))
    t_vars = tf.trainable_variables()
    d_optim = tf.train.AdamOptimizer(0.002, beta1=0.5).minimize(d_loss, var_list=[v for v in t_vars if "d_" in v.name])
    g_optim = tf.train.AdamOptimizer(0.002, beta1=0.5).minimize(g_loss, var_list=[v for v in t_vars if "g_" in v.name])

    rng = np.random.RandomState(1)
    data = rng.uniform(-1, 1, [FLAGS.batch_size, 16, 16, 1]).astype(np.float32)
    costs = []
    with tf.Session(config=tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))) as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(12):
            batch_z = rng.uniform(-1, 1, [FLAGS.batch_size, FLAGS.z_dim])
            sess.run(d_optim, feed_dict={images: data, z: batch_z})
            sess.run(g_optim, feed_dict={z: batch_z})
            costs.append(d_loss.eval({images: data, z: batch_z}))
            print("step %2d, d_loss: %.8f" % (step, costs[-1]))
        samples = sess.run(fake, {z: batch_z})
    np.savez("results.npz", costs=costs, samples=samples, variables=[v.op.name for v in t_vars])


if __name__ == "__main__":
    tf.app.run()
