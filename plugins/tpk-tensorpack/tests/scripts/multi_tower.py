#!/usr/bin/env python
"""Classification on two towers, with the trainer given on the command line."""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits
from tensorpack import *  # noqa: F403
from tensorpack.dataflow import DataFromList
from tensorpack.tfutils.summary import add_moving_summary

# ruff: noqa: F405


class Model(ModelDesc):
    def inputs(self):
        return [tf.placeholder(tf.float32, [None, 8, 8], "input"), tf.placeholder(tf.int32, [None], "label")]

    def build_graph(self, image, label):
        x = tf.expand_dims(image, 3) / 8.0 - 1
        x = Conv2D("conv0", x, 8, 3, strides=2, use_bias=False)
        x = BatchNorm("bn", x, momentum=0.8)
        x = FullyConnected("fc", tf.nn.relu(x), 10)
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=x, labels=label)
        cost = tf.reduce_mean(cost, name="cost")
        wrong = tf.to_float(tf.logical_not(tf.nn.in_top_k(x, label, 1)), name="wrong")
        add_moving_summary(cost, tf.reduce_mean(wrong, name="train_error"))
        return cost + regularize_cost("fc/W", tf.nn.l2_loss) * 1e-4

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.05, trainable=False)
        tf.summary.scalar("learning_rate-summary", lr)
        return tf.train.MomentumOptimizer(lr, 0.9)


def get_data(first, last, is_train):
    digits = load_digits()
    points = [[i.astype("float32"), int(t)] for i, t in zip(digits.images, digits.target, strict=True)]
    ds = BatchData(DataFromList(points[first:last], shuffle=False), 16, remainder=not is_train)
    return RepeatedData(ds, -1) if is_train else ds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--trainer", choices=["replicated", "parameter-server", "default", "async"], default="replicated"
    )
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--load")
    args = parser.parse_args()
    gpus = [int(each) for each in args.gpus.split(",")]
    logger.auto_set_dir("d", name=args.trainer)
    trainer = {
        "replicated": lambda: SyncMultiGPUTrainerReplicated(gpus, mode="cpu"),
        "parameter-server": lambda: SyncMultiGPUTrainerParameterServer(gpus, ps_device="gpu"),
        "default": lambda: SyncMultiGPUTrainer(gpus),
        "async": lambda: AsyncMultiGPUTrainer(gpus, scale_gradient=True),
    }[args.trainer]()
    config = TrainConfig(
        model=Model(),
        dataflow=get_data(0, 320, True),
        callbacks=[
            ModelSaver(),
            InferenceRunner(get_data(320, 400, False), [ScalarStats("cost"), ClassificationError("wrong")]),
            ScheduledHyperParamSetter("learning_rate", [(2, 0.02)]),
        ],
        session_init=SmartInit(args.load),
        steps_per_epoch=320 // 16 // len(gpus),
        max_epoch=2,
    )
    launch_train_with_config(config, trainer)
