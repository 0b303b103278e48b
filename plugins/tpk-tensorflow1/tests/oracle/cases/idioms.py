"""Idioms: static shapes, sizes that are floats, losses of regularizers, files of TensorFlow itself."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.framework.python.ops import audio_ops
from tensorflow.contrib.metrics.python.ops import set_ops
from tensorflow.contrib.seq2seq.python.ops import decoder
from tensorflow.contrib.staging import StagingArea
from tensorflow.python.layers import base
from tensorflow.python.ops import rnn_cell_impl
from tensorflow.python.training import optimizer, training_ops
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
        got = tf.identity(area.get())
    with tf.control_dependencies([got]):
        return {"got": got, "size": area.size()}


class _RMSPropWithoutMomentum(optimizer.Optimizer):
    def __init__(self, rate):
        super().__init__(False, "RMSPropWithoutMomentum")
        self._rate = rate

    def _create_slots(self, var_list):
        for var in var_list:
            self._get_or_make_slot(var, tf.ones(var.shape), "rms", self._name)
            self._zeros_slot(var, "momentum", self._name)

    def _apply_dense(self, grad, var):
        slots = self.get_slot(var, "rms"), self.get_slot(var, "momentum")
        return training_ops.apply_rms_prop(var, *slots, self._rate, 0.9, 0.0, 1e-6, grad, use_locking=False).op


def an_optimizer_of_raw_ops():
    weights = tf.get_variable("weights", initializer=tf.constant([1.0, -2.0]))
    gradients = [(tf.clip_by_norm(2 * weights, 3.0), weights)]
    return {"weights": weights, "step": _RMSPropWithoutMomentum(0.1).apply_gradients(gradients)}


def features_of_audio():
    waves = np.sin(np.arange(400, dtype=np.float32)[:, None] ** 2 / 1000)
    spectrogram = audio_ops.audio_spectrogram(waves, window_size=128, stride=64, magnitude_squared=True)
    features = audio_ops.mfcc(spectrogram + 1.0, sample_rate=8000, dct_coefficient_count=5)
    decoded = audio_ops.decode_wav(audio_ops.encode_wav(waves, 8000), desired_channels=1)
    return {"spectrogram": spectrogram, "features": features, "decoded": decoded.audio, "rate": decoded.sample_rate}


class _Sum2DCell(rnn_cell_impl.RNNCell):
    def __init__(self, size):
        super().__init__()
        self.input_spec = base.InputSpec(ndim=2)
        self._size = size

    state_size = output_size = property(lambda self: self._size)

    def build(self, inputs_shape):
        self._kernel = self.add_variable(rnn_cell_impl._WEIGHTS_VARIABLE_NAME, [inputs_shape[-1], self._size])
        self.built = True

    def call(self, inputs, state):
        state = state + tf.matmul(inputs, self._kernel)
        return tf.tanh(state), state


def cells_of_private_names():
    cell = _Sum2DCell(4)
    rnn_cell_impl.assert_like_rnncell("cell", cell)
    zeros = rnn_cell_impl._zero_state_tensors(cell.state_size, 2, tf.float32)
    outputs, state = tf.nn.dynamic_rnn(cell, tf.ones([2, 3, 5]), initial_state=zeros)
    by_time = decoder._transpose_batch_time(outputs)
    return {"by time": by_time, "state": state, "shape": rnn_cell_impl._concat(2, cell.output_size, static=True)}


def sizes_of_sets():
    sets = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [5, 5, 7], [2, 2])
    return {"size": set_ops.set_size(sets), "common": set_ops.set_intersection(sets, sets)}
