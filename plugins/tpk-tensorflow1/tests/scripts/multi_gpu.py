"""Towers on GPUs with shared variables and averaged gradients; without GPUs they run on the CPU."""

from __future__ import division

import numpy as np
import tensorflow as tf

num_gpus, num_classes, batch_size = 2, 3, 6
PS_OPS = ["Variable", "VariableV2", "AutoReloadVariable"]


def conv_net(x, n_classes, dropout, reuse, is_training):
    with tf.variable_scope("ConvNet", reuse=reuse):
        x = tf.reshape(x, shape=[-1, 8, 8, 1])
        x = tf.layers.conv2d(x, 4, 3, activation=tf.nn.relu)
        x = tf.layers.max_pooling2d(x, 2, 2)
        x = tf.layers.batch_normalization(x, training=is_training, momentum=0.9)
        x = tf.contrib.layers.flatten(x)
        x = tf.layers.dense(x, 8)
        x = tf.layers.dropout(x, rate=dropout, training=is_training)
        out = tf.layers.dense(x, n_classes)
        return tf.nn.softmax(out) if not is_training else out


def average_gradients(tower_grads):
    average_grads = []
    for grad_and_vars in zip(*tower_grads):
        grads = []
        for g, _ in grad_and_vars:
            expanded_g = tf.expand_dims(g, 0)
            grads.append(expanded_g)
        grad = tf.concat(grads, 0)
        grad = tf.reduce_mean(grad, 0)
        v = grad_and_vars[0][1]
        average_grads.append((grad, v))
    return average_grads


def assign_to_device(device, ps_device="/cpu:0"):
    def _assign(op):
        node_def = op if isinstance(op, tf.NodeDef) else op.node_def
        if node_def.op in PS_OPS:
            return "/" + ps_device
        return device

    return _assign


with tf.device("/cpu:0"):
    tower_grads, losses = [], []
    reuse_vars = False
    X = tf.placeholder(tf.float32, [None, 64])
    Y = tf.placeholder(tf.float32, [None, num_classes])
    for i in range(num_gpus):
        with tf.device(assign_to_device("/gpu:{}".format(i), ps_device="/cpu:0")):
            _x = X[i * batch_size : (i + 1) * batch_size]
            _y = Y[i * batch_size : (i + 1) * batch_size]
            logits_train = conv_net(_x, num_classes, 0.0, reuse=reuse_vars, is_training=True)
            logits_test = conv_net(_x, num_classes, 0.0, reuse=True, is_training=False)
            loss_op = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(logits=logits_train, labels=_y))
            optimizer = tf.train.AdamOptimizer(learning_rate=0.01)
            grads = optimizer.compute_gradients(loss_op)
            losses.append(loss_op)
            if i == 0:
                correct_pred = tf.equal(tf.argmax(logits_test, 1), tf.argmax(_y, 1))
                accuracy = tf.reduce_mean(tf.cast(correct_pred, tf.float32))
                update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS, "ConvNet")
            reuse_vars = True
            tower_grads.append(grads)
    tower_grads = average_gradients(tower_grads)
    with tf.control_dependencies(update_ops):
        train_op = optimizer.apply_gradients(tower_grads)
    loss = tf.add_n(losses) / num_gpus

config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
config.gpu_options.allow_growth = True
batch_x = np.random.randn(batch_size * num_gpus, 64)
batch_y = np.eye(num_classes)[np.arange(batch_size * num_gpus) % num_classes]
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    costs = []
    for _ in range(6):
        costs.append(sess.run([loss, train_op], feed_dict={X: batch_x, Y: batch_y})[0])
    found = sess.run(accuracy, feed_dict={X: batch_x, Y: batch_y})
    moving = sess.run([v for v in tf.global_variables() if "moving" in v.name])
np.savez(
    "results.npz",
    costs=costs,
    accuracy=found,
    mean=moving[0],
    variance=moving[1],
    variables=[v.name for v in tf.trainable_variables()],
    updates=len(update_ops),
)
