"""The model and the data of the guides: a small network that learns in seconds."""

import numpy as np
import tensorflow as tf

import tpk


def examples(seed, count=256):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[count, 8]).astype(np.float32)
    return list(zip(x, (x.sum(axis=1) > 0).astype(np.int64), strict=True))


def training_data(batch=32):
    return tpk.BatchData(tpk.DataFromList(examples(seed=0), shuffle=True, seed=0), batch)


def validation_data(batch=64):
    return tpk.BatchData(tpk.DataFromList(examples(seed=1), shuffle=False), batch)


class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 8], tf.float32, "x"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, x, label):
        x = tpk.layers.dense(x, 16, activation=tf.nn.relu, name="hidden")
        logits = tpk.layers.dense(x, 2, name="logits")
        tf.nn.softmax(logits, name="probabilities")
        tf.cast(tf.not_equal(tf.argmax(logits, axis=1), label), tf.float32, name="incorrect_vector")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        return tf.reduce_mean(loss, name="cost")

    def optimizer(self):
        rate = tf.compat.v1.get_variable("learning_rate", initializer=0.01, trainable=False)
        return tf.compat.v1.train.AdamOptimizer(rate)
