"""Log lines, events and checkpoints of a training, next to TensorFlow's own session hooks in the same training."""

from __future__ import annotations

import line
import numpy as np
import pytest
import tensorflow as tf
from tpk_estimator import Estimator, EstimatorSpec, RunConfig

v1 = tf.compat.v1


def train_with(hooks_of, directory, steps, **settings):
    """Train with session hooks that are made of the loss."""

    def model_fn(features, labels, mode, params):
        spec = line.model_fn(features, labels, mode, params)
        return spec._replace(training_hooks=hooks_of(spec.loss))

    config = RunConfig(**{"save_summary_steps": 5, "log_step_count_steps": 5, **settings})
    return Estimator(model_fn, directory, config, {"rate": 0.1}).train(line.input_fn, steps=steps)


def test_the_summaries_are_those_of_the_hook(tmp_path):
    theirs = tmp_path / "theirs"

    def hooks_of(loss):
        summary = v1.summary.scalar("theirs", loss, collections=[])
        return [v1.train.SummarySaverHook(5, output_dir=str(theirs), summary_op=summary)]

    train_with(hooks_of, tmp_path / "ours", 12)
    train_with(hooks_of, tmp_path / "ours", 7)
    ours = [event for event in line.events_in(tmp_path / "ours") if event[1] == "loss"]
    assert [step for step, _, _ in ours] == [1, 6, 11, 13, 18]
    assert ours == [(step, "loss", value) for step, _, value in line.events_in(theirs)]


def test_a_summary_op_may_be_a_list(tmp_path):
    def model_fn(features, labels, mode, params):
        spec = line.model_fn(features, labels, mode, params)
        summaries = [v1.summary.scalar(name, spec.loss) for name in ("one", "two")]
        return spec._replace(scaffold=v1.train.Scaffold(summary_op=summaries))

    Estimator(model_fn, tmp_path, params={"rate": 0.1}).train(line.input_fn, steps=2)
    assert [(step, tag) for step, tag, _ in line.events_in(tmp_path)] == [(1, "one"), (1, "two")]


def test_checkpoints_by_time_are_those_of_the_hook(tmp_path):
    line.estimator(tmp_path, save_checkpoints_steps=None, save_checkpoints_secs=1e-9).train(line.input_fn, steps=3)
    kept = tf.train.get_checkpoint_state(tmp_path).all_model_checkpoint_paths
    assert [path.rpartition("-")[2] for path in kept] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("bad", [np.nan, np.float32("nan")])
def test_a_loss_that_is_not_a_number_is_an_error(tmp_path, bad):
    def model_fn(features, labels, mode):
        step = v1.train.get_global_step()
        loss = tf.where(tf.equal(step, 2), tf.constant(bad, tf.float32), v1.get_variable("loss", []))
        with tf.control_dependencies([loss]):  # which reads the step before it changes
            train_op = step.assign_add(1, read_value=False)
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    with pytest.raises(v1.train.NanLossDuringTrainingError):
        Estimator(model_fn, tmp_path).train(line.input_fn, steps=5)


def test_a_train_op_need_not_count_its_steps(tmp_path):
    def model_fn(features, labels, mode):
        weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
        return EstimatorSpec(mode, loss=weight + 0.0, train_op=weight.assign_add(1.0))

    estimator = Estimator(model_fn, tmp_path).train(line.input_fn, steps=4).train(line.input_fn, max_steps=7)
    assert estimator.get_variable_value("global_step") == estimator.get_variable_value("weight") == 7
