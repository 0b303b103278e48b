"""A small model for tests, and its data."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tpk_estimator

v1 = tf.compat.v1

X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(40, 2)
Y = X @ np.array([[1.0], [-2.0]], np.float32) + 0.5
BATCH = 8


def input_fn():
    data = tf.data.Dataset.from_tensor_slices(({"x": X}, Y))
    return data.shuffle(40, seed=3).repeat().batch(BATCH)


def one_pass():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(BATCH)


def model_fn(features, labels, mode, params):
    w = v1.get_variable("w", [2, 1], initializer=v1.zeros_initializer())
    b = v1.get_variable("b", [], initializer=v1.ones_initializer())
    out = features["x"] @ w + b
    if mode == tpk_estimator.ModeKeys.PREDICT:
        return tpk_estimator.EstimatorSpec(mode, predictions={"out": out, "twice": 2 * out})
    loss = v1.losses.mean_squared_error(labels, out)
    optimizer = v1.train.MomentumOptimizer(params["rate"], 0.9)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    metrics = {"mae": v1.metrics.mean_absolute_error(labels, out)}
    return tpk_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def estimator(directory, **settings):
    config = tpk_estimator.RunConfig(**{"save_checkpoints_steps": 10, "save_summary_steps": 5, **settings})
    return tpk_estimator.Estimator(model_fn, directory, config, {"rate": 0.1})


def trained_by_hand(*passes):
    """Return the values of the variables after a plain loop; the data starts again with each number of steps."""
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.train.create_global_step()
        iterator = v1.data.make_initializable_iterator(input_fn())
        spec = model_fn(*iterator.get_next(), "train", {"rate": 0.1})
        sess.run(v1.global_variables_initializer())
        for steps in passes:
            sess.run(iterator.initializer)
            for _ in range(steps):
                sess.run(spec.train_op)
        return sess.run({each.op.name: each for each in v1.global_variables()})


def values_in(path):
    return {name: tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)}


def events_in(directory):
    """Return the step, the tag and the value of each scalar in the event files of a directory."""
    paths = sorted(directory.glob("events.out.tfevents.*"))
    return [
        (event.step, value.tag, value.simple_value)
        for path in paths
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
