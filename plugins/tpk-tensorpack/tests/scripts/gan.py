"""A custom trainer that alternates between two networks in each step, for points in a plane."""

# ruff: noqa: F403, F405, UP008

import numpy as np
import tensorflow as tf
from tensorpack import *
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.tfutils.tower import TowerContext, TowerFunc


class GANModelDesc(ModelDescBase):
    def collect_variables(self, g_scope="gen", d_scope="discrim"):
        self.g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, g_scope)
        self.d_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, d_scope)
        assert self.g_vars
        assert self.d_vars

    def build_losses(self, logits_real, logits_fake):
        with tf.name_scope("GAN_loss"):
            sigmoid = tf.nn.sigmoid_cross_entropy_with_logits
            d_loss_pos = tf.reduce_mean(sigmoid(logits=logits_real, labels=tf.ones_like(logits_real)), name="real")
            d_loss_neg = tf.reduce_mean(sigmoid(logits=logits_fake, labels=tf.zeros_like(logits_fake)), name="fake")
            self.d_loss = tf.multiply(0.5, d_loss_pos + d_loss_neg, name="d_loss")
            g_loss = sigmoid(logits=logits_fake, labels=tf.ones_like(logits_fake))
            self.g_loss = tf.reduce_mean(g_loss, name="g_loss")
            add_moving_summary(self.g_loss, self.d_loss)


class Model(GANModelDesc):
    def inputs(self):
        return [tf.TensorSpec((None, 2), tf.float32, "point"), tf.TensorSpec((None, 2), tf.float32, "noise")]

    def generator(self, z):
        init = tf.constant_initializer(np.linspace(-1, 1, 4).reshape(2, 2))
        return FullyConnected("fc", z, 2, kernel_initializer=init)

    @staticmethod
    def discriminator(x):
        init = tf.constant_initializer(np.linspace(-1, 1, 16).reshape(2, 8))
        x = FullyConnected("fc0", x, 8, activation=tf.nn.tanh, kernel_initializer=init)
        return FullyConnected("fc1", x, 1, kernel_initializer=tf.constant_initializer(0.3))

    def build_graph(self, point, noise):
        with tf.variable_scope("gen"):
            generated = self.generator(noise)
        with tf.variable_scope("discrim"):
            real = self.discriminator(point)
        with tf.variable_scope("discrim", reuse=True):
            fake = self.discriminator(generated)
        tf.identity(generated, name="generated")
        self.build_losses(real, fake)
        self.collect_variables()

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.05, trainable=False)
        return tf.train.AdamOptimizer(lr, beta1=0.5, epsilon=1e-3)

    def get_optimizer(self):
        return self.optimizer()


class GANTrainer(TowerTrainer):
    def __init__(self, input, model):
        super(GANTrainer, self).__init__()
        assert isinstance(model, GANModelDesc), model
        cbs = input.setup(model.get_input_signature())
        self.register_callback(cbs)
        with TowerContext("", is_training=True):
            self.tower_func = TowerFunc(model.build_graph, model.get_input_signature())
            self.tower_func(*input.get_input_tensors())
        opt = model.get_optimizer()
        with tf.name_scope("optimize"):
            g_min = opt.minimize(model.g_loss, var_list=model.g_vars, name="g_op")
            with tf.control_dependencies([g_min]):
                d_min = opt.minimize(model.d_loss, var_list=model.d_vars, name="d_op")
        self.train_op = d_min


class Generate(Callback):
    def _setup_graph(self):
        self.predict = self.trainer.get_predictor(["noise"], ["generated"])

    def _trigger(self):
        (points,) = self.predict(np.ones([3, 2], dtype="float32"))
        assert points.shape == (3, 2)
        self.trainer.monitors.put_scalar("generated_mean", points.mean())


class Points(DataFlow):
    def __iter__(self):
        rng = np.random.RandomState(5)
        for _ in range(6):
            yield [rng.randn(8, 2).astype("float32") + 2, rng.rand(8, 2).astype("float32")]

    def __len__(self):
        return 6


if __name__ == "__main__":
    logger.auto_set_dir("d")
    GANTrainer(QueueInput(Points()), Model()).train_with_defaults(
        callbacks=[ModelSaver(), PeriodicTrigger(Generate(), every_k_steps=3)],
        steps_per_epoch=6,
        max_epoch=2,
    )
