#!/usr/bin/env python
"""Siamese, cosine and triplet networks on digits; on two towers."""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorpack import *  # noqa: F403
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.utils.gpu import change_gpu

# ruff: noqa: F405, UP008


def contrastive_loss(left, right, y, margin, extra=False, scope="constrastive_loss"):
    with tf.name_scope(scope):
        y = tf.cast(y, tf.float32)
        delta = tf.reduce_sum(tf.square(left - right), 1)
        delta_sqrt = tf.sqrt(delta + 1e-10)
        match_loss = delta
        missmatch_loss = tf.square(tf.nn.relu(margin - delta_sqrt))
        loss = tf.reduce_mean(0.5 * (y * match_loss + (1 - y) * missmatch_loss))
        if extra:
            num_pos = tf.count_nonzero(y)
            num_neg = tf.count_nonzero(1 - y)
            pos_dist = tf.where(tf.equal(num_pos, 0), 0.0, tf.reduce_sum(y * delta_sqrt) / tf.cast(num_pos, tf.float32))
            neg_dist = tf.where(
                tf.equal(num_neg, 0), 0.0, tf.reduce_sum((1 - y) * delta_sqrt) / tf.cast(num_neg, tf.float32)
            )
            return loss, tf.identity(pos_dist, "pos-dist"), tf.identity(neg_dist, "neg-dist")
        return loss


def triplet_loss(anchor, positive, negative, margin, scope="triplet_loss"):
    with tf.name_scope(scope):
        d_pos = tf.reduce_sum(tf.square(anchor - positive), 1)
        d_neg = tf.reduce_sum(tf.square(anchor - negative), 1)
        loss = tf.reduce_mean(tf.maximum(0.0, margin + d_pos - d_neg))
        return (
            loss,
            tf.reduce_mean(tf.sqrt(d_pos + 1e-10), name="pos-dist"),
            tf.reduce_mean(tf.sqrt(d_neg + 1e-10), name="neg-dist"),
        )


class EmbeddingModel(ModelDesc):
    def embed(self, x, nfeatures=2):
        """Run all inputs through one network, as a single batch."""
        list_split = 0
        if isinstance(x, list):
            list_split = len(x)
            x = tf.concat(x, 0)
        x = tf.expand_dims(x, 3) / 8.0 - 1
        with argscope([Conv2D, FullyConnected], activation=tf.nn.relu):
            net = Conv2D("conv1", x, 8, 3, strides=2)
            net = FullyConnected("fc1", net, 16)
        embeddings = FullyConnected("embed", net, nfeatures, activation=tf.identity, use_bias=False)
        if list_split > 0:
            embeddings = tf.split(embeddings, list_split, 0)
        return embeddings

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=1e-2, trainable=False)
        return tf.train.GradientDescentOptimizer(lr)


class SiameseModel(EmbeddingModel):
    @staticmethod
    def get_data(batch):
        return BatchData(Pairs(), batch)

    def inputs(self):
        return [
            tf.placeholder(tf.float32, (None, 8, 8), "input"),
            tf.placeholder(tf.float32, (None, 8, 8), "input_y"),
            tf.placeholder(tf.int32, (None,), "label"),
        ]

    def build_graph(self, x, y, label):
        single_input = x
        x, y = self.embed([x, y])
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            tf.identity(self.embed(single_input), name="emb")
        cost, pos_dist, neg_dist = contrastive_loss(x, y, label, 5.0, extra=True)
        cost = tf.identity(cost, name="cost")
        add_moving_summary(cost, pos_dist, neg_dist)
        return cost


class TripletModel(EmbeddingModel):
    @staticmethod
    def get_data(batch):
        return BatchData(Triplets(), batch)

    def inputs(self):
        return [tf.placeholder(tf.float32, (None, 8, 8), name) for name in ("input", "input_p", "input_n")]

    def build_graph(self, a, p, n):
        single_input = a
        a, p, n = self.embed([a, p, n])
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            tf.identity(self.embed(single_input), name="emb")
        cost, pos_dist, neg_dist = triplet_loss(a, p, n, 5.0)
        cost = tf.identity(cost, name="cost")
        add_moving_summary(cost, pos_dist, neg_dist)
        return cost


class Pairs(RNGDataFlow):
    """Pairs of images, half of them of one digit."""

    def __init__(self):
        digits = load_digits()
        self.images = digits.images[:300].astype("float32")
        self.by_label = {label: np.where(digits.target[:300] == label)[0] for label in range(10)}

    def reset_state(self):
        super(Pairs, self).reset_state()
        self.rng = np.random.RandomState(0)

    def pick(self, label):
        return self.images[self.rng.choice(self.by_label[label])]

    def __iter__(self):
        while True:
            y = self.rng.randint(2)
            first, other = self.rng.choice(10, size=2, replace=False)
            yield [self.pick(first), self.pick(first if y else other), y]


class Triplets(Pairs):
    def __iter__(self):
        while True:
            first, other = self.rng.choice(10, size=2, replace=False)
            yield [self.pick(first), self.pick(first), self.pick(other)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", help="load model")
    parser.add_argument("--algorithm", choices=["siamese", "triplet"], default="siamese")
    parser.add_argument("--towers", type=int, default=2)
    args = parser.parse_args()
    logger.auto_set_dir("d", name=args.algorithm)
    model = {"siamese": SiameseModel, "triplet": TripletModel}[args.algorithm]()
    with change_gpu(""):
        config = TrainConfig(
            model=model,
            dataflow=model.get_data(8),
            callbacks=[ModelSaver(), ScheduledHyperParamSetter("learning_rate", [(2, 5e-3)])],
            session_init=SmartInit(args.load),
            steps_per_epoch=10,
            max_epoch=10,
        )
        launch_train_with_config(config, SyncMultiGPUTrainerParameterServer(args.towers, ps_device="cpu"))
