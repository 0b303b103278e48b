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


def test_a_preempted_training_saves_and_continues(tmp_path):
    with pytest.raises(tpk.Preempted):
        terminate = FailAt(17, lambda: os.kill(os.getpid(), signal.SIGTERM))
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
    killed = subprocess.run([sys.executable, "-c", program], cwd=here, timeout=120, capture_output=True)
    assert killed.returncode == 9, killed.stderr
    assert tf.train.latest_checkpoint(tmp_path).endswith(f"-{10 * (saves - 1)}")
    line.estimator(tmp_path).train(line.input_fn, max_steps=30)
    assert_trained(tmp_path, 30)


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
        sess.run([v1.global_variables_initializer(), step.assign(11)])
        v1.train.Saver().save(sess, str(tmp_path / "model.ckpt"), 11)
    line.estimator(tmp_path).train(line.input_fn, steps=12)
    values, expected = line.values_in(str(tmp_path)), line.trained_by_hand(12)
    np.testing.assert_array_equal(values["w"], expected["w"])
    assert values["global_step"] == 23
