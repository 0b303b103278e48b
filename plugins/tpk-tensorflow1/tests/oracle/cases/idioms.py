"""Idioms: static shapes, sizes that are floats, losses of regularizers."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.staging import StagingArea
from tensorflow.python.util import nest


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


def averages_of_regularization_losses():
    regularizer = tf.contrib.layers.l2_regularizer(0.1)
    with tf.variable_scope("scope", regularizer=regularizer):
        weights = tf.get_variable("weights", [3])
        dense = tf.layers.dense(tf.ones([2, 3]), 4)

    def body(step, total):
        with tf.variable_scope("loop", reuse=tf.AUTO_REUSE):
            return step + 1, total + tf.get_variable("inside", [], regularizer=regularizer)

    _, total = tf.while_loop(lambda step, total: step < 3, body, [0, 0.0])
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    averages = tf.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([averages.apply(losses)]):
        cost = tf.losses.get_regularization_loss() + tf.reduce_sum(tf.square(weights)) + tf.reduce_sum(dense) + total
    return {
        "names": [loss.op.name for loss in losses],
        "are tensors": [isinstance(loss, tf.Tensor) for loss in losses],
        "losses": dict(enumerate(losses)),
        "averages": [averages.average(loss) for loss in losses],
        "step": tf.train.GradientDescentOptimizer(0.1).minimize(cost),
    }


def nested_structures():
    pair = {"b": [tf.ones([2]), tf.zeros([3])], "a": tf.constant(2.0)}
    flat = nest.flatten(pair)
    return {
        "flat": flat,
        "packed": nest.pack_sequence_as(pair, [each + 1 for each in flat]),
        "are sequences": [nest.is_sequence(each) for each in (pair, (1,), [], "text", np.ones(2), flat[0])],
        "of contrib": [tf.contrib.framework.nest.is_sequence(each) for each in (pair, flat[0])],
    }


def protos_of_tensors():
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    proto = tf.contrib.util.make_tensor_proto(numbers, shape=[3, 2])
    return {
        "array": tf.contrib.util.make_ndarray(proto),
        "constant": tf.contrib.util.constant_value(tf.constant(numbers)),
        "unknown": tf.contrib.util.constant_value(tf.placeholder(tf.float32)) is None,
    }


def staged_batches():
    area = StagingArea([tf.float32], shapes=[[2]])
    put = area.put([tf.constant([1.0, 2.0])])
    with tf.control_dependencies([put]):
        return {"got": tf.identity(area.get()), "size": area.size()}
