"""A model of Keras layers, trained by tensorpack's trainer with a Keras-like interface."""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from tensorflow import keras
from tensorpack import QueueInput, SimpleTrainer, SyncMultiGPUTrainerReplicated
from tensorpack.callbacks import InferenceRunner, ModelSaver, ScalarStats
from tensorpack.compat import tfv1 as tf
from tensorpack.contrib.keras import KerasModel
from tensorpack.dataflow import BatchData, DataFromList, MapData
from tensorpack.utils import logger

IMAGE_SIZE = 8


def get_data(first, last):
    def f(dp):
        im = dp[0][:, :, None] / 16.0
        onehot = np.eye(10)[dp[1]]
        return [im.astype("float32"), onehot.astype("float32")]

    digits = load_digits()
    points = list(zip(digits.images[first:last], digits.target[first:last], strict=True))
    return BatchData(MapData(DataFromList(points, shuffle=False), f), 32, remainder=False)


def get_model(image):
    layers = keras.layers
    init = keras.initializers.RandomUniform(-0.2, 0.2, seed=1)
    x = layers.Conv2D(8, 3, activation="relu", padding="same", kernel_initializer=init)(image)
    x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = layers.Dense(32, activation="relu", kernel_initializer=init, kernel_regularizer=keras.regularizers.l2(1e-5))(x)
    x = layers.Dropout(0.25)(x)
    x = layers.Dense(10, kernel_initializer=init)(x)
    x = layers.Activation("softmax")(x)
    return keras.models.Model(inputs=image, outputs=x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--towers", type=int, default=1)
    args = parser.parse_args()
    logger.auto_set_dir("d")
    dataset_train, dataset_test = get_data(0, 640), get_data(640, 800)
    M = KerasModel(
        get_model,
        input_signature=[tf.TensorSpec([None, IMAGE_SIZE, IMAGE_SIZE, 1], tf.float32, "images")],
        target_signature=[tf.TensorSpec([None, 10], tf.float32, "labels")],
        input=QueueInput(dataset_train),
        trainer=SimpleTrainer() if args.towers == 1 else SyncMultiGPUTrainerReplicated(args.towers, mode="cpu"),
    )
    M.compile(optimizer=tf.train.AdamOptimizer(1e-2), loss="categorical_crossentropy", metrics="categorical_accuracy")
    M.fit(
        validation_data=dataset_test,
        steps_per_epoch=len(dataset_train) // args.towers,
        max_epoch=2,
        callbacks=[ModelSaver(), InferenceRunner(dataset_test, ScalarStats("total_loss"), tower_name="again")],
    )
