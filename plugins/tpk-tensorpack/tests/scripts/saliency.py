#!/usr/bin/env python
"""A saliency map: the gradient of the best class with respect to the image."""

import argparse
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from tensorpack.models import Conv2D, LinearWrap, MaxPooling
from tensorpack.predict import OfflinePredictor, PredictConfig
from tensorpack.tfutils import SmartInit, argscope
from tensorpack.tfutils.varmanip import save_chkpt_vars
from tensorpack.utils import logger

IMAGE_SIZE = 32


@tf.RegisterGradient("GuidedRelu")
def guided_relu_gradient(op, grad):
    return tf.where(grad > 0.0, tf.where(op.outputs[0] > 0.0, grad, tf.zeros_like(grad)), tf.zeros_like(grad))


@contextmanager
def guided_relu():
    with tf.get_default_graph().gradient_override_map({"Relu": "GuidedRelu"}):
        yield


def tower_func(image):
    x = image / 255.0 - 0.5
    with (
        guided_relu(),
        argscope(Conv2D, kernel_size=3, activation=tf.nn.relu),
        argscope([Conv2D, MaxPooling], data_format="channels_last"),
    ):
        logits = (
            LinearWrap(tf.expand_dims(x, 0))
            .Conv2D("conv0", 8)
            .MaxPooling("pool0", 2)
            .Conv2D("conv1", 16)
            .GlobalAvgPooling("gap")
            .FullyConnected("linear", 10)()
        )
    tf.nn.softmax(logits, name="prob")
    best = tf.reduce_max(logits, reduction_indices=1, name="best")
    tf.identity(tf.gradients(best, image)[0], name="saliency")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", default="saliency-model")
    args = parser.parse_args()
    rng = np.random.RandomState(0)
    save_chkpt_vars(
        {
            "conv0/W": rng.randn(3, 3, 3, 8).astype("float32"),
            "conv0/b": np.zeros(8, dtype="float32"),
            "conv1/W": rng.randn(3, 3, 8, 16).astype("float32"),
            "conv1/b": np.zeros(16, dtype="float32"),
            "linear/W": rng.randn(16, 10).astype("float32"),
            "linear/b": np.zeros(10, dtype="float32"),
        },
        args.load,
    )
    predictor = OfflinePredictor(
        PredictConfig(
            tower_func=tower_func,
            input_signature=[tf.TensorSpec((IMAGE_SIZE, IMAGE_SIZE, 3), tf.float32, "image")],
            session_init=SmartInit(args.load),
            input_names=["image"],
            output_names=["prob", "saliency"],
        )
    )
    image = rng.randint(256, size=(IMAGE_SIZE, IMAGE_SIZE, 3)).astype("uint8")
    image[:, : IMAGE_SIZE // 2] = 128
    prob, saliency = predictor(image)
    magnitude = np.abs(saliency).max(axis=-1)
    assert prob.shape == (1, 10) and magnitude.shape == (IMAGE_SIZE, IMAGE_SIZE)
    assert magnitude.max() > 0
    logger.info("class %d, saliency up to %.4f", prob.argmax(), magnitude.max())
