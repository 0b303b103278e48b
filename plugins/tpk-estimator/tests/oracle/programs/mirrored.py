"""`MirroredStrategy` on two devices of the CPU: each replica takes its own batch."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

X = np.random.RandomState(0).uniform(-1, 1, [48, 4]).astype(np.float32)
Y = np.abs(X).sum(1, keepdims=True)


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).repeat().batch(8)


def eval_input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(8)


def model_fn(features, labels, mode, params):
    hidden = tf.layers.dense(features["x"], 5, use_bias=False)
    hidden = tf.layers.batch_normalization(hidden, training=mode == tf.estimator.ModeKeys.TRAIN, momentum=0.9)
    out = tf.layers.dense(tf.nn.relu(hidden), 1)
    loss = params["loss"](labels, out)
    tf.summary.scalar("mean", tf.reduce_mean(out))
    optimizer = params["optimizer"]()
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    metrics = {"mae": tf.metrics.mean_absolute_error(labels, out)}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def mean(labels, out):
    return tf.losses.mean_squared_error(labels, out)


def total(labels, out):
    return tf.losses.mean_squared_error(labels, out, reduction=tf.losses.Reduction.SUM)


MODELS = {
    "mean": {"loss": mean, "optimizer": lambda: tf.train.AdamOptimizer(0.02)},
    "sum": {"loss": total, "optimizer": lambda: tf.train.MomentumOptimizer(0.001, 0.9)},
}
for name, params in MODELS.items():
    # On CPUs, collective operations may wait for each other forever.
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice())
    config = tf.estimator.RunConfig(
        save_checkpoints_steps=5,
        save_summary_steps=2,
        session_config=tf.ConfigProto(device_count={"CPU": 2}),
        train_distribute=strategy,
    )
    estimator = tf.estimator.Estimator(model_fn, name, config, params)
    estimator.train(input_fn, steps=8)
    estimator.train(input_fn, max_steps=12)
    results = estimator.evaluate(eval_input_fn)
    print(json.dumps([name, {key: float(value) for key, value in sorted(results.items())}]))
