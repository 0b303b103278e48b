"""Idioms: static shapes, and sizes that are floats."""

import tensorflow as tf


def transposed_convolutions():
    images = tf.placeholder_with_default(tf.ones([2, 4, 4, 3]), [None, 4, 4, 3])
    kernel = tf.get_variable("kernel", [5, 5, 2, 3])
    deconv = tf.nn.conv2d_transpose(images, kernel, [2, 8, 8, 2], [1, 2, 2, 1])
    sequence = tf.placeholder_with_default(tf.ones([2, 4, 3]), [None, None, 3])
    return {
        "2d": tf.reshape(tf.nn.bias_add(deconv, tf.ones([2])), deconv.get_shape()),
        "dynamic": tf.nn.conv2d_transpose(images, kernel, tf.stack([tf.shape(images)[0], 8, 8, 2]), [1, 2, 2, 1]),
        "1d": tf.nn.conv1d_transpose(sequence, tf.ones([5, 2, 3]), [2, 8, 2], 2),
        "atrous": tf.nn.atrous_conv2d_transpose(images, kernel, [2, 4, 4, 2], 2, "SAME"),
        "layer": tf.layers.conv2d_transpose(images, 2, 3, 2, "same"),
    }


def sizes_that_are_floats():
    outputs, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(8 / 2), tf.ones([2, 3, 5]), dtype=tf.float32)
    return {
        "placeholder": tf.placeholder(tf.float32, [None, 28 / 2]).get_shape().as_list()[1],
        "spec": tf.TensorSpec([28 / 2], tf.float32).shape.as_list(),
        "variable": tf.get_variable("v", [6 / 2, 2]),
        "zeros": tf.zeros([3, 28 / 2]),
        "dropout": tf.nn.dropout(tf.ones([2, 4]), 1.0, noise_shape=[2, 4 / 4]),
        "dense": tf.layers.dense(tf.ones([2, 4]), 8 / 2),
        "conv2d": tf.layers.conv2d(tf.ones([1, 8, 8, 2]), 8 / 2, [6 / 2, 3]),
        "outputs": outputs,
        "state": state,
    }
