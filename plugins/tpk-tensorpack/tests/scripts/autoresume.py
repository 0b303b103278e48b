"""Resume automatically from the log directory: run it twice with a larger `--epochs`."""

import argparse

import numpy as np
from tensorpack import (
    AutoResumeTrainConfig,
    BatchData,
    ModelDesc,
    ModelSaver,
    QueueInput,
    SimpleTrainer,
    launch_train_with_config,
    logger,
)
from tensorpack.callbacks import HyperParamSetterWithFunc, MinSaver, RunOp
from tensorpack.compat import tfv1 as tf
from tensorpack.dataflow import DataFromList
from tensorpack.models import FullyConnected
from tensorpack.tfutils.summary import add_moving_summary


class Model(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((None, 4), tf.float32, "x"), tf.TensorSpec((None, 2), tf.float32, "y")]

    def build_graph(self, x, y):
        init = tf.constant_initializer(np.linspace(-1, 1, 24).reshape(4, 6))
        with tf.variable_scope("network"):
            x = FullyConnected("hidden", x, 6, activation=tf.nn.tanh, kernel_initializer=init)
            pred = FullyConnected("out", x, 2, kernel_initializer=tf.constant_initializer(0.1))
        cost = tf.losses.mean_squared_error(y, pred)
        cost = tf.identity(cost, name="cost")
        add_moving_summary(cost)
        return cost

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.1, trainable=False)
        tf.summary.scalar("learning_rate", lr)
        return tf.train.AdamOptimizer(lr, epsilon=1e-3)


class CountRuns(RunOp):
    def __init__(self):
        super().__init__(lambda: tf.assign_add(self.variable(), 1).op, run_before=True, run_as_trigger=False)

    def variable(self):
        return tf.get_variable("runs", initializer=0, trainable=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    logger.set_logger_dir("train_log/autoresume", action="k")
    rng = np.random.RandomState(0)
    x = rng.rand(40, 4).astype("float32")
    points = [[point, point[:2] * 2 - point[2:]] for point in x]
    config = AutoResumeTrainConfig(
        model=Model(),
        data=QueueInput(BatchData(DataFromList(points, shuffle=False), 4)),
        callbacks=[
            # Before the saver: it is the saver's business to keep what it has set.
            HyperParamSetterWithFunc("learning_rate", lambda epoch, old: 0.1 / max(epoch, 1)),
            CountRuns(),
            ModelSaver(max_to_keep=3),
            MinSaver("cost"),
        ],
        steps_per_epoch=10,
        max_epoch=args.epochs,
    )
    launch_train_with_config(config, SimpleTrainer())
