#!/usr/bin/env python
"""A classifier like in a tutorial, with top-level names of TensorFlow 1, `--load` and `--gpu`."""

# ruff: noqa: F403, F405

import argparse
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorpack import *
from tensorpack.dataflow import DataFromList, MapData, RepeatedData
from tensorpack.tfutils import gradproc, optimizer
from tensorpack.tfutils.summary import add_moving_summary, add_param_summary

IMAGE_SIZE = 8


class Model(ModelDesc):
    def inputs(self):
        return [
            tf.placeholder(tf.float32, (None, IMAGE_SIZE, IMAGE_SIZE), "input"),
            tf.placeholder(tf.int32, (None,), "label"),
        ]

    def build_graph(self, image, label):
        image = tf.expand_dims(image, 3) * 2 - 1
        is_training = get_current_tower_context().is_training
        with (
            argscope(Conv2D, kernel_size=3, activation=tf.nn.relu, filters=12),
            argscope([Conv2D, MaxPooling], padding="SAME"),
        ):
            logits = (
                LinearWrap(image)
                .Conv2D("conv0")
                .MaxPooling("pool0", 2)
                .Conv2D("conv1", padding="VALID")
                .Conv2D("conv2", kernel_size=1, activation=BNReLU, use_bias=False)
                .FullyConnected("fc0", 32, activation=tf.nn.relu)
                .Dropout("dropout", rate=0.5 if is_training else 0.0)
                .FullyConnected("fc1", units=10, kernel_initializer=tf.random_normal_initializer(stddev=0.01))()
            )
        tf.nn.softmax(logits, name="prob")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        loss = tf.reduce_mean(loss, name="cross_entropy_loss")
        wrong = tf.to_float(tf.logical_not(tf.nn.in_top_k(logits, label, 1)), name="incorrect_vector")
        train_error = tf.reduce_mean(wrong, name="train_error")
        add_moving_summary(train_error)
        wd_cost = regularize_cost("fc.*/W", l2_regularizer(1e-4), name="regularize_loss")
        cost = tf.add_n([wd_cost, loss], name="total_cost")
        add_moving_summary(loss, wd_cost, cost)
        add_param_summary(("conv0/W", ["histogram"]), ("fc.*/W", ["rms", "mean"]))
        tf.summary.image("input_image", image, max_outputs=2)
        return cost

    def optimizer(self):
        lr = tf.train.exponential_decay(2e-2, get_global_step_var(), 10, 0.5, staircase=True, name="learning_rate")
        tf.summary.scalar("lr", lr)
        opt = tf.train.MomentumOptimizer(lr, 0.9, use_nesterov=True)
        return optimizer.apply_grad_processors(opt, [gradproc.MapGradient(lambda grad: grad * 2, "fc.*/b")])


def get_data(train_or_test):
    isTrain = train_or_test == "train"
    digits = load_digits()
    chosen = slice(0, 256) if isTrain else slice(256, 400)
    ds = DataFromList(list(zip(digits.images[chosen], digits.target[chosen], strict=True)), shuffle=False)
    ds = MapData(ds, lambda dp: [(dp[0] / 16.0).astype("float32"), int(dp[1])])
    ds = BatchData(ds, 32, remainder=not isTrain)
    return RepeatedData(ds, -1) if isTrain else ds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", help='comma separated list of GPU(s) to use, "-1" for none')
    parser.add_argument("--load", help="load model")
    args = parser.parse_args()
    if args.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
    logger.set_logger_dir(os.path.join("train_log", "convnet"), action="d")
    config = TrainConfig(
        model=Model(),
        data=FeedInput(get_data("train")),
        callbacks=[
            ModelSaver(),
            InferenceRunner(
                get_data("test"), [ScalarStats("cross_entropy_loss"), ClassificationError("incorrect_vector")]
            ),
        ],
        session_init=SmartInit(args.load),
        steps_per_epoch=10,
        max_epoch=2,
    )
    trainer = SimpleTrainer()
    launch_train_with_config(config, trainer)
    assert np.isfinite(trainer.monitors.get_latest("validation_error"))
