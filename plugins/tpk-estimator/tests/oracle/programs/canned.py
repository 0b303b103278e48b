"""Canned estimators with their default options, and with others: baselines, linear and deep models, named labels."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

random = np.random.RandomState(0)
NUMBER = 60
X = {"a": random.normal(size=NUMBER).astype(np.float32), "b": random.randint(0, 4, NUMBER)}
X["weight"] = random.uniform(0.5, 2, NUMBER).astype(np.float32)
CLASSES = X["b"] % 3
NAMES = np.array(["blue", "green", "red"], object)[CLASSES]
NUMBERS = np.stack([X["a"] ** 2, X["b"] / 2], 1).astype(np.float32)

number = tf.feature_column.numeric_column("a")
category = tf.feature_column.categorical_column_with_identity("b", 4)
embedded = tf.feature_column.embedding_column(category, 2)
estimators = tf.estimator
ESTIMATORS = {
    "baseline_classifier": (lambda **given: estimators.BaselineClassifier(n_classes=3, **given), CLASSES),
    "baseline_binary": (lambda **given: estimators.BaselineClassifier(weight_column="weight", **given), CLASSES % 2),
    "baseline_regressor": (
        lambda **given: estimators.BaselineRegressor(label_dimension=2, optimizer="Adam", **given),
        NUMBERS,
    ),
    "linear_one_column": (lambda **given: estimators.LinearClassifier([category], n_classes=3, **given), CLASSES),
    "linear_named": (
        lambda **given: estimators.LinearClassifier(
            [number, category], n_classes=3, label_vocabulary=["blue", "green", "red"], **given
        ),
        NAMES,
    ),
    "linear_regressor": (
        lambda **given: estimators.LinearRegressor(
            [number, category], label_dimension=2, weight_column="weight", sparse_combiner="mean", **given
        ),
        NUMBERS,
    ),
    "deep": (
        lambda **given: estimators.DNNClassifier(
            [4, 3], [number, embedded], optimizer=tf.train.AdamOptimizer(0.05), activation_fn=tf.tanh, **given
        ),
        CLASSES % 2,
    ),
    "combined": (
        lambda **given: estimators.DNNLinearCombinedRegressor(
            linear_feature_columns=[category],
            dnn_feature_columns=[number, embedded],
            dnn_hidden_units=[3],
            dnn_optimizer="RMSProp",
            **given,
        ),
        NUMBERS[:, 0],
    ),
}


def input_fn(labels, repeat=False):
    data = tf.data.Dataset.from_tensor_slices((X, labels))
    return (data.repeat() if repeat else data).batch(20)


def as_json(value):
    return value.decode() if isinstance(value, bytes) else np.asarray(value).tolist()


config = tf.estimator.RunConfig(save_summary_steps=1, save_checkpoints_steps=6)
for name, (make, labels) in ESTIMATORS.items():
    estimator = make(model_dir=name, config=config)
    estimator.train(lambda labels=labels: input_fn(labels, repeat=True), steps=12)
    results = estimator.evaluate(lambda labels=labels: input_fn(labels))
    print(json.dumps([name, {key: float(value) for key, value in sorted(results.items())}]))
    first = next(iter(estimator.predict(lambda labels=labels: input_fn(labels))))
    print(json.dumps({key: first[key] for key in sorted(first)}, default=as_json))
