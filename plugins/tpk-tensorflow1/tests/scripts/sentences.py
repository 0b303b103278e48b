"""A classifier of sentences, trained by a `batch_iter` that makes an array of pairs of different shapes."""

import datetime
import os
import time

import numpy as np
import tensorflow as tf

VOCABULARY, LENGTH, CLASSES = 30, 12, 2


def batch_iter(data, batch_size, num_epochs, shuffle=True):
    data = np.array(data)
    data_size = len(data)
    num_batches_per_epoch = int((data_size - 1) / batch_size) + 1
    for _ in range(num_epochs):
        shuffled = data[np.random.permutation(np.arange(data_size))] if shuffle else data
        for number in range(num_batches_per_epoch):
            yield shuffled[number * batch_size : min((number + 1) * batch_size, data_size)]


class TextCNN(object):
    def __init__(self, filter_sizes, num_filters, embedding_size):
        self.input_x = tf.placeholder(tf.int32, [None, LENGTH], name="input_x")
        self.input_y = tf.placeholder(tf.float32, [None, CLASSES], name="input_y")
        with tf.device("/cpu:0"), tf.name_scope("embedding"):
            W = tf.Variable(tf.random_uniform([VOCABULARY, embedding_size], -1.0, 1.0, seed=1), name="W")
            embedded = tf.expand_dims(tf.nn.embedding_lookup(W, self.input_x), -1)
        pooled = []
        for size in filter_sizes:
            with tf.name_scope("conv-maxpool-%s" % size):
                W = tf.Variable(
                    tf.truncated_normal([size, embedding_size, 1, num_filters], stddev=0.1, seed=2), name="W"
                )
                b = tf.Variable(tf.constant(0.1, shape=[num_filters]), name="b")
                h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(embedded, W, [1, 1, 1, 1], "VALID"), b), name="relu")
                pooled.append(tf.nn.max_pool(h, [1, LENGTH - size + 1, 1, 1], [1, 1, 1, 1], "VALID", name="pool"))
        flat = tf.reshape(tf.concat(pooled, 3), [-1, num_filters * len(filter_sizes)])
        with tf.name_scope("output"):
            W = tf.get_variable(
                "W",
                [num_filters * len(filter_sizes), CLASSES],
                initializer=tf.contrib.layers.xavier_initializer(seed=3),
            )
            scores = tf.nn.xw_plus_b(flat, W, tf.Variable(tf.constant(0.1, shape=[CLASSES]), name="b"), name="scores")
            self.predictions = tf.argmax(scores, 1, name="predictions")
        losses = tf.nn.softmax_cross_entropy_with_logits(logits=scores, labels=self.input_y)
        self.loss = tf.reduce_mean(losses) + 0.01 * tf.nn.l2_loss(W)


rng = np.random.RandomState(3)
x = rng.randint(0, VOCABULARY, (64, LENGTH))
y = np.eye(CLASSES)[(x < VOCABULARY / 2).sum(axis=1) % 2]

with tf.Graph().as_default():
    session_conf = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    sess = tf.Session(config=session_conf)
    with sess.as_default():
        cnn = TextCNN([3, 4], 8, 5)
        global_step = tf.Variable(0, name="global_step", trainable=False)
        optimizer = tf.train.AdamOptimizer(1e-2)
        grads_and_vars = optimizer.compute_gradients(cnn.loss)
        train_op = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
        saver = tf.train.Saver(tf.global_variables(), max_to_keep=5)
        sess.run(tf.global_variables_initializer())
        np.random.seed(5)
        started, costs = time.clock(), []
        for batch in batch_iter(list(zip(x, y)), 16, 10):
            x_batch, y_batch = zip(*batch)
            _, step, loss = sess.run([train_op, global_step, cnn.loss], {cnn.input_x: x_batch, cnn.input_y: y_batch})
            costs.append(loss)
        print("{}: step {}, loss {:g}".format(datetime.datetime.now().isoformat(), step, loss))
        path = saver.save(sess, os.path.join(os.curdir, "model"), global_step=step)
        found = sess.run(cnn.predictions, {cnn.input_x: x})
np.savez("results.npz", costs=costs, step=step, found=found, path=os.path.basename(path))
assert time.clock() >= started
