"""Inference on several devices during training on several devices, with a custom inferencer."""

import numpy as np
from sklearn.datasets import load_digits
from tensorpack import (
    BatchData,
    BinaryClassificationStats,
    ClassificationError,
    DataParallelInferenceRunner,
    FullyConnected,
    ModelDesc,
    ModelSaver,
    QueueInput,
    ScalarStats,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    launch_train_with_config,
    logger,
)
from tensorpack.callbacks import Inferencer, InferenceRunner
from tensorpack.compat import tfv1 as tf
from tensorpack.dataflow import DataFromList
from tensorpack.models import Dropout
from tensorpack.tfutils.summary import add_moving_summary


class Model(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((None, 64), tf.float32, "x"), tf.TensorSpec((None,), tf.int32, "label")]

    def build_graph(self, x, label):
        init = tf.constant_initializer(np.random.RandomState(1).uniform(-0.1, 0.1, size=(64, 10)))
        x = Dropout("drop", x / 16.0, keep_prob=1.0)
        logits = FullyConnected("fc", x, 10, kernel_initializer=init)
        is_even = tf.cast(tf.equal(tf.argmax(logits, 1) % 2, 0), tf.int32, name="says_even")
        tf.identity(tf.cast(tf.equal(label % 2, 0), tf.int32), name="even")
        cost = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label), name="cost")
        wrong = tf.cast(tf.logical_not(tf.nn.in_top_k(logits, label, 1)), tf.float32, name="wrong-top1")
        wrong5 = tf.cast(tf.logical_not(tf.nn.in_top_k(logits, label, 5)), tf.float32, name="wrong-top5")
        add_moving_summary(cost, tf.reduce_mean(wrong, name="error"), tf.reduce_mean(wrong5, name="error5"))
        tf.argmax(logits, 1, name="prediction")
        assert is_even.shape.ndims == 1
        return cost

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(0.2)


class Confusions(Inferencer):
    """Count how often one digit is mistaken for another."""

    def _get_fetches(self):
        return ["label", "prediction"]

    def _before_inference(self):
        self.matrix = np.zeros((10, 10), dtype="int32")

    def _on_fetches(self, results):
        labels, predictions = results
        for label, prediction in zip(labels, predictions, strict=True):
            self.matrix[label, prediction] += 1

    def _after_inference(self):
        return {"recall_of_zero": self.matrix[0, 0] / self.matrix[0].sum(), "points": self.matrix.sum()}


def get_data(first, last, remainder):
    digits = load_digits()
    points = [[x.astype("float32"), int(t)] for x, t in zip(digits.data, digits.target, strict=True)]
    return BatchData(DataFromList(points[first:last], shuffle=False), 20, remainder=remainder)


if __name__ == "__main__":
    logger.auto_set_dir("d")
    infs = [
        ScalarStats(["cost"], prefix="val"),
        ClassificationError("wrong-top1", "val-error-top1"),
        ClassificationError("wrong-top5", "val-error-top5"),
    ]
    config = TrainConfig(
        model=Model(),
        data=QueueInput(get_data(0, 400, False)),
        callbacks=[
            ModelSaver(),
            DataParallelInferenceRunner(get_data(400, 510, True), infs, [0, 1]),
            InferenceRunner(
                QueueInput(get_data(400, 480, True)),
                [Confusions(), BinaryClassificationStats("says_even", "even", prefix="even")],
                tower_name="confusions",
            ),
        ],
        steps_per_epoch=10,
        max_epoch=2,
    )
    launch_train_with_config(config, SyncMultiGPUTrainerReplicated(2, mode="cpu"))
