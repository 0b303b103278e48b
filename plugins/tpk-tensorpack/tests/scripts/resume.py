"""Fit a line with a learning rate schedule; `--load train_log/resume/checkpoint` resumes the training."""

# ruff: noqa: F403, F405

import argparse

import numpy as np
import tensorflow as tf
from tensorpack import *
from tensorpack.tfutils import summary


class Model(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")]

    def build_graph(self, x, y):
        with tf.compat.v1.variable_scope("linear"):
            w = tf.compat.v1.get_variable("w", [3, 1], initializer=tf.compat.v1.constant_initializer(0.5))
        cost = tf.reduce_mean(tf.square(tf.squeeze(tf.matmul(x, w), 1) - y), name="cost")
        summary.add_moving_summary(cost, decay=0.8)
        return cost

    def optimizer(self):
        lr = tf.compat.v1.get_variable("learning_rate", initializer=0.2, trainable=False)
        tf.compat.v1.summary.scalar("learning_rate-summary", lr)
        return tf.compat.v1.train.MomentumOptimizer(lr, 0.9)


class Points(RNGDataFlow):
    def __len__(self):
        return 8

    def __iter__(self):
        random = np.random.RandomState(3)
        for _ in range(8):
            x = random.rand(4, 3).astype("float32")
            yield [x, x.dot(np.array([1, -2, 3], dtype="float32"))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load")
    parser.add_argument("--from-epoch", type=int, default=1)
    args = parser.parse_args()
    logger.auto_set_dir("k")
    config = TrainConfig(
        model=Model(),
        dataflow=Points(),
        callbacks=[
            ModelSaver(),
            ScheduledHyperParamSetter("learning_rate", [(1, 0.1), (3, 0.05), (5, 0.01)]),
            EstimatedTimeLeft(),
        ],
        session_init=SmartInit(args.load) if args.load else None,
        starting_epoch=args.from_epoch,
        steps_per_epoch=8,
        max_epoch=args.from_epoch + 1,
    )
    launch_train_with_config(config, SimpleTrainer())
