"""Two towers that update shared variables independently, with accumulated gradients and a wrapped optimizer."""

import numpy as np
from tensorpack import (
    AsyncMultiGPUTrainer,
    BatchData,
    ModelDesc,
    ModelSaver,
    QueueInput,
    TrainConfig,
    launch_train_with_config,
    logger,
)
from tensorpack.callbacks import EstimatedTimeLeft, GraphProfiler, ThroughputTracker
from tensorpack.compat import tfv1 as tf
from tensorpack.dataflow import FakeData
from tensorpack.models import FullyConnected
from tensorpack.tfutils import optimizer
from tensorpack.tfutils.gradproc import GlobalNormClip, ScaleGradient
from tensorpack.tfutils.summary import add_moving_summary

assert GraphProfiler.__name__ == "GraphProfiler"


class Model(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((None, 5), tf.float32, "x"), tf.TensorSpec((None, 1), tf.float32, "y")]

    def build_graph(self, x, y):
        pred = FullyConnected("fc", x, 1, kernel_initializer=tf.zeros_initializer())
        cost = tf.reduce_mean(tf.square(pred - y), name="cost")
        add_moving_summary(cost)
        return cost

    def optimizer(self):
        opt = tf.train.GradientDescentOptimizer(0.05)
        opt = optimizer.apply_grad_processors(opt, [GlobalNormClip(1.0), ScaleGradient(("fc/b", 0.1))])
        return optimizer.PostProcessOptimizer(opt, lambda v: tf.assign(v, tf.clip_by_value(v, -2.0, 2.0)).op)


if __name__ == "__main__":
    logger.auto_set_dir("d")
    data = FakeData([(5,), (1,)], size=400, random=False, dtype="float32", domain=(0, 1))
    config = TrainConfig(
        model=Model(),
        data=QueueInput(BatchData(data, 10)),
        callbacks=[ModelSaver(), ThroughputTracker(samples_per_step=10), EstimatedTimeLeft()],
        steps_per_epoch=10,
        max_epoch=2,
    )
    trainer = AsyncMultiGPUTrainer(2, scale_gradient=True)
    launch_train_with_config(config, trainer)
    assert np.isfinite(trainer.monitors.get_latest("cost"))
