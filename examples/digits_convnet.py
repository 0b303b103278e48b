"""Train a small convolutional network on the handwritten digits of scikit-learn."""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tpk
from tpk import layers
from tpk.dataflow import BatchData, DataFromList


class DigitsModel(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, image, label):
        training = tpk.get_current_tower_context().is_training
        x = layers.conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)
        x = layers.conv2d(x, 64, 3, padding="same", activation=tf.nn.relu)
        x = layers.max_pooling2d(x, 2, 2)
        x = layers.dropout(layers.flatten(x), 0.5, training=training)
        x = layers.dense(x, 128, activation=tf.nn.relu)
        logits = layers.dense(x, 10, name="logits")

        wrong = tf.cast(tf.not_equal(tf.argmax(logits, axis=1), label), tf.float32, name="incorrect_vector")
        error = tf.reduce_mean(wrong, name="train_error")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        cost = tf.reduce_mean(loss, name="cost")
        tpk.add_moving_summary(error)  # The cost is reported anyway.
        return cost

    def optimizer(self):
        rate = tf.compat.v1.get_variable("learning_rate", initializer=1e-3, trainable=False)
        return tf.compat.v1.train.AdamOptimizer(rate)


def load_data():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels.astype(np.int64), test_size=0.2, stratify=labels, random_state=0
    )
    return list(zip(train_x, train_y, strict=True)), list(zip(test_x, test_y, strict=True))


def training_data(batch=32):
    train, _ = load_data()
    return BatchData(DataFromList(train, shuffle=True, seed=0), batch)


def validation_data(batch=360):
    _, test = load_data()
    return BatchData(DataFromList(test, shuffle=False), batch, remainder=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--max-epoch", type=int, default=30, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    parser.add_argument("--load", metavar="CHECKPOINT", help="start with the variables of this checkpoint")
    args = parser.parse_args()

    config = tpk.TrainConfig(
        model=DigitsModel(),
        dataflow=training_data(),
        callbacks=[
            tpk.ModelSaver(max_to_keep=3, asynchronous=True),
            tpk.InferenceRunner(
                validation_data(), [tpk.ScalarStats("cost"), tpk.ClassificationError()], sanity_batches=2
            ),
            tpk.ScheduledHyperParamSetter("learning_rate", [(20, 2e-4)]),
        ],
        session_init=args.load,
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
        seed=0,
    )
    tpk.launch_train_with_config(config, tpk.use(args.strategy, devices=args.devices))


if __name__ == "__main__":
    main()
