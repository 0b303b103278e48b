"""Early stopping: at which step each hook ends a training, for metrics that rise, fall, or do not change."""

import json
import shutil

import numpy as np
import tensorflow.compat.v1 as tf

X = np.random.RandomState(0).uniform(-1, 1, [40, 3]).astype(np.float32)
experimental = tf.estimator.experimental


def input_fn():
    return tf.data.Dataset.from_tensor_slices((X, X.sum(1, keepdims=True))).repeat().batch(8)


def model_fn(features, labels, mode):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    step = tf.train.get_global_step()
    # At steps 10, 20, ...: 1, 3, 2, 2, 5, 4, ...
    curve = tf.gather([0.0, 1, 3, 2, 2, 5, 4, 3, 2, 1, 0], tf.cast(step // 10, tf.int32))
    train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, step)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metric_ops={"curve": tf.metrics.mean(curve)}
    )


def evaluated():
    """Evaluate a training at steps 10, 20, ...; return the directory of the events."""
    estimator = tf.estimator.Estimator(model_fn, "evaluated", tf.estimator.RunConfig(save_checkpoints_steps=10))
    evaluation = tf.estimator.EvalSpec(input_fn, steps=1, throttle_secs=0)
    tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(input_fn, 100), evaluation)
    return estimator.eval_dir()


def stopped_at(make_hook):
    estimator = tf.estimator.Estimator(model_fn, "model")
    hook = make_hook(estimator)
    estimator.train(input_fn, [hook], max_steps=12)
    step = int(estimator.get_variable_value("global_step"))
    # TensorFlow's Estimator keeps another variable in these checkpoints.
    shutil.rmtree("model")
    return step


calls = []


def should_stop_fn():
    calls.append(1)
    return len(calls) > 3


options = {"eval_dir": evaluated(), "run_every_secs": None, "run_every_steps": 5}
hooks = {
    "higher": lambda e: experimental.stop_if_higher_hook(e, "curve", 4.5, **options),
    "not higher": lambda e: experimental.stop_if_higher_hook(e, "curve", 5.0, **options),
    "lower, later": lambda e: experimental.stop_if_lower_hook(e, "curve", 1.5, min_steps=20, **options),
    "not lower, later": lambda e: experimental.stop_if_lower_hook(e, "curve", 0.5, min_steps=20, **options),
    "no increase": lambda e: experimental.stop_if_no_increase_hook(e, "curve", 30, **options),
    "no increase, later": lambda e: experimental.stop_if_no_increase_hook(e, "curve", 60, min_steps=20, **options),
    "no decrease": lambda e: experimental.stop_if_no_decrease_hook(e, "curve", 80, **options),
    "no decrease, later": lambda e: experimental.stop_if_no_decrease_hook(e, "curve", 20, min_steps=60, **options),
    "function": lambda e: experimental.make_early_stopping_hook(
        e, should_stop_fn, run_every_secs=None, run_every_steps=2
    ),
}
for name, make_hook in hooks.items():
    print(json.dumps([name, stopped_at(make_hook)]))
print(json.dumps(len(calls)))
