"""The CIFAR-10 tutorial: losses in a collection, averages of losses and weights, hooks, and a monitored session."""

from __future__ import absolute_import, division, print_function

import re
import time
from datetime import datetime

import numpy as np
import tensorflow as tf

parser = tf.app.flags
parser.DEFINE_string("train_dir", "cifar10_train", "directory of logs and checkpoints")
parser.DEFINE_integer("max_steps", 8, "number of batches")
parser.DEFINE_boolean("log_device_placement", False, "whether to log device placement")
FLAGS = tf.app.flags.FLAGS
TOWER_NAME, BATCH, SIZE = "tower", 4, 12


def _activation_summary(x):
    tensor_name = re.sub("%s_[0-9]*/" % TOWER_NAME, "", x.op.name)
    tf.summary.histogram(tensor_name + "/activations", x)
    tf.summary.scalar(tensor_name + "/sparsity", tf.nn.zero_fraction(x))


def _variable_on_cpu(name, shape, initializer):
    with tf.device("/cpu:0"):
        return tf.get_variable(name, shape, initializer=initializer, dtype=tf.float32)


def _variable_with_weight_decay(name, shape, stddev, wd):
    var = _variable_on_cpu(name, shape, tf.truncated_normal_initializer(stddev=stddev, dtype=tf.float32))
    if wd is not None:
        weight_decay = tf.multiply(tf.nn.l2_loss(var), wd, name="weight_loss")
        tf.add_to_collection("losses", weight_decay)
    return var


def inference(images):
    with tf.variable_scope("conv1") as scope:
        kernel = _variable_with_weight_decay("weights", shape=[5, 5, 3, 4], stddev=5e-2, wd=None)
        conv = tf.nn.conv2d(images, kernel, [1, 1, 1, 1], padding="SAME")
        biases = _variable_on_cpu("biases", [4], tf.constant_initializer(0.0))
        conv1 = tf.nn.relu(tf.nn.bias_add(conv, biases), name=scope.name)
        _activation_summary(conv1)
    pool1 = tf.nn.max_pool(conv1, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME", name="pool1")
    norm1 = tf.nn.lrn(pool1, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm1")
    with tf.variable_scope("local3") as scope:
        reshape = tf.reshape(norm1, [images.get_shape().as_list()[0], -1])
        dim = reshape.get_shape()[1].value
        weights = _variable_with_weight_decay("weights", shape=[dim, 8], stddev=0.04, wd=0.004)
        biases = _variable_on_cpu("biases", [8], tf.constant_initializer(0.1))
        local3 = tf.nn.relu(tf.matmul(reshape, weights) + biases, name=scope.name)
        _activation_summary(local3)
    with tf.variable_scope("softmax_linear") as scope:
        weights = _variable_with_weight_decay("weights", [8, 3], stddev=1 / 8.0, wd=None)
        return tf.add(
            tf.matmul(local3, weights), _variable_on_cpu("biases", [3], tf.zeros_initializer()), name=scope.name
        )


def loss(logits, labels):
    labels = tf.cast(labels, tf.int64)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits, name="cross_entropy_per_example"
    )
    tf.add_to_collection("losses", tf.reduce_mean(entropy, name="cross_entropy"))
    return tf.add_n(tf.get_collection("losses"), name="total_loss")


def train_op_of(total_loss, global_step):
    lr = tf.train.exponential_decay(0.1, global_step, 3, 0.5, staircase=True)
    loss_averages = tf.train.ExponentialMovingAverage(0.9, name="avg")
    losses = tf.get_collection("losses")
    loss_averages_op = loss_averages.apply(losses + [total_loss])
    for each in losses + [total_loss]:
        tf.summary.scalar(each.op.name + " (raw)", each)
        tf.summary.scalar(each.op.name, loss_averages.average(each))
    with tf.control_dependencies([loss_averages_op]):
        opt = tf.train.GradientDescentOptimizer(lr)
        grads = opt.compute_gradients(total_loss)
    apply_gradient_op = opt.apply_gradients(grads, global_step=global_step)
    for grad, var in grads:
        if grad is not None:
            tf.summary.histogram(var.op.name + "/gradients", grad)
    averages = tf.train.ExponentialMovingAverage(0.99, global_step)
    with tf.control_dependencies([apply_gradient_op]):
        return averages.apply(tf.trainable_variables()), averages


def main(argv=None):
    random = np.random.RandomState(1)
    data = random.rand(BATCH, 16, 16, 3).astype(np.float32)
    logged = []

    class _LoggerHook(tf.train.SessionRunHook):
        def begin(self):
            self._step = -1
            self._start_time = time.time()

        def before_run(self, run_context):
            self._step += 1
            return tf.train.SessionRunArgs(total_loss)

        def after_run(self, run_context, run_values):
            logged.append(run_values.results)
            print("%s: step %d, loss = %.2f" % (datetime.now(), self._step, run_values.results))

    with tf.Graph().as_default():
        global_step = tf.train.get_or_create_global_step()
        images = tf.map_fn(
            lambda image: tf.random_crop(image, [SIZE, SIZE, 3]), tf.constant(data), parallel_iterations=1
        )
        images = tf.stack([tf.image.per_image_standardization(image) for image in tf.unstack(images)])
        logits = inference(images)
        total_loss = loss(logits, tf.constant([0, 1, 2, 0]))
        train_op, averages = train_op_of(total_loss, global_step)
        hooks = [tf.train.StopAtStepHook(last_step=FLAGS.max_steps), tf.train.NanTensorHook(total_loss), _LoggerHook()]
        config = tf.ConfigProto(log_device_placement=FLAGS.log_device_placement)
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=FLAGS.train_dir, hooks=hooks, config=config, save_summaries_steps=4
        ) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
        restored = averages.variables_to_restore()
        names = sorted(restored)
        saver = tf.train.Saver(restored)
        with tf.Session() as sess:
            ckpt = tf.train.get_checkpoint_state(FLAGS.train_dir)
            saver.restore(sess, ckpt.model_checkpoint_path)
            step = ckpt.model_checkpoint_path.split("/")[-1].split("-")[-1]
            top_k_op = tf.nn.in_top_k(logits, [0, 1, 2, 0], 3)
            right = np.sum(sess.run(top_k_op))
            bias = sess.run("softmax_linear/biases:0")
    np.savez("results.npz", costs=logged, names=names, step=int(step), right=right, bias=bias)


if __name__ == "__main__":
    tf.app.run()
