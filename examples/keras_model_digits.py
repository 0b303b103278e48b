"""Train a Keras model on the handwritten digits of scikit-learn, and use it in plain Keras afterwards.

In a checkout: pip install ".[examples]" ./plugins/tpk-keras
"""

import argparse

import numpy as np
import tensorflow as tf
import tpk_keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tpk
from tpk.dataflow import BatchData, DataFromList

keras = tf.keras


def build_net():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", use_bias=False, kernel_regularizer=keras.regularizers.L2(1e-4)),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


class KerasDigits(tpk.ModelDesc):
    def __init__(self):
        self.net = tpk_keras.KerasModel(build_net)

    def inputs(self):
        return [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, image, label):
        logits = tf.identity(self.net(image), name="logits")
        wrong = tf.cast(tf.not_equal(tf.argmax(logits, axis=1), label), tf.float32, name="incorrect_vector")
        error = tf.reduce_mean(wrong, name="train_error")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        cost = tf.add_n([tf.reduce_mean(loss), *self.net.losses], name="cost")
        tpk.add_moving_summary(error)  # The cost is reported anyway.
        return cost

    def optimizer(self):
        rate = tf.compat.v1.get_variable("learning_rate", initializer=1e-3, trainable=False)
        return tf.compat.v1.train.AdamOptimizer(rate)


def load_data():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    return train_test_split(images, labels.astype(np.int64), test_size=0.2, stratify=labels, random_state=0)


def error_of_plain_keras(path, images, labels):
    """Load the model as a program without tpk would, and return the fraction of images that it gets wrong."""
    predictions = keras.models.load_model(path).predict(images, verbose=0)
    return float(np.mean(np.argmax(predictions, axis=1) != labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--max-epoch", type=int, default=30, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    args = parser.parse_args()

    train_x, test_x, train_y, test_y = load_data()
    train = DataFromList(list(zip(train_x, train_y, strict=True)), shuffle=True, seed=0)
    test = DataFromList(list(zip(test_x, test_y, strict=True)), shuffle=False)
    model = KerasDigits()
    saver = tpk_keras.KerasSaver(model.net, "digits.keras")
    config = tpk.TrainConfig(
        model=model,
        dataflow=BatchData(train, 32),
        callbacks=[
            tpk.ModelSaver(max_to_keep=3),
            tpk.InferenceRunner(
                BatchData(test, 360, remainder=True), [tpk.ScalarStats("cost"), tpk.ClassificationError()]
            ),
            saver,
        ],
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
        seed=0,
    )
    tpk.launch_train_with_config(config, tpk.use(args.strategy, devices=args.devices))

    if saver.written is not None:  # Only one of several processes writes it.
        ours = saver.trainer.monitors.get_latest("validation_error")
        theirs = error_of_plain_keras(saver.written, test_x, test_y)
        print(f"validation error of {saver.written}: {ours:.4f} in the training, {theirs:.4f} in plain Keras")


if __name__ == "__main__":
    main()
