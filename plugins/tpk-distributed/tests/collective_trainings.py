"""Trainings with strategy `collective`, for tests that start them in processes of their own."""

from __future__ import annotations

import logging
import sys

import numpy as np
import tensorflow as tf

import tpk

v1 = tf.compat.v1

BATCH = 4
NITER = 3
"""Of how many steps an optimizer whose name begins with "accumulating" applies the gradients as one."""

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "slow_sgd": lambda: v1.train.GradientDescentOptimizer(0.025),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
}


class Model(tpk.ModelDesc):
    """A small network; what its batch normalization has seen differs between the processes."""

    def __init__(self, optimizer="sgd"):
        self._optimizer = optimizer

    def inputs(self):
        return [tf.TensorSpec([None, 5], tf.float32, "x"), tf.TensorSpec([None, 2], tf.float32, "y")]

    def build_graph(self, x, y):
        hidden = tpk.layers.dense(x, 7, activation=tf.tanh, kernel_initializer=v1.glorot_uniform_initializer(seed=1))
        table = v1.get_variable("table", [4, 7], initializer=v1.ones_initializer())
        rows = tf.nn.embedding_lookup(table, tf.cast(tf.abs(x[:, 0]) * 2, tf.int32) % 4)
        output = tpk.layers.dense(hidden * rows, 2, kernel_initializer=v1.glorot_uniform_initializer(seed=2))
        return tf.reduce_mean((output - y) ** 2, name="cost")

    def optimizer(self):
        optimizer = OPTIMIZERS[self._optimizer.removeprefix("accumulating ")]()
        accumulates = self._optimizer.startswith("accumulating ")
        return tpk.AccumGradOptimizer(optimizer, NITER) if accumulates else optimizer


def batches(count):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=(BATCH, size)).astype(np.float32) for size in (5, 2)] for _ in range(count)]


class Values(tpk.Callback):
    """Keeps the final values of the variables."""

    chief_only = False

    def after_train(self, trainer):
        if trainer.loop.failure is None:
            variables = [*v1.global_variables(), *v1.local_variables()]
            self.values = dict(zip([each.name for each in variables], trainer.sess.run(variables), strict=True))
            self.trained = [each.name for each in v1.trainable_variables()]


class Steps(tpk.Callback):
    """Writes each step; in one process it does something in one of them."""

    chief_only = False

    def __init__(self, rank=-1, step=0, act=lambda: None):
        self._rank, self._step, self._act = rank, step, act

    def trigger_step(self, trainer):
        print("step", trainer.local_step, flush=True)
        if (trainer.strategy.process_group.rank, trainer.local_step) == (self._rank, self._step):
            self._act()


def train(data, steps, optimizer="sgd", callbacks=(), strategy=None, epochs=1, **options):
    """Train, and return the final values of the variables by name, and the names of those that are trained."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    values = Values()
    model = Model(optimizer)
    trainer = tpk.SingleCostTrainer(tpk.use("collective") if strategy is None else strategy)
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[*callbacks, values], steps_per_epoch=steps, max_epoch=epochs, **options)
    return values.values, values.trained


def train_forever(act=None, rank=1, step=3, options=None):
    """Train until something happens: `act` in one process, in one step."""
    callbacks = [Steps(rank, step, act or (lambda: None))]
    train(batches(8) * 10000, 40000, callbacks=callbacks, strategy=tpk.use("collective", **(options or {})))


def fail():
    raise ValueError("the model has gone bad")
