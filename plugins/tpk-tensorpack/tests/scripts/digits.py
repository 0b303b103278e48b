"""Classify digits with a small convolutional network, `LinearWrap` and `argscope`."""

# ruff: noqa: F403, F405

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits
from tensorpack import *
from tensorpack.dataflow import BatchData, DataFromList
from tensorpack.tfutils.summary import add_moving_summary, add_param_summary


class Model(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((None, 8, 8), tf.float32, "input"), tf.TensorSpec((None,), tf.int32, "label")]

    def build_graph(self, image, label):
        image = tf.expand_dims(image, 3) / 16.0
        with argscope(Conv2D, kernel_size=3, activation=tf.nn.relu, filters=16):
            logits = (
                LinearWrap(image)
                .Conv2D("conv0")
                .MaxPooling("pool0", 2)
                .Conv2D("conv1")
                .FullyConnected("fc0", 64, activation=tf.nn.relu)
                .FullyConnected("fc1", units=10, activation=tf.identity)()
            )
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        cost = tf.reduce_mean(cost, name="cross_entropy_loss")
        correct = tf.cast(tf.nn.in_top_k(predictions=logits, targets=label, k=1), tf.float32, name="correct")
        accuracy = tf.reduce_mean(correct, name="accuracy")
        train_error = tf.reduce_mean(1 - correct, name="train_error")
        add_moving_summary(train_error, accuracy)
        wd_cost = tf.multiply(1e-5, regularize_cost("fc.*/W", tf.nn.l2_loss), name="regularize_loss")
        total_cost = tf.add_n([wd_cost, cost], name="total_cost")
        add_moving_summary(cost, wd_cost, total_cost)
        add_param_summary((".*/W", ["histogram", "rms"]))
        return total_cost

    def optimizer(self):
        lr = tf.compat.v1.train.exponential_decay(
            learning_rate=1e-3,
            global_step=get_global_step_var(),
            decay_steps=15,
            decay_rate=0.3,
            staircase=True,
            name="learning_rate",
        )
        tf.compat.v1.summary.scalar("lr", lr)
        return tf.compat.v1.train.AdamOptimizer(lr)


def get_data():
    digits = load_digits()
    points = [[image.astype("float32"), int(label)] for image, label in zip(digits.images, digits.target)]  # noqa: B905
    train = BatchData(DataFromList(points[:640], shuffle=False), 32)
    test = BatchData(DataFromList(points[640:900], shuffle=False), 64, remainder=True)
    return train, test


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", help="load a checkpoint, or a model in .npz")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    logger.auto_set_dir("d")
    dataset_train, dataset_test = get_data()
    config = TrainConfig(
        model=Model(),
        data=QueueInput(dataset_train),
        callbacks=[
            InferenceRunner(dataset_test, ScalarStats(["cross_entropy_loss", "accuracy"])),
            ModelSaver(),
            MaxSaver("validation_accuracy"),
        ],
        steps_per_epoch=len(dataset_train),
        max_epoch=args.epochs,
    )
    if args.load:
        config.session_init = SmartInit(args.load)
    launch_train_with_config(config, SimpleTrainer())
