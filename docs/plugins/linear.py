"""The model and the data of the pages about plugins."""

import numpy as np
import tensorflow as tf

import tpk


def batches():
    x = np.random.default_rng(0).normal(size=[64, 3]).astype(np.float32)
    return tpk.BatchData(tpk.DataFromList(list(zip(x, x @ np.float32([[1], [2], [3]]), strict=True))), 16)


class Linear(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        return tf.reduce_mean((tpk.layers.dense(x, 1, name="linear") - y) ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.AdamOptimizer(0.05)
