"""`RunConfig(train_distribute=...)`: two replicas on two logical CPU devices."""

from __future__ import annotations

import line
import numpy as np
import pytest
import tensorflow as tf
from test_resume import FailAt, fail
from tpk_estimator import Estimator, RunConfig

v1 = tf.compat.v1


@pytest.fixture(params=[tf.distribute, v1.distribute], ids=["TensorFlow 2", "TensorFlow 1"])
def strategy(request):
    # On CPUs, collective operations may wait for each other forever.
    return request.param.MirroredStrategy(["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice())


def ordered(batch=line.BATCH):
    return tf.data.Dataset.from_tensor_slices(({"x": line.X}, line.Y)).repeat().batch(batch)


def estimator(directory, strategy):
    config = RunConfig(directory, save_checkpoints_steps=5, save_summary_steps=1, train_distribute=strategy)
    return Estimator(line.model_fn, config=config, params={"rate": 0.1})


def test_two_replicas_train_as_one_with_a_batch_of_double_size(tmp_path, strategy):
    values = [
        estimator(tmp_path / "two", strategy).train(ordered, steps=9),
        estimator(tmp_path / "one", None).train(lambda: ordered(2 * line.BATCH), steps=9),
    ]
    two, one = (line.values_in(each.latest_checkpoint()) for each in values)
    assert two.keys() == one.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-4, err_msg=name)
    losses = [[value for _, tag, value in line.events_in(tmp_path / name) if tag == "loss"] for name in ("two", "one")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_killed_training_continues_to_the_same_bits(tmp_path, strategy):
    with pytest.raises(RuntimeError, match="no power"):
        estimator(tmp_path / "killed", strategy).train(ordered, max_steps=12, hooks=[FailAt(8, fail)])
    killed = estimator(tmp_path / "killed", strategy).train(ordered, max_steps=12)
    other = estimator(tmp_path / "whole", strategy).train(ordered, max_steps=12)
    values, expected = (line.values_in(each.latest_checkpoint()) for each in (killed, other))
    assert all(np.array_equal(values[name], expected[name]) for name in expected)


def test_an_input_fn_gets_its_place_among_the_inputs(tmp_path, strategy):
    contexts = []

    def input_fn(input_context):
        contexts.append(input_context)
        return ordered()

    for each in (strategy, None):
        estimator(tmp_path / str(len(contexts)), each).train(input_fn, steps=1)
    assert (contexts[0].num_input_pipelines, contexts[0].num_replicas_in_sync) == (1, 2)
    assert contexts[1] is None


def test_evaluates_on_one_device(tmp_path, strategy):
    trained = estimator(tmp_path, strategy).train(ordered, steps=3)
    assert trained.evaluate(line.one_pass) == estimator(tmp_path, None).evaluate(line.one_pass)


def test_the_cluster_says_where_a_parameter_server_strategy_has_variables(tmp_path):
    with tf.Graph().as_default():
        strategy = v1.distribute.experimental.ParameterServerStrategy()
    trained = estimator(tmp_path / "strategy", strategy).train(ordered, steps=3)
    alone = estimator(tmp_path / "alone", None).train(ordered, steps=3)
    values, expected = (line.values_in(each.latest_checkpoint()) for each in (trained, alone))
    assert values.keys() == expected.keys()
    assert all(np.array_equal(values[name], expected[name]) for name in expected)


def test_other_strategies_and_inputs_are_errors(tmp_path, strategy):
    with pytest.raises(ValueError, match="must be a MirroredStrategy or a OneDeviceStrategy"):
        estimator(tmp_path, tf.distribute.get_strategy()).train(ordered, steps=1)
    with pytest.raises(ValueError, match=r"an input_fn must return a tf\.data\.Dataset"):
        estimator(tmp_path, strategy).train(lambda: tf.constant(1.0), steps=1)


def test_gpus_that_do_not_exist_are_an_error(tmp_path):
    with tf.Graph().as_default():  # as TF1 programs do; in eager mode TensorFlow itself may refuse the devices
        strategy = tf.distribute.MirroredStrategy(["/gpu:98", "/gpu:99"])
    with pytest.raises(ValueError, match="is for /gpu:98, but the number of GPUs here is"):
        estimator(tmp_path, strategy).train(ordered, steps=1)
