"""A model function of a user with each head: a loss, metrics, predictions and signatures."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

random = np.random.RandomState(0)
NUMBER = 60
X = random.normal(size=[NUMBER, 4]).astype(np.float32)
WEIGHT = random.uniform(0.5, 2, NUMBER).astype(np.float32)
COLORS = np.array([b"blue", b"green", b"red"], object)
CLASSES = X[:, :3].argmax(1)

# By name: the head, and its labels.
HEADS = {
    "classes": (tf.estimator.MultiClassHead(3, weight_column="weight"), CLASSES),
    "colors": (tf.estimator.MultiClassHead(3, label_vocabulary=list(COLORS.astype(str))), COLORS[CLASSES]),
    "binary": (
        tf.estimator.BinaryClassHead(weight_column="weight", thresholds=[0.3, 0.7], name="sick"),
        (X.sum(1) > 0).astype(np.float32),
    ),
    "words": (tf.estimator.BinaryClassHead(label_vocabulary=["no", "yes"]), np.array(["no", "yes"])[CLASSES % 2]),
    "regression": (
        tf.estimator.RegressionHead(2, weight_column="weight", inverse_link_fn=tf.exp),
        X[:, :2] ** 2,
    ),
    "poisson": (tf.estimator.PoissonRegressionHead(), np.abs(X[:, 0]).round()),
    "logistic": (tf.estimator.LogisticRegressionHead(), (X[:, 1] > 0).astype(np.float32)),
    "labels": (
        tf.estimator.MultiLabelHead(
            3, weight_column="weight", thresholds=[0.4], classes_for_class_based_metrics=[0, 2]
        ),
        (X[:, :3] > 0).astype(np.int64),
    ),
    "tags": (
        tf.estimator.MultiLabelHead(3, label_vocabulary=list(COLORS.astype(str))),
        lambda: tf.SparseTensor([[row, 0] for row in range(NUMBER)], list(COLORS[CLASSES]), [NUMBER, 2]),
    ),
}


def input_fn(labels, repeat=False):
    labels = labels() if callable(labels) else labels
    data = tf.data.Dataset.from_tensor_slices(({"x": X, "weight": WEIGHT}, labels))
    return (data.repeat() if repeat else data).batch(20)


def model_with(head, is_regularized):
    def model_fn(features, labels, mode):
        hidden = tf.layers.dense(features["x"], 5, tf.nn.relu, name="hidden")
        hidden = tf.layers.batch_normalization(hidden, training=mode == tf.estimator.ModeKeys.TRAIN)
        logits = tf.layers.dense(hidden, head.logits_dimension, name="logits")
        kernel = next(each for each in tf.trainable_variables() if each.op.name == "logits/kernel")
        optimizer = tf.train.AdamOptimizer(0.1)
        return head.create_estimator_spec(
            features,
            mode,
            logits,
            labels,
            train_op_fn=lambda loss: optimizer.minimize(loss, tf.train.get_global_step()),
            update_ops=tf.get_collection(tf.GraphKeys.UPDATE_OPS),
            regularization_losses=[0.01 * tf.reduce_sum(kernel**2)] if is_regularized else None,
        )

    return model_fn


def receiver():
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def as_json(value):
    return value.decode() if isinstance(value, bytes) else np.asarray(value).tolist()


config = tf.estimator.RunConfig(save_summary_steps=1)
for name, (head, labels) in HEADS.items():
    estimator = tf.estimator.Estimator(model_with(head, name in ("classes", "binary")), name, config)
    estimator.train(lambda labels=labels: input_fn(labels, repeat=True), steps=6)
    results = estimator.evaluate(lambda labels=labels: input_fn(labels))
    print(json.dumps([name, {key: float(value) for key, value in sorted(results.items())}]))
    first = next(iter(estimator.predict(lambda labels=labels: input_fn(labels))))
    if name in ("labels", "tags"):
        first.pop("classes", None)  # TensorFlow 1.15 does not have them.
    print(json.dumps({key: first[key] for key in sorted(first)}, default=as_json))
    if name in ("colors", "binary", "regression"):
        estimator.export_saved_model("export_" + name, receiver)
