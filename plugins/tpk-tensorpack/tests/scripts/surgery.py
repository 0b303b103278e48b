#!/usr/bin/env python
"""Checkpoint surgery: read, rename, average and cut values, then train with some of them frozen."""

import os

import numpy as np
import tensorflow as tf
from tensorpack import ModelDesc, ModelSaver, SimpleTrainer, TrainConfig, launch_train_with_config, logger
from tensorpack.dataflow import DataFromList
from tensorpack.models import FullyConnected
from tensorpack.predict import OfflinePredictor, PredictConfig
from tensorpack.tfutils import varmanip, varreplace
from tensorpack.tfutils.sessinit import ChainInit, DictRestore, SaverRestore, SaverRestoreRelaxed, get_model_loader

DATA = np.random.RandomState(2).rand(4, 3, 6).astype("float32")


def rounded(v):
    return v + tf.stop_gradient(tf.round(v * 64) / 64 - v) if v.op.name.endswith("/W") else v


class Model(ModelDesc):
    def __init__(self, scope, classes, frozen=False):
        self.scope, self.classes, self.frozen = scope, classes, frozen

    def inputs(self):
        return [tf.placeholder(tf.float32, [None, 6], "x")]

    def features(self, x):
        with tf.variable_scope(self.scope):
            x = FullyConnected("fc0", x, 8, activation=tf.nn.relu, kernel_initializer=tf.constant_initializer(0.1))
            return FullyConnected("fc1", x, 8, activation=tf.nn.sigmoid)

    def build_graph(self, x):
        if self.frozen:
            with varreplace.freeze_variables(stop_gradient=False, skip_collection=True):
                x = self.features(x)
        else:
            x = self.features(x)
        # Compute with rounded weights, but train the weights themselves.
        with varreplace.remap_variables(rounded):
            x = FullyConnected("last", x, self.classes, kernel_initializer=tf.constant_initializer(0.5))
        output = tf.identity(x, name="output")
        return tf.reduce_mean(tf.square(output - 0.25), name="cost")

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.3, trainable=False)
        return tf.train.GradientDescentOptimizer(lr)


def train(model, directory, session_init, max_epoch):
    logger.set_logger_dir(directory, action="d")
    with tf.Graph().as_default():
        launch_train_with_config(
            TrainConfig(
                model=model,
                dataflow=DataFromList([[each] for each in DATA], shuffle=False),
                callbacks=[ModelSaver()],
                session_init=session_init,
                steps_per_epoch=5,
                max_epoch=max_epoch,
            ),
            SimpleTrainer(),
        )


def predict(model, session_init):
    config = PredictConfig(model=model, session_init=session_init, input_names=["x"], output_names=["output"])
    return OfflinePredictor(config)(DATA[0])[0]


if __name__ == "__main__":
    weights = np.random.RandomState(1).randn(8, 8).astype("float32")
    first = "train_log/surgery/first"
    train(Model("old", 3), first, DictRestore({"old/fc1/W": weights}), max_epoch=2)

    path = varmanip.get_checkpoint_path(os.path.join(first, "checkpoint"))
    values = varmanip.load_chkpt_vars(path)
    assert {"old/fc0/W", "old/fc1/b", "last/W", "global_step", "learning_rate"} <= set(values), sorted(values)
    earlier = varmanip.load_checkpoint_vars(os.path.join(first, "model-5"))
    averaged = {}
    for name, value in values.items():
        if name in ("global_step", "learning_rate"):
            continue
        assert varmanip.is_training_name(name) is False
        averaged[name.replace("old/", "new/")] = (value + earlier[name]) / 2
    varmanip.save_chkpt_vars(averaged, "averaged.npz")
    varmanip.save_chkpt_vars(averaged, "averaged-model")
    np.testing.assert_array_equal(
        predict(Model("new", 3), get_model_loader("averaged.npz")),
        predict(Model("new", 3), SaverRestore("averaged-model")),
    )

    # Two classes instead of three: the last layer has different shapes.
    cut = {name: value[..., :2] for name, value in averaged.items() if name.startswith("last/")}
    features = {name: value for name, value in averaged.items() if name.startswith("new/")}
    second = "train_log/surgery/second"
    train(Model("new", 2, frozen=True), second, ChainInit([DictRestore(features), DictRestore(cut)]), max_epoch=1)
    trained = varmanip.load_chkpt_vars(os.path.join(second, "model-5"))
    for name, value in features.items():
        np.testing.assert_array_equal(trained[name], value)
    assert not np.array_equal(trained["last/W"], cut["last/W"])
    relaxed = predict(Model("old", 4), SaverRestoreRelaxed(path, ignore=["last/W"]))
    np.savez(
        "surgery.npz",
        two=predict(Model("new", 2), SaverRestore(os.path.join(second, "model-5"))),
        relaxed=relaxed.shape,
        **{name.replace("/", "."): value for name, value in trained.items()},
    )
