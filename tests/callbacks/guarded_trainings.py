"""Trainings whose data has bad numbers at chosen steps."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tpk
from tpk.graph.objective import Objective
from tpk.graph.optimizers.non_finite import SkipNonFiniteOptimizer

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([2], tf.float32, "x")]
REPLICATED = tpk.use("replicated", devices=2)
STRATEGIES = ["single", REPLICATED]


def data(bad=(), count=12):
    """Datapoints with different numbers; those in `bad` have an infinity."""
    rows = np.random.default_rng(0).uniform(1, 2, size=(count, 2)).astype(np.float32)
    for index in bad:
        rows[index, 1] = np.inf
    return [[row] for row in rows]


def cost(x):
    w = v1.get_variable("w", initializer=0.5)
    distance = tf.square(w * x - 1, name="distance")
    tf.argmax(distance, name="worst")
    return tf.reduce_mean(distance, name="cost")


def momentum():
    rate = v1.get_variable("learning_rate", initializer=0.1, trainable=False)
    return v1.train.MomentumOptimizer(rate, 0.9)


def skipping():
    return SkipNonFiniteOptimizer(momentum())


class Values(tpk.Callback):
    """The variables after each step, and at the end."""

    def before_train(self, trainer):
        self.steps = []

    def trigger_step(self, trainer):
        self.steps.append(self._values(trainer))

    def after_train(self, trainer):
        self.final = self._values(trainer)
        self.final_step = trainer.global_step

    def _values(self, trainer):
        variables = v1.global_variables()
        return dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


class Requests(tpk.Callback):
    """What a guard asks for in each run."""

    def __init__(self, guard):
        self.guard, self.seen = guard, []

    def before_run(self, run_context):
        self.seen.append((run_context.original_args.fetches, self.guard.before_run(run_context)))


def train(guard, run_dir=None, bad=(), strategy="single", *, func=cost, optimizer=momentum, epochs=1, **options):
    values = Values()
    source = options.pop("make_input", tpk.FeedInput)(options.pop("flow", None) or data(bad))
    saver = [tpk.ModelSaver(when=tpk.Every(steps=2))] if run_dir is not None else []
    callbacks = [guard, *options.pop("callbacks", ()), values, *saver]
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(strategy)
        trainer.setup_graph(SIGNATURE, source, func, optimizer)
        trainer.train(callbacks=callbacks, **{"steps_per_epoch": 6, "max_epoch": epochs, "run_dir": run_dir, **options})
    return values


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def two_costs(x):
    first, second = (v1.get_variable(name, initializer=0.5) for name in ("first", "second"))
    return {
        "first": tf.reduce_mean(tf.square(first * x), name="cost_of_first"),
        "second": tf.reduce_mean(tf.square(second * x), name="cost_of_second"),
    }


def train_two(guard, update, optimizer=lambda name: v1.train.GradientDescentOptimizer(0.1), **options):
    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update=update)
        objectives = [
            Objective(lambda name=name: optimizer(name), name=name, variables=name, every=every)
            for name, every in (("first", 1), ("second", 2))
        ]
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data(**options)), two_costs, objectives)
        requests = Requests(guard)
        trainer.train(callbacks=[guard, requests], steps_per_epoch=4, max_epoch=1)
    return requests
