#!/usr/bin/env python
"""Fine-tune a published `.npz` model: frozen layers, accumulated gradients, weight decay by name."""

import argparse

import numpy as np
import tensorflow as tf
from tensorpack import *  # noqa: F403
from tensorpack.predict import FeedfreePredictor, SimpleDatasetPredictor
from tensorpack.tfutils import optimizer, summary
from tensorpack.tfutils.common import get_op_tensor_name, get_tensors_by_names
from tensorpack.tfutils.varreplace import custom_getter_scope, freeze_variables

# ruff: noqa: F405


def write_published(path):
    """Write a network as they were published, by names of variables with or without `:0`."""
    rng = np.random.RandomState(11)
    np.savez(
        path,
        **{
            "conv0/W:0": rng.randn(3, 3, 1, 4).astype("float32") * 0.3,
            "conv0/bn/gamma:0": np.ones(4, dtype="float32"),
            "conv0/bn/beta:0": np.zeros(4, dtype="float32"),
            "conv0/bn/mean/EMA:0": rng.randn(4).astype("float32") * 0.1,
            "conv0/bn/variance/EMA:0": rng.rand(4).astype("float32") + 0.5,
            "fc/W": rng.randn(4 * 3 * 3, 3).astype("float32") * 0.2,
            "fc/b": np.zeros(3, dtype="float32"),
            "of_no_use": np.zeros(1, dtype="float32"),
        },
    )


class Model(ModelDesc):
    def inputs(self):
        return [tf.placeholder(tf.float32, [None, 6, 6, 1], "image"), tf.placeholder(tf.int32, [None], "label")]

    def build_graph(self, image, label):
        def in_half_a_gradient(getter, *args, **kwargs):
            v = getter(*args, **kwargs)
            return 0.5 * v + 0.5 * tf.stop_gradient(v) if v.op.name == "fc/W" else v

        with freeze_variables(stop_gradient=True, skip_collection=True), argscope(BatchNorm, training=False):
            x = Conv2D("conv0", image, 4, 3, strides=2, use_bias=False, activation=BNReLU)
        with custom_getter_scope(in_half_a_gradient):
            logits = FullyConnected("fc", x, 3)
        tf.nn.softmax(logits, name="prob")
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        cost = tf.reduce_mean(cost, name="xent")
        decay = regularize_cost("fc/.*", tf.nn.l2_loss) * 1e-3
        total = tf.add(cost, decay, name="cost")
        summary.add_moving_summary(cost, total)
        return total

    def optimizer(self):
        return optimizer.AccumGradOptimizer(tf.train.GradientDescentOptimizer(0.05), 2)


def get_data(number):
    rng = np.random.RandomState(5)
    for n in range(number):
        label = n % 3
        yield [rng.rand(6, 6, 1).astype("float32") + label * 0.5, label]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", default="published.npz")
    args = parser.parse_args()
    write_published(args.load)
    logger.set_logger_dir("train_log/fine_tune", action="b")
    train = BatchData(DataFromList(list(get_data(60)), shuffle=False), 6)
    config = TrainConfig(
        model=Model(),
        data=QueueInput(train),
        callbacks=[ModelSaver(var_collections=[tf.GraphKeys.GLOBAL_VARIABLES], checkpoint_dir="train_log/models")],
        session_init=SmartInit(args.load),
        steps_per_epoch=10,
        max_epoch=2,
    )
    trainer = SimpleTrainer()
    launch_train_with_config(config, trainer)
    assert get_op_tensor_name("prob") == ("prob", "prob:0")
    assert get_tensors_by_names(["cost:0"])[0].name == "cost:0"

    model = PredictConfig(
        model=Model(),
        session_init=SmartInit("train_log/models/checkpoint"),
        input_names=["image"],
        output_names=["prob"],
    )
    predictor = SimpleDatasetPredictor(
        model, BatchData(MapData(DataFromList(list(get_data(12)), shuffle=False), lambda dp: [dp[0]]), 6)
    )
    probabilities = np.concatenate([outputs[0] for outputs in predictor.get_all_result()])
    with tf.Graph().as_default():
        free = FeedfreePredictor(
            PredictConfig(
                model=Model(),
                session_init=SmartInit("train_log/models/model-20"),
                input_names=["image", "label"],
                output_names=["prob"],
            ),
            QueueInput(BatchData(DataFromList(list(get_data(6)), shuffle=False), 6)),
        )
        (first,) = free()
    np.testing.assert_allclose(first, probabilities[:6], rtol=1e-4)
    np.savez("fine_tuned.npz", probabilities=probabilities)
