"""A killed training continues to the same bits, and only a killed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import line
import numpy as np
import pytest
import tensorflow as tf
import tpk_estimator

import tpk

v1 = tf.compat.v1


class FailAt(v1.train.SessionRunHook):
    def __init__(self, step, fail):
        self._steps, self._fail = step, fail

    def after_run(self, run_context, run_values):
        self._steps -= 1
        if self._steps == 0:
            self._fail()


def fail():
    raise RuntimeError("no power")


def assert_trained(directory, *passes):
    values, expected = line.values_in(tf.train.latest_checkpoint(directory)), line.trained_by_hand(*passes)
    assert all(np.array_equal(values[name], expected[name]) for name in expected), (values, expected)


def test_a_failed_training_continues_after_its_last_checkpoint(tmp_path):
    with pytest.raises(RuntimeError, match="no power"):
        line.estimator(tmp_path).train(line.input_fn, max_steps=30, hooks=[FailAt(17, fail)])
    assert tf.train.latest_checkpoint(tmp_path).endswith("-10")
    line.estimator(tmp_path).train(line.input_fn, max_steps=30)
    assert_trained(tmp_path, 30)


@pytest.mark.parametrize(
    ("signum", "error"), [(signal.SIGTERM, tpk.Preempted), (signal.SIGINT, KeyboardInterrupt)], ids=["TERM", "INT"]
)
def test_a_preempted_training_saves_and_continues(tmp_path, signum, error):
    with pytest.raises(error):
        terminate = FailAt(17, lambda: os.kill(os.getpid(), signum))
        line.estimator(tmp_path).train(line.input_fn, max_steps=30, hooks=[terminate])
    assert tf.train.latest_checkpoint(tmp_path).endswith("-17")
    line.estimator(tmp_path).train(line.input_fn, max_steps=30)
    assert_trained(tmp_path, 30)


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_a_kill_between_the_two_checkpoints_does_no_harm(tmp_path, saves):
    program = f"""
import os, line, tensorflow as tf
class Kill(tf.compat.v1.train.CheckpointSaverListener):
    saves = 0
    def after_save(self, session, step):
        self.saves += 1
        if self.saves == {saves}:
            os._exit(9)
line.estimator({str(tmp_path)!r}).train(line.input_fn, max_steps=30, saving_listeners=[Kill()])
"""
    here = Path(__file__).parent
    killed = subprocess.run([sys.executable, "-c", program], cwd=here, timeout=280, capture_output=True)
    assert killed.returncode == 9, killed.stderr
    assert tf.train.latest_checkpoint(tmp_path).endswith(f"-{10 * (saves - 1)}")
    line.estimator(tmp_path).train(line.input_fn, max_steps=30)
    assert_trained(tmp_path, 30)


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_a_lost_server_is_survived(tmp_path, error):
    def lose():
        raise error(None, None, "the server has restarted")

    line.estimator(tmp_path).train(line.input_fn, steps=30, hooks=[FailAt(17, lose)])
    assert_trained(tmp_path, 30)


def noisy_model_fn(features, labels, mode, params):
    """A model that draws: from static shapes, from shapes of the data, and after an update of a variable."""
    hidden = tf.nn.dropout(tpk.layers.dense(features["x"], 3), rate=0.5)
    noise = v1.random.truncated_normal([3]) * v1.random.uniform([])
    spec = line.model_fn({"x": (hidden + noise)[:, :2]}, labels, mode, params)
    drawn = v1.get_variable("drawn", [], initializer=v1.zeros_initializer(), trainable=False)
    with tf.control_dependencies([spec.train_op]):
        update = drawn.assign_add(tf.cast(v1.multinomial([[0.0, 0.0]], 1)[0, 0], tf.float32))
    return spec._replace(train_op=update.op)


def test_random_ops_draw_on_in_a_resumed_training(tmp_path):
    def estimator(name):
        config = tpk_estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=10)
        return tpk_estimator.Estimator(noisy_model_fn, tmp_path / name, config, {"rate": 0.01})

    def input_fn():
        return line.one_pass().repeat()

    expected = estimator("never_killed").train(input_fn, max_steps=30).latest_checkpoint()
    for step in (17, 9):
        with pytest.raises(RuntimeError, match="no power"):
            estimator("killed").train(input_fn, max_steps=30, hooks=[FailAt(step, fail)])
    values = line.values_in(estimator("killed").train(input_fn, max_steps=30).latest_checkpoint())
    for name, value in line.values_in(expected).items():
        np.testing.assert_array_equal(values[name], value, name)


def test_a_training_that_ended_is_not_resumed(tmp_path):
    line.estimator(tmp_path).train(line.input_fn, steps=12)
    line.estimator(tmp_path).train(line.input_fn, steps=12)
    assert_trained(tmp_path, 12, 12)


def test_the_state_is_forgotten_when_others_have_trained_since(tmp_path):
    with pytest.raises(RuntimeError):
        line.estimator(tmp_path).train(line.input_fn, max_steps=30, hooks=[FailAt(17, fail)])
    # Another program continues from step 10 without tpk, and sets the weights to 0.
    with tf.Graph().as_default(), v1.Session() as sess:
        step = v1.train.create_global_step()
        line.model_fn({"x": tf.constant(line.X)}, tf.constant(line.Y), "train", {"rate": 0.1})
        sess.run(v1.global_variables_initializer())
        sess.run(step.assign(11))
        v1.train.Saver().save(sess, str(tmp_path / "model.ckpt"), 11)
    line.estimator(tmp_path).train(line.input_fn, steps=12)
    values, expected = line.values_in(str(tmp_path)), line.trained_by_hand(12)
    np.testing.assert_array_equal(values["w"], expected["w"])
    assert values["global_step"] == 23
