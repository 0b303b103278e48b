"""In the shape of the official MNIST model: a class of layers, and an accuracy that training logs."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

LEARNING_RATE = 1e-3


class Model:
    def __init__(self):
        pool = tf.layers.MaxPooling2D((2, 2), (2, 2), padding="same")
        self._layers = [
            tf.layers.Conv2D(4, 5, padding="same", activation=tf.nn.relu),
            pool,
            tf.layers.Conv2D(8, 5, padding="same", activation=tf.nn.relu),
            pool,
            tf.layers.Flatten(),
            tf.layers.Dense(16, activation=tf.nn.relu),
            tf.layers.Dense(10),
        ]

    def __call__(self, image):
        y = tf.reshape(image, [-1, 8, 8, 1])
        for layer in self._layers:
            y = layer(y)
        return y


def dataset(number, seed):
    random = np.random.RandomState(seed)
    images = random.rand(number, 64).astype(np.float32)
    labels = (images[:, :32].sum(1) > images[:, 32:].sum(1)).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((images, labels))


def model_fn(features, labels, mode, params):
    model = Model()
    image = features["image"] if isinstance(features, dict) else features
    logits = model(image)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
        return tf.estimator.EstimatorSpec(
            mode=tf.estimator.ModeKeys.PREDICT,
            predictions=predictions,
            export_outputs={"classify": tf.estimator.export.PredictOutput(predictions)},
        )
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.metrics.accuracy(labels=labels, predictions=tf.argmax(logits, axis=1))
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = tf.train.AdamOptimizer(learning_rate=LEARNING_RATE)
        tf.identity(LEARNING_RATE, "learning_rate")
        tf.identity(loss, "cross_entropy")
        tf.identity(accuracy[1], name="train_accuracy")
        tf.summary.scalar("train_accuracy", accuracy[1])
        return tf.estimator.EstimatorSpec(
            mode=mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_or_create_global_step())
        )
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, eval_metric_ops={"accuracy": accuracy})


session_config = tf.ConfigProto(
    inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, allow_soft_placement=True
)
config = tf.estimator.RunConfig(session_config=session_config, save_summary_steps=1)
classifier = tf.estimator.Estimator(model_fn, "model", config, params={"data_format": "channels_last"})
tensors = ["learning_rate", "cross_entropy", "train_accuracy"]
for _ in range(2):
    hooks = [tf.train.LoggingTensorHook(tensors=tensors, every_n_iter=5)]
    classifier.train(input_fn=lambda: dataset(64, 1).repeat(2).batch(10), hooks=hooks)
    results = classifier.evaluate(input_fn=lambda: dataset(30, 2).batch(10))
    print(json.dumps({name: float(value) for name, value in sorted(results.items())}))
image = tf.placeholder(tf.float32, [None, 8, 8])
input_fn = tf.estimator.export.build_raw_serving_input_receiver_fn({"image": image})
classifier.export_saved_model("export", input_fn)
