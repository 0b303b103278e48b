#!/usr/bin/env python
"""Export a trained model for TensorFlow Serving and as a single file, and run both."""

import argparse
import os

import numpy as np
import tensorflow as tf
from tensorpack.compat import tfv1
from tensorpack.models import LinearWrap, regularize_cost
from tensorpack.predict import OfflinePredictor, PredictConfig
from tensorpack.tfutils.export import ModelExporter
from tensorpack.tfutils.sessinit import DictRestore
from tensorpack.tfutils.tower import get_current_tower_context

SHAPE = 16


def tower_func(image, label):
    logits = (
        LinearWrap(image / 128.0 - 1.0)
        .Conv2D("conv0", 4, 3, strides=2, activation=tf.nn.relu)
        .Conv2D("conv1", 8, 3, strides=2, activation=tf.nn.relu)
        .FullyConnected("fc", 10)()
    )
    tf.nn.softmax(logits, name="prob")
    if get_current_tower_context().is_training:
        cost = tf.losses.sparse_softmax_cross_entropy(label, logits)
        return tf.add_n([cost, regularize_cost("fc/W", tf.contrib.layers.l2_regularizer(1e-5))], name="cost")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="exported")
    args = parser.parse_args()
    rng = np.random.RandomState(0)
    weights = {
        "conv0/W": rng.randn(3, 3, 3, 4),
        "conv0/b": np.zeros(4),
        "conv1/W": rng.randn(3, 3, 4, 8),
        "conv1/b": np.zeros(8),
        "fc/W": rng.randn(SHAPE // 4 * SHAPE // 4 * 8, 10),
        "fc/b": np.zeros(10),
    }
    config = PredictConfig(
        tower_func=tower_func,
        input_signature=[
            tf.TensorSpec((None, SHAPE, SHAPE, 3), tf.float32, "input_image"),
            tf.TensorSpec((None,), tf.int32, "label"),
        ],
        session_init=DictRestore({name: value.astype(np.float32) for name, value in weights.items()}),
        input_names=["input_image"],
        output_names=["prob"],
    )
    images = rng.randint(256, size=(2, SHAPE, SHAPE, 3)).astype(np.float32)
    expected = OfflinePredictor(config)(images)[0]

    compact = args.dir + ".pb"
    ModelExporter(config).export_compact(compact)
    with tfv1.Graph().as_default():
        graph_def = tfv1.GraphDef()
        with tf.gfile.GFile(compact, "rb") as f:
            graph_def.ParseFromString(f.read())
        tf.import_graph_def(graph_def, name="")
        with tf.Session() as sess:
            np.testing.assert_allclose(sess.run("prob:0", {"input_image:0": images}), expected, rtol=1e-4, atol=1e-6)

    ModelExporter(config).export_serving(os.path.join(args.dir, "1"))
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        meta = tf.saved_model.loader.load(sess, [tf.saved_model.tag_constants.SERVING], os.path.join(args.dir, "1"))
        output = meta.signature_def["prediction_pipeline"].outputs["prob:0"].name
        np.testing.assert_allclose(sess.run(output, {"input_image:0": images}), expected, rtol=1e-4, atol=1e-6)
    print("exported", sorted(os.listdir(args.dir)))
