#!/usr/bin/env python
"""A Wasserstein GAN: two optimizers, and steps that train the critic more often than the generator."""

import numpy as np
import tensorflow as tf
from tensorpack import *  # noqa: F403
from tensorpack.tfutils.optimizer import VariableAssignmentOptimizer
from tensorpack.tfutils.scope_utils import auto_reuse_variable_scope
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.tfutils.tower import TowerContext, TowerFunc

# ruff: noqa: F405, UP008

NOISE = 4


class Model(ModelDescBase):
    def inputs(self):
        return [tf.placeholder(tf.float32, (None, 3), "real"), tf.placeholder(tf.float32, (None, NOISE), "z")]

    def generator(self, z):
        init = np.random.RandomState(2).uniform(-0.5, 0.5, size=(NOISE, 6))
        x = tf.layers.dense(z, 6, activation=tf.nn.relu, kernel_initializer=tf.constant_initializer(init), name="fc0")
        x = tf.layers.batch_normalization(x, training=self.training, momentum=0.9, name="bn")
        return FullyConnected("fc1", x, 3, kernel_initializer=tf.constant_initializer(0.2))

    @auto_reuse_variable_scope
    def discriminator(self, x):
        init = np.random.RandomState(3).uniform(-0.5, 0.5, size=(3, 8))
        x = FullyConnected("fc0", x, 8, activation=tf.nn.leaky_relu, kernel_initializer=tf.constant_initializer(init))
        x = LayerNorm("ln", x)
        return tf.reshape(FullyConnected("fc1", x, 1, kernel_initializer=tf.constant_initializer(0.1)), [-1])

    def build_graph(self, real, z):
        z = tf.placeholder_with_default(z, [None, NOISE], name="noise")
        with tf.variable_scope("gen"):
            fake = self.generator(z)
        tf.identity(fake, name="generated")
        with tf.variable_scope("discrim"):
            vecpos = self.discriminator(real)
            vecneg = self.discriminator(fake)
        self.d_loss = tf.reduce_mean(vecneg - vecpos, name="d_loss")
        self.g_loss = tf.negative(tf.reduce_mean(vecneg), name="g_loss")
        add_moving_summary(self.d_loss, self.g_loss)
        self.g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "gen")
        self.d_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "discrim")

    def optimizers(self):
        lr = tf.get_variable("learning_rate", initializer=0.01, trainable=False)
        generator, critic = tf.train.RMSPropOptimizer(lr), tf.train.RMSPropOptimizer(lr, name="Critic")

        def clip(v):
            name = v.op.name
            if not (name.endswith("/W") or name.endswith("/b")):
                logger.info("Not clip {}".format(v.op.name))  # noqa: UP032
                return v
            return tf.clip_by_value(v, -0.3, 0.3)

        return generator, VariableAssignmentOptimizer(critic, clip)


class SeparateGANTrainer(TowerTrainer):
    """Minimize the two losses in separate runs, each several times."""

    def __init__(self, input, model, d_period=1, g_period=1):
        super(SeparateGANTrainer, self).__init__()
        self._d_period, self._g_period = int(d_period), int(g_period)
        assert min(d_period, g_period) == 1
        cbs = input.setup(model.get_input_signature())
        self.tower_func = TowerFunc(model.build_graph, model.get_input_signature())
        with TowerContext("", is_training=True):
            self.tower_func(*input.get_input_tensors())
        g_opt, d_opt = model.optimizers()
        with tf.name_scope("optimize"):
            self.d_min = d_opt.minimize(model.d_loss, var_list=model.d_vars, name="d_min")
            self.g_min = g_opt.minimize(model.g_loss, var_list=model.g_vars, name="g_min")
        self.runs = []
        for cb in cbs:
            self.register_callback(cb)

    def run_step(self):
        if self.global_step % self._d_period == 0:
            self.hooked_sess.run(self.d_min)
            self.runs.append("d")
        if self.global_step % self._g_period == 0:
            self.hooked_sess.run(self.g_min)
            self.runs.append("g")


class Samples(RNGDataFlow):
    def __iter__(self):
        rng = np.random.RandomState(9)
        while True:
            yield [rng.randn(3).astype("float32") + np.arange(3, dtype="float32"), rng.rand(NOISE).astype("float32")]


if __name__ == "__main__":
    logger.auto_set_dir("d")
    trainer = SeparateGANTrainer(QueueInput(BatchData(Samples(), 8)), Model(), g_period=3)
    trainer.train_with_defaults(
        callbacks=[
            ModelSaver(),
            MergeAllSummaries(period=5),
            ScheduledHyperParamSetter("learning_rate", [(1, 0.01), (2, 0.005)]),
            CheckNumerics(),
        ],
        extra_callbacks=[MovingAverageSummary(), ProgressBar(["d_loss"]), RunUpdateOps()],
        session_init=None,
        steps_per_epoch=12,
        max_epoch=2,
    )
    np.savez("wgan.npz", runs=np.array(trainer.runs))
    assert trainer.runs.count("d") > 2 * trainer.runs.count("g") > 0, trainer.runs
