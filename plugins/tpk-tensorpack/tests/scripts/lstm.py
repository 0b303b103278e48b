#!/usr/bin/env python
"""A character-level language model, with names of TensorFlow 1."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn
from tensorpack.predict import OfflinePredictor, PredictConfig
from tensorpack.tfutils import optimizer
from tensorpack.tfutils.gradproc import GlobalNormClip
from tensorpack.tfutils.sessinit import SmartInit
from tensorpack.tfutils.varmanip import dump_session_params

TEXT = "the quick brown fox jumps over the lazy dog. " * 8
CHARACTERS = sorted(set(TEXT))
BATCH, STEPS, SIZE = 4, 10, 32


def build(inputs, keep_prob=1.0):
    batch = tf.shape(inputs)[0]
    cells = [rnn.DropoutWrapper(tf.nn.rnn_cell.BasicLSTMCell(SIZE), output_keep_prob=keep_prob) for _ in range(2)]
    cell = rnn.MultiRNNCell(cells, state_is_tuple=True)
    embedding = tf.get_variable(
        "embedding", [len(CHARACTERS), SIZE], initializer=tf.random_uniform_initializer(-0.1, 0.1)
    )
    embedded = tf.nn.embedding_lookup(embedding, inputs)
    outputs, _ = rnn.static_rnn(
        cell, tf.unstack(embedded, num=STEPS, axis=1), initial_state=cell.zero_state(batch, tf.float32), scope="rnn"
    )
    flat = tf.reshape(tf.concat(outputs, axis=1), [-1, SIZE])
    softmax_w = tf.get_variable(
        "softmax_w", [SIZE, len(CHARACTERS)], initializer=tf.contrib.layers.xavier_initializer()
    )
    softmax_b = tf.get_variable("softmax_b", [len(CHARACTERS)], initializer=tf.zeros_initializer())
    return tf.nn.xw_plus_b(flat, softmax_w, softmax_b, name="logits")


def predict_tower(inputs):
    tf.nn.softmax(build(inputs), name="prob")


def batches(number):
    ids = np.array([CHARACTERS.index(c) for c in TEXT], dtype=np.int32)
    rng = np.random.RandomState(0)
    for _ in range(number):
        starts = rng.randint(len(ids) - STEPS - 1, size=BATCH)
        window = np.stack([ids[s : s + STEPS + 1] for s in starts])
        yield window[:, :-1], window[:, 1:]


def train(path, steps):
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        inputs = tf.placeholder(tf.int32, [None, STEPS], name="inputs")
        targets = tf.placeholder(tf.int32, [None, STEPS], name="targets")
        logits = build(inputs, keep_prob=0.9)
        xent = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=tf.reshape(targets, [-1]))
        cost = tf.truediv(tf.reduce_sum(xent), tf.to_float(tf.size(targets)), name="cost")
        opt = optimizer.apply_grad_processors(tf.train.AdamOptimizer(0.02), [GlobalNormClip(5)])
        global_step = tf.train.get_or_create_global_step()
        train_op = opt.minimize(cost, global_step=global_step)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            costs = [sess.run([cost, train_op], {inputs: i, targets: t})[0] for i, t in batches(steps)]
            dump_session_params(path)
    print("cost:", costs[0], "->", costs[-1])
    assert costs[-1] < costs[0] - 0.5


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", default="lstm.npz")
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    train(args.save, args.steps)
    predict = OfflinePredictor(
        PredictConfig(
            tower_func=predict_tower,
            input_signature=[tf.TensorSpec([None, STEPS], tf.int32, "inputs")],
            output_names=["prob"],
            session_init=SmartInit(args.save),
        )
    )
    inputs, _ = next(batches(1))
    prob = predict(inputs)[0]
    assert prob.shape == (BATCH * STEPS, len(CHARACTERS))
    np.testing.assert_allclose(prob.sum(axis=1), np.ones(len(prob), dtype=np.float), rtol=1e-4)
