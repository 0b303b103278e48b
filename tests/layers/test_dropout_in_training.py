"""What dropout and `tpk.graph.random` draw in a training: in each tower, each step, and after a resume."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.graph import random
from tpk.graph.determinism import stateful_random_ops, unordered_updates
from tpk.graph.variables import saveable_variables

v1 = tf.compat.v1

SIZE = 64


def build_graph(x):
    training = tpk.get_current_tower_context().is_training
    hidden = layers.dropout(x, 0.5, training=training, name="drop")
    tf.identity(hidden, name="dropped")
    noise = random.normal([SIZE], name="noise")
    prediction = layers.dense(hidden + noise, 1)
    return tf.reduce_mean(prediction**2, name="cost")


class Look(tpk.Callback):
    """Keeps what each tower draws in each step, what an inference tower draws, and the variables at the end."""

    def __init__(self):
        self.drawn = []
        self.saved = None

    def setup_graph(self, trainer):
        self.predict = trainer.get_predictor(["x"], ["dropped", "noise"])
        self.stateful = stateful_random_ops(trainer.train_ops)
        self.unordered = unordered_updates(trainer.train_ops)

    def before_train(self, trainer):
        self._trainer = trainer

    def before_run(self, run_context):
        towers = self._trainer.towers.training()
        return v1.train.SessionRunArgs([tower.get_tensors(["dropped", "noise"]) for tower in towers])

    def after_run(self, run_context, run_values):
        self.drawn.append(run_values.results)

    def trigger_epoch(self, trainer):
        self.predicted = self.predict(np.ones([2, SIZE]))
        if self.saved is None:
            self.saved = values_of(trainer)

    def after_train(self, trainer):
        self.final = values_of(trainer)


def values_of(trainer):
    return {variable.op.name: trainer.sess.run(variable) for variable in saveable_variables(trainer.graph)}


def train(strategy="single", epochs=3, starting_epoch=1, seed=7, session_init=None, build=build_graph):
    trainer, look = tpk.SingleCostTrainer(strategy), Look()
    if seed is not None:
        with trainer.graph.as_default():
            v1.set_random_seed(seed)
    trainer.setup_graph(
        [tf.TensorSpec([None, SIZE], tf.float32, "x")],
        tpk.TensorInput(lambda: [tf.ones([2, SIZE])]),
        build,
        lambda: v1.train.MomentumOptimizer(0.01, 0.9),
    )
    trainer.train(
        callbacks=[look],
        session_init=session_init,
        steps_per_epoch=2,
        starting_epoch=starting_epoch,
        max_epoch=epochs,
    )
    return look


def flat(drawn):
    return [value.tobytes() for step in drawn for tower in step for value in tower]


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_towers_and_steps_differ_and_runs_do_not(strategy):
    strategy = tpk.use(strategy, devices=3)
    look = train(strategy)
    drawn = flat(look.drawn)
    assert len(drawn) == len(set(drawn)) == 6 * 3 * 2
    assert flat(train(strategy).drawn) == drawn
    assert not {*drawn} & {*flat(train(strategy, seed=8).drawn)}
    assert (look.predicted[0] == 1).all()
    assert look.predicted[1].tobytes() not in drawn


@pytest.mark.parametrize("seed", [7, None])
@pytest.mark.parametrize("strategy", ["single", tpk.use("replicated", devices=2)], ids=["single", "replicated"])
def test_a_resumed_training_draws_what_the_other_draws(strategy, seed):
    whole = train(strategy, seed=seed)
    resumed = train(strategy, seed=seed, session_init=whole.saved, starting_epoch=2)
    assert flat(resumed.drawn) == flat(whole.drawn[2:])
    assert whole.final.keys() == resumed.final.keys()
    for name, value in whole.final.items():
        np.testing.assert_array_equal(resumed.final[name], value, err_msg=name)
    assert whole.stateful == whole.unordered == []


def test_other_ops_elsewhere_change_nothing():
    def build(x):
        with tf.name_scope("before"):
            x += 0 * layers.dropout(tf.random.normal([SIZE]), training=True) + 0 * random.normal([SIZE])
        return build_graph(x)

    assert flat(train(build=build).drawn) == flat(train().drawn)


def test_objectives_in_turn_and_accumulated_gradients_draw_anew_in_each_run():
    def build(x):
        cost = build_graph(x)
        return {"one": cost, "two": 2 * cost}

    def optimizer():
        return tpk.AccumGradOptimizer(v1.train.GradientDescentOptimizer(0.1), 2)

    look = Look()
    trainer = tpk.MultiObjectiveTrainer("single", update="in_turn")
    trainer.setup_graph(
        [tf.TensorSpec([None, SIZE], tf.float32, "x")],
        tpk.TensorInput(lambda: [tf.ones([2, SIZE])]),
        build,
        [tpk.Objective(optimizer, name=name) for name in ("one", "two")],
    )
    trainer.train(callbacks=[look], steps_per_epoch=3, max_epoch=1)
    drawn = flat(look.drawn)
    assert len(drawn) == len(set(drawn)) == 3 * 2 * 2
