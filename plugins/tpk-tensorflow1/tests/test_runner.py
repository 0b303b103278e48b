"""Run scripts with `python -m tpk_tensorflow1`, each in a new process."""

from __future__ import annotations

import os
import subprocess
import sys

SESSION_LOOP = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
import beside

tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [None, 8, 8, 1])
labels = tf.placeholder(tf.int32, [None])
is_training = tf.placeholder_with_default(False, [])
with slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, normalizer_params={"is_training": is_training}):
    net = slim.conv2d(x, 4, [3, 3], scope="conv1")
    net = slim.max_pool2d(net, [2, 2])
logits = tf.layers.dense(slim.flatten(net), 2, name="fc")
bias = tf.get_variable("bias", [2], initializer=tf.zeros_initializer())
bias += tf.constant([1.0, 2.0])
cost = tf.losses.sparse_softmax_cross_entropy(labels, logits + bias)
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    train_op = tf.train.AdamOptimizer(0.05).minimize(cost)
rng = np.random.RandomState(1)
images, truth = rng.rand(16, 8, 8, 1).astype(np.float32), rng.randint(0, 2, 16)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    feeds = {x: images, labels: truth.astype(np.int), is_training: True}
    costs = [sess.run([cost, train_op], feeds)[0] for _ in range(30)]
    tf.train.Saver().save(sess, "model")
print(__name__, sys.argv, costs[-1] < 0.5 * costs[0], beside.TF is tf, isinstance(bias, tf.Tensor))
print(sorted(name for name in sys.modules if name == "tpk_tensorpack" or name == "tpk.train"))
print(sorted(v.op.name for v in tf.global_variables() if "Adam" not in v.op.name and "_power" not in v.op.name))
"""


CONVOLUTION = ["BatchNorm/beta", "BatchNorm/moving_mean", "BatchNorm/moving_variance", "weights"]


def run(*arguments, directory):
    return subprocess.run(
        [sys.executable, "-m", "tpk_tensorflow1", *arguments],
        cwd=directory,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_session_loop_with_slim_trains_unchanged_and_without_trainers(tmp_path):
    (tmp_path / "train.py").write_text(SESSION_LOOP)
    (tmp_path / "beside.py").write_text("import tensorflow as TF\n")
    done = run("train.py", "--gpu", "0", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "__main__ ['train.py', '--gpu', '0'] True True True",
        "[]",
        str(sorted(["bias", *(f"conv1/{name}" for name in CONVOLUTION), "fc/bias", "fc/kernel"])),
    ]
    assert (tmp_path / "model.index").exists()


def test_an_invalid_command_line_is_a_usage_error(tmp_path):
    done = run("missing.py", directory=tmp_path)
    assert done.returncode == 2
    assert "the script 'missing.py' does not exist" in done.stderr
    assert "--also gone: the directory does not exist" in run("--also", "gone", "missing.py", directory=tmp_path).stderr
