#!/usr/bin/env python
"""Written for tensorpack 0.5: inputs with underscores, a cost attribute, a trainer created from its config."""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorpack import *  # noqa: F403
from tensorpack.tfutils import summary
from tensorpack.tfutils.symbolic_functions import *  # noqa: F403

# ruff: noqa: F405


class Model(ModelDesc):
    def _get_inputs(self):
        return [InputDesc(tf.float32, (None, 8, 8), "input"), InputDesc(tf.int32, (None,), "label")]

    def _build_graph(self, inputs):
        image, label = inputs
        image = tf.expand_dims(image, 3) / 8.0 - 1
        with argscope(Conv2D, kernel_shape=3, nl=tf.nn.relu, out_channel=8):
            l = Conv2D("conv0", image)  # noqa: E741
            l = MaxPooling("pool0", l, 2)  # noqa: E741
            l = Conv2D("conv1", l, W_init=tf.random_normal_initializer(stddev=0.1))  # noqa: E741
        l = FullyConnected("fc0", l, 32, nl=tf.nn.relu)  # noqa: E741
        l = Dropout("dropout", l, 0.9)  # noqa: E741
        logits = FullyConnected("fc1", l, out_dim=10, nl=tf.identity)
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        cost = tf.reduce_mean(cost, name="cross_entropy_loss")
        wrong = tf.cast(
            tf.not_equal(tf.cast(tf.argmax(logits, 1), tf.int32), label), tf.float32, name="incorrect_vector"
        )
        summary.add_moving_summary(cost, tf.reduce_mean(wrong, name="train_error"))
        wd_cost = tf.multiply(1e-5, regularize_cost("fc.*/W", tf.nn.l2_loss), name="regularize_loss")
        summary.add_param_summary((".*/W", ["histogram"]))
        self.cost = tf.add_n([wd_cost, cost], name="cost")

    def _get_optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=1e-2, trainable=False)
        tf.summary.scalar("lr", lr)
        return tf.train.AdamOptimizer(lr)


def get_data(first, last):
    digits = load_digits()
    points = [[i.astype("float32"), int(t)] for i, t in zip(digits.images, digits.target, strict=True)]
    ds = DataFromList(points[first:last], shuffle=False)
    ds.reset_state()
    assert np.array_equal(next(iter(ds.get_data()))[0], points[first][0])
    return BatchData(ds, 32, remainder=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", help="load model")
    parser.add_argument("--towers", type=int, default=1)
    args = parser.parse_args()
    logger.auto_set_dir("d")
    dataset_train, dataset_test = get_data(0, 320), get_data(320, 450)
    config = TrainConfig(
        model=Model(),
        dataflow=dataset_train,
        callbacks=[
            ModelSaver(),
            InferenceRunner(dataset_test, [ScalarStats("cross_entropy_loss"), ClassificationError("incorrect_vector")]),
            ScheduledHyperParamSetter("learning_rate", [(2, 5e-3)]),
        ],
        steps_per_epoch=dataset_train.size() // args.towers,
        max_epoch=2,
        nr_tower=args.towers,
    )
    if args.load:
        config.session_init = get_model_loader(args.load)
    if args.towers > 1:
        SyncMultiGPUTrainerParameterServer(config, ps_device="cpu").train()
    else:
        QueueInputTrainer(config).train()
