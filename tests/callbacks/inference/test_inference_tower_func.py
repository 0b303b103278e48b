"""Evaluations by a tower function of their own: of another model than is trained, or of a trainer without towers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, Last, train

import tpk

v1 = tf.compat.v1
RUNNERS = [tpk.InferenceRunner, partial(tpk.InferenceRunner, devices=2)]
PAIRS = [[np.float32([1, 2]), np.float32([3, 5])], [np.float32([0]), np.float32([1])]]


def distance(left, right):
    """The weight of the training, whose number the step is, times the distance."""
    with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
        w = v1.get_variable("w", initializer=0.0)
    assert not tpk.get_current_tower_context().is_training
    tf.reduce_mean((right - left) * w, name="distance")


def make_distance():
    return tpk.TowerFunc(distance, [tf.TensorSpec([None], tf.float32, name) for name in ("left", "right")])


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("strategy", ["single", "replicated"])
def test_it_evaluates_another_function_with_the_weights_of_the_training(runner, strategy):
    history = train(
        runner(PAIRS, tpk.ScalarStats("distance"), tower_func=make_distance()),
        tpk.InferenceRunner(BATCHES, tpk.ScalarStats("weight")),
        strategy=strategy,
    )
    assert history["validation_weight"] == [2.0, 4.0]
    assert history["validation_distance"] == [2 * 2.0, 4 * 2.0]


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_trainer_without_towers_can_be_evaluated(runner):
    trainer, last = tpk.Trainer(), Last()
    with trainer.graph.as_default():
        w = v1.get_variable("w", initializer=0.0)
        trainer.train_op = w.assign_add(1.0).op
    evaluation = runner(PAIRS, tpk.ScalarStats("distance"), tower_func=make_distance(), sanity_batches=1)
    other = runner(PAIRS[:1], tpk.ScalarStats("distance", prefix="first"), tower_func=make_distance())
    trainer.train(callbacks=[evaluation, other, last], steps_per_epoch=2, max_epoch=2)
    assert last.history == {"validation_distance": [4.0, 8.0], "first_distance": [5.0, 10.0]}


@pytest.mark.parametrize("tower_func", [distance, "distance"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_what_is_no_tower_function_is_refused(runner, tower_func):
    with pytest.raises(tpk.ConfigError, match=r"tower_func=.*Write tpk.TowerFunc\(function, input_signature\)"):
        runner(PAIRS, tpk.ScalarStats("distance"), tower_func=tower_func)


def test_two_towers_of_one_name_are_refused():
    with pytest.raises(tpk.ConfigError, match=r"there is a tower 'Mine' already\. Give .* another tower_name"):
        train(
            tpk.InferenceRunner(BATCHES, tpk.ScalarStats("weight"), "Mine"),
            tpk.InferenceRunner(PAIRS, tpk.ScalarStats("distance"), "Mine", make_distance()),
        )
