"""Enlarge images with transposed convolutions and un-pooling; a callback writes the results."""

import os

import numpy as np
from sklearn.datasets import load_digits
from tensorpack import (
    BatchData,
    Callback,
    Conv2D,
    Conv2DTranspose,
    InferenceRunner,
    MaxSaver,
    ModelDesc,
    ModelSaver,
    QueueInput,
    ScalarStats,
    SimpleTrainer,
    TrainConfig,
    launch_train_with_config,
    logger,
)
from tensorpack.callbacks import PeriodicTrigger, StatMonitorParamSetter
from tensorpack.compat import tfv1 as tf
from tensorpack.dataflow import DataFromList
from tensorpack.models import FixedUnPooling, InstanceNorm, PReLU
from tensorpack.tfutils.argscope import argscope, get_arg_scope
from tensorpack.tfutils.summary import add_activation_summary, add_moving_summary
from tensorpack.tfutils.symbolic_functions import psnr
from tensorpack.utils.viz import stack_patches


class Model(ModelDesc):
    def inputs(self):
        return [
            tf.TensorSpec((None, 4, 4, 1), tf.float32, "small"),
            tf.TensorSpec((None, 8, 8, 1), tf.float32, "large"),
        ]

    def build_graph(self, small, large):
        with argscope([Conv2D, Conv2DTranspose], kernel_size=3, activation=tf.nn.relu, use_bias=False):
            assert get_arg_scope()["Conv2D"]["kernel_size"] == 3
            x = Conv2D("conv0", small, 8)
            x = InstanceNorm("in0", x)
            x = Conv2DTranspose("up", x, 8, strides=2)
            x = PReLU("prelu", x)
        residual = Conv2D("last", x, 1, 3, activation=tf.identity, kernel_initializer=tf.zeros_initializer())
        output = tf.add(FixedUnPooling("unpool", small, 2), residual, name="output")
        cost = tf.reduce_mean(tf.abs(output - large), name="cost")
        quality = psnr(output, large, 1.0, name="psnr")
        add_moving_summary(cost, quality)
        if self.training:
            add_activation_summary(x, ["sparsity", "mean"], name="features")
        return cost

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.01, trainable=False)
        return tf.train.AdamOptimizer(lr, epsilon=1e-3)


class Pictures(Callback):
    def __init__(self, images):
        self.images = images

    def _setup_graph(self):
        self.pred = self.trainer.get_predictor(["small"], ["output"])

    def _trigger(self):
        images = np.clip(self.pred(self.images)[0] * 255, 0, 255)
        patches = stack_patches(images, nr_row=2, nr_col=2, border=1)
        assert patches.ndim == 3 and patches.shape[0] >= 17, patches.shape
        self.trainer.monitors.put_image("pictures", patches)
        np.save(os.path.join(logger.get_logger_dir(), "pictures-%d.npy" % self.epoch_num), patches)  # noqa: UP031


if __name__ == "__main__":
    logger.auto_set_dir("d")
    images = (load_digits().images[:240, :, :, None] / 16.0).astype("float32")
    small = images.reshape(240, 4, 2, 4, 2, 1).mean(axis=(2, 4))
    pairs = [[s, x] for s, x in zip(small, images, strict=True)]
    train, test = (BatchData(DataFromList(each, shuffle=False), 20) for each in (pairs[:200], pairs[200:]))
    launch_train_with_config(
        TrainConfig(
            model=Model(),
            data=QueueInput(train),
            callbacks=[
                ModelSaver(),
                InferenceRunner(test, ScalarStats(["cost", "psnr"])),
                MaxSaver("validation_psnr", "best"),
                StatMonitorParamSetter("learning_rate", "validation_cost", lambda x: x * 0.5, threshold=0, last_k=1),
                PeriodicTrigger(Pictures(small[:4]), every_k_epochs=2),
            ],
            steps_per_epoch=10,
            max_epoch=2,
        ),
        SimpleTrainer(),
    )
