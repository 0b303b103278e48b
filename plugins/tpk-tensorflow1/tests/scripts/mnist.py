"""Tutorials with MNIST: a softmax regression, a convolutional network, and an autoencoder, on data of their own."""

from __future__ import division, print_function

import gzip
import os
import struct

import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data


def write_files(directory):
    os.makedirs(directory)
    random = np.random.RandomState(0)
    for name, number in [("train", 120), ("t10k", 20)]:
        labels = random.randint(0, 10, number)
        images = random.randint(0, 50, (number, 28, 28))
        for image, label in zip(images, labels):
            image[2 * label : 2 * label + 4, 4:24] += 200
        with gzip.open(os.path.join(directory, name + "-images-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">4i", 2051, number, 28, 28) + images.astype(np.uint8).tobytes())
        with gzip.open(os.path.join(directory, name + "-labels-idx1-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">2i", 2049, number) + labels.astype(np.uint8).tobytes())


write_files("MNIST_data")
mnist = input_data.read_data_sets("MNIST_data/", one_hot=True, validation_size=20, seed=5)
results = {}


def softmax_regression():
    x = tf.placeholder("float", [None, 784])
    y_ = tf.placeholder("float", [None, 10])
    W = tf.Variable(tf.zeros([784, 10]))
    b = tf.Variable(tf.zeros([10]))
    y = tf.nn.softmax(tf.matmul(x, W) + b)
    cost = tf.reduce_mean(-tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)), reduction_indices=[1]))
    train_step = tf.train.GradientDescentOptimizer(0.1).minimize(cost)
    correct = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
    sess = tf.InteractiveSession()
    tf.initialize_all_variables().run()
    costs = []
    for _ in range(20):
        batch_xs, batch_ys = mnist.train.next_batch(25)
        costs.append(sess.run([train_step, cost], feed_dict={x: batch_xs, y_: batch_ys})[1])
    results["softmax accuracy"] = accuracy.eval({x: mnist.test.images, y_: mnist.test.labels})
    sess.close()
    return costs


def convnet():
    x = tf.placeholder(tf.float32, [None, 784])
    y_ = tf.placeholder(tf.float32, [None, 10])
    keep_prob = tf.placeholder(tf.float32)
    h = tf.reshape(x, [-1, 28, 28, 1])
    for size, seed in [(4, 1), (8, 2)]:
        channels = h.get_shape()[-1].value
        W = tf.Variable(tf.truncated_normal([5, 5, channels, size], stddev=0.1, seed=seed))
        h = tf.nn.relu(
            tf.nn.conv2d(h, W, strides=[1, 1, 1, 1], padding="SAME") + tf.Variable(tf.constant(0.1, shape=[size]))
        )
        h = tf.nn.max_pool(h, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    flat = tf.nn.dropout(tf.reshape(h, [-1, 7 * 7 * 8]), keep_prob)
    logits = tf.layers.dense(flat, 10, kernel_initializer=tf.contrib.layers.xavier_initializer(seed=4))
    cost = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=logits))
    train_step = tf.train.AdamOptimizer(1e-2).minimize(cost)
    costs = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(10):
            batch = mnist.train.next_batch(30)
            costs.append(sess.run([cost, train_step], {x: batch[0], y_: batch[1], keep_prob: 1.0})[0])
    return costs


def autoencoder():
    X = tf.placeholder("float", [None, 784])
    encoded = tf.contrib.layers.fully_connected(X, 16, activation_fn=tf.nn.sigmoid)
    decoded = tf.contrib.layers.fully_connected(encoded, 784, activation_fn=tf.nn.sigmoid, scope="decoder")
    cost = tf.reduce_mean(tf.pow(X - decoded, 2))
    optimizer = tf.train.RMSPropOptimizer(0.01).minimize(cost)
    costs = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _epoch in range(2):
            for _ in range(int(mnist.train.num_examples / 20)):
                batch_xs, _ = mnist.train.next_batch(20)
                costs.append(sess.run([optimizer, cost], feed_dict={X: batch_xs})[1])
    return costs


for program in (softmax_regression, convnet, autoencoder):
    with tf.Graph().as_default():
        results[program.__name__ + " costs"] = program()
results["epochs"] = mnist.train.epochs_completed
np.savez("results.npz", **results)
