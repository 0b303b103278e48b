"""A GAN on several towers, with a custom trainer that calls the data-parallel builder."""

import argparse

import numpy as np
from tensorpack import (
    BatchData,
    FullyConnected,
    ModelDescBase,
    ModelSaver,
    QueueInput,
    StagingInput,
    TowerTrainer,
    logger,
)
from tensorpack.compat import tfv1 as tf
from tensorpack.dataflow import RNGDataFlow
from tensorpack.graph_builder import DataParallelBuilder, LeastLoadedDeviceSetter
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.tfutils.tower import TowerFunc, get_current_tower_context


class GANModel(ModelDescBase):
    def inputs(self):
        return [tf.TensorSpec((None, 2), tf.float32, "point"), tf.TensorSpec((None, 2), tf.float32, "noise")]

    def build_graph(self, point, noise):
        init = tf.constant_initializer(np.linspace(-0.8, 1, 12).reshape(2, 6))
        one = tf.constant_initializer(0.3)
        with tf.variable_scope("gen"):
            fake = FullyConnected("fc", noise, 2, kernel_initializer=one)
        with tf.variable_scope("discrim", reuse=tf.AUTO_REUSE):
            logits = []
            for x in (point, fake):
                x = FullyConnected("fc0", x, 6, activation=tf.nn.tanh, kernel_initializer=init)
                logits.append(FullyConnected("fc1", x, 1, kernel_initializer=one))
        ctx = get_current_tower_context()
        self.collect_variables()
        with tf.name_scope("GAN_loss"):
            sigmoid = tf.nn.sigmoid_cross_entropy_with_logits
            real = tf.reduce_mean(sigmoid(logits=logits[0], labels=tf.ones_like(logits[0])))
            fooled = tf.reduce_mean(sigmoid(logits=logits[1], labels=tf.zeros_like(logits[1])))
            self.d_loss = tf.add(real, fooled, name="d_loss")
            self.g_loss = tf.reduce_mean(sigmoid(logits=logits[1], labels=tf.ones_like(logits[1])), name="g_loss")
        if ctx.is_main_training_tower:
            add_moving_summary(self.d_loss, self.g_loss)

    def collect_variables(self):
        self.g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "gen")
        self.d_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "discrim")

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(tf.get_variable("learning_rate", initializer=0.1, trainable=False))


class MultiGPUGANTrainer(TowerTrainer):
    """Average losses over towers with shared variables."""

    def __init__(self, num_gpu, input, model):
        super().__init__()
        assert num_gpu > 1
        raw_devices = [f"/gpu:{k}" for k in range(num_gpu)]
        input = StagingInput(input)
        cbs = input.setup(model.get_input_signature())
        self.register_callback(cbs)

        def get_cost(*inputs):
            model.build_graph(*inputs)
            return [model.d_loss, model.g_loss]

        self.tower_func = TowerFunc(get_cost, model.get_input_signature())
        devices = [LeastLoadedDeviceSetter(d, raw_devices) for d in raw_devices]
        cost_list = DataParallelBuilder.call_for_each_tower(
            list(range(num_gpu)), lambda: self.tower_func(*input.get_input_tensors()), devices
        )
        with tf.device(devices[0]):
            d_loss = tf.add_n([x[0] for x in cost_list]) * (1.0 / num_gpu)
            g_loss = tf.add_n([x[1] for x in cost_list]) * (1.0 / num_gpu)
            opt = model.optimizer()
            d_min = opt.minimize(d_loss, var_list=model.d_vars, colocate_gradients_with_ops=True, name="d_op")
            with tf.control_dependencies([d_min]):
                g_min = opt.minimize(g_loss, var_list=model.g_vars, colocate_gradients_with_ops=True, name="g_op")
        self.train_op = g_min


class Points(RNGDataFlow):
    def __iter__(self):
        rng = np.random.RandomState(0)
        while True:
            yield [rng.randn(2).astype("float32") * 0.3 + 2, rng.rand(2).astype("float32")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--towers", type=int, default=2)
    args = parser.parse_args()
    logger.auto_set_dir("d")
    trainer = MultiGPUGANTrainer(args.towers, QueueInput(BatchData(Points(), 8)), GANModel())
    assert len(trainer.towers.training()) == args.towers
    assert trainer.get_predictor(["noise"], ["GAN_loss/g_loss"], device=1) is not None
    trainer.train_with_defaults(callbacks=[ModelSaver()], steps_per_epoch=10, max_epoch=2)
