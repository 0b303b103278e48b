"""Trainings with parameter servers, which tests start in several processes, and the same ones in a single process."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import tensorflow as tf
from tpk_distributed import DistributedParameterServerStrategy, DistributedReplicatedStrategy

import tpk
from tpk import layers

cloudpickle.register_pickle_by_value(sys.modules[__name__])

v1 = tf.compat.v1

STEPS = 20
STRATEGIES = {"replicated": DistributedReplicatedStrategy, "parameter_server": DistributedParameterServerStrategy}
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "half_sgd": lambda: v1.train.GradientDescentOptimizer(0.05),
    "slow_sgd": lambda: v1.train.GradientDescentOptimizer(0.025),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "scaled": lambda: tpk.DynamicLossScaleOptimizer(v1.train.MomentumOptimizer(0.05, 0.9), growth_interval=3),
    "accumulated": lambda: tpk.AccumGradOptimizer(v1.train.AdamOptimizer(0.01), 2),
}


class Model(tpk.ModelDesc):
    def __init__(self, optimizer="sgd"):
        self._optimizer = optimizer

    def inputs(self):
        return [tf.TensorSpec([None, 5], tf.float32, "x"), tf.TensorSpec([None, 2], tf.float32, "y")]

    def build_graph(self, x, y):
        hidden = layers.dense(x, 7, activation=tf.tanh, kernel_initializer=v1.glorot_uniform_initializer(seed=1))
        largest = v1.get_variable("largest", [], initializer=v1.zeros_initializer(), trainable=False)
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, largest.assign(tf.reduce_max(x)).op)
        output = layers.dense(hidden, 2, kernel_initializer=v1.glorot_uniform_initializer(seed=2))
        cost = tf.reduce_mean((output - y) ** 2, name="cost")
        v1.summary.scalar("cost", cost)
        return cost

    def optimizer(self):
        return OPTIMIZERS[self._optimizer]()


class Embedding(tpk.ModelDesc):
    """Its gradients are sparse."""

    def inputs(self):
        return [tf.TensorSpec([None], tf.int32, "index")]

    def build_graph(self, index):
        table = v1.get_variable("table", [10, 3], initializer=v1.ones_initializer())
        return tf.reduce_mean(tf.nn.embedding_lookup(table, index) ** 2)

    def optimizer(self):
        return v1.train.AdamOptimizer(0.1)


class Variables(tpk.Callback):
    """Keeps the final values and places of all variables."""

    chief_only = False

    def after_train(self, trainer):
        if trainer.loop.failure is None:
            self.saved = read(trainer.sess, v1.global_variables())
            self.local = read(trainer.sess, v1.local_variables())
            self.devices = {variable.op.name: variable.device for variable in v1.global_variables()}
            self.trained = [variable.op.name for variable in v1.trainable_variables()]
            self.steps = trainer.global_step


def read(sess, variables):
    return {variable.op.name: sess.run(variable) for variable in variables}


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.normal(size=(4, size)).astype(np.float32) for size in (5, 2)] for _ in range(count)]


def concatenated(data, count):
    return [
        [np.concatenate(components) for components in zip(*data[start : start + count], strict=True)]
        for start in range(0, len(data), count)
    ]


def train(strategy, data, steps=STEPS, model=None, callbacks=(), epochs=1, infinite=True, **options):
    """Train; return the `Variables` at the end, or None in a parameter server."""
    model, variables = model or Model(), Variables()
    trainer = tpk.SingleCostTrainer(strategy)
    source = tpk.FeedInput(data, infinite=infinite)
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    if trainer.train_op is None:
        return None
    trainer.train(callbacks=["RunUpdateOps", *callbacks, variables], steps_per_epoch=steps, max_epoch=epochs, **options)
    return None if isinstance(strategy, str) else vars_of(variables)


def vars_of(variables):
    return {name: getattr(variables, name) for name in ("saved", "local", "devices", "trained", "steps")}
