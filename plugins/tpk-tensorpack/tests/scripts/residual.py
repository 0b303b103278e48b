"""A residual network on digits, for TensorFlow 1: batch normalization, summaries of activations, schedules."""

# ruff: noqa: B905, E741, F403, F405, UP008, UP031

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorpack import *
from tensorpack.callbacks import *
from tensorpack.dataflow import *
from tensorpack.models import *
from tensorpack.tfutils.summary import *


class Model(ModelDesc):
    def __init__(self, n):
        super(Model, self).__init__()
        self.n = n

    def inputs(self):
        return [tf.placeholder(tf.float32, [None, 8, 8, 1], "input"), tf.placeholder(tf.int32, [None], "label")]

    def build_graph(self, image, label):
        def residual(name, l, increase_dim=False, first=False):
            in_channel = l.get_shape().as_list()[3]
            out_channel, stride = (in_channel * 2, 2) if increase_dim else (in_channel, 1)
            with tf.variable_scope(name):
                b1 = l if first else BNReLU(l)
                c1 = Conv2D("conv1", b1, out_channel, strides=stride, activation=BNReLU)
                c2 = Conv2D("conv2", c1, out_channel)
                if increase_dim:
                    l = AvgPooling("pool", l, 2)
                    l = tf.pad(l, [[0, 0], [0, 0], [0, 0], [in_channel // 2, in_channel // 2]])
                return c2 + l

        with (
            argscope(
                Conv2D,
                use_bias=False,
                kernel_size=3,
                kernel_initializer=tf.variance_scaling_initializer(scale=2.0, mode="fan_out"),
            ),
            argscope(BatchNorm, momentum=0.8),
        ):
            l = Conv2D("conv0", image, 8, activation=BNReLU)
            for k in range(self.n):
                l = residual("res1.%d" % k, l, first=k == 0)
            l = residual("res2.0", l, increase_dim=True)
            l = BNReLU("bnlast", l)
            l = GlobalAvgPooling("gap", l)
        logits = FullyConnected("linear", l, 10)
        tf.nn.softmax(logits, name="output")
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        cost = tf.reduce_mean(cost, name="cross_entropy_loss")
        wrong = tf.to_float(tf.logical_not(tf.nn.in_top_k(logits, label, 1)), name="wrong_vector")
        add_moving_summary(tf.reduce_mean(wrong, name="train_error"), cost)
        if self.training:
            add_activation_summary(l, types=["sparsity", "rms"], name="last")
        add_param_summary((".*/W", ["rms"]))
        wd_w = tf.train.exponential_decay(0.0002, get_global_step_var(), 480, 0.2, True)
        wd_cost = tf.multiply(wd_w, regularize_cost(".*/W", tf.nn.l2_loss), name="wd_cost")
        return tf.add_n([cost, wd_cost], name="cost")

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.05, trainable=False)
        return tf.train.MomentumOptimizer(lr, 0.9)


def get_data(digits, indices, is_train):
    images = (digits.images[indices, :, :, np.newaxis] / 8.0 - 1).astype("float32")
    ds = DataFromList([[image, label] for image, label in zip(images, digits.target[indices])], shuffle=False)
    ds = MapDataComponent(ds, lambda label: int(label), 1)
    return BatchData(ds, 32, remainder=not is_train)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=1)
    parser.add_argument("--load")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    logger.auto_set_dir("d")
    digits = load_digits()
    data = QueueInput(get_data(digits, np.arange(480), True))
    config = TrainConfig(
        model=Model(n=args.n),
        data=data,
        callbacks=[
            ModelSaver(),
            InferenceRunner(
                get_data(digits, np.arange(480, 700), False),
                [ScalarStats("cross_entropy_loss"), ClassificationError("wrong_vector")],
            ),
            MinSaver("validation_error"),
            ScheduledHyperParamSetter("learning_rate", [(1, 0.02), (2, 0.002)]),
        ],
        steps_per_epoch=15,
        max_epoch=args.epochs,
        session_init=SmartInit(args.load) if args.load else None,
    )
    launch_train_with_config(config, SimpleTrainer())
