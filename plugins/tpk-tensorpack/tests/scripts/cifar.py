#!/usr/bin/env python
"""An augmented CIFAR-10 classifier with data from two processes; `--make-data` writes a small CIFAR-10."""

# ruff: noqa: UP031

import argparse
import os
import pickle
import struct

import numpy as np
import tensorflow as tf
from tensorpack import (
    BatchData,
    BNReLU,
    ClassificationError,
    Conv2D,
    FullyConnected,
    GlobalAvgPooling,
    InferenceRunner,
    ModelDesc,
    ModelSaver,
    QueueInput,
    ScalarStats,
    ScheduledHyperParamSetter,
    SimpleTrainer,
    TrainConfig,
    launch_train_with_config,
    logger,
    regularize_cost,
)
from tensorpack.dataflow import AugmentImageComponent, MultiProcessRunnerZMQ, dataset, imgaug
from tensorpack.tfutils.argscope import argscope
from tensorpack.tfutils.summary import add_moving_summary, add_param_summary


class Python2Pickler(pickle._Pickler):
    """Write CIFAR-10 as pickled by Python 2, whose strings are bytes with a different opcode."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        self.write(b"T" + struct.pack("<i", len(value)) + value)

    dispatch[bytes] = save_string


def make_data(directory, number):
    directory = os.path.join(directory, "cifar-10-batches-py")
    os.makedirs(directory)
    rng = np.random.RandomState(0)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    contents = {"batches.meta": {b"num_cases_per_batch": number, b"label_names": [n.encode() for n in names]}}
    for name in ["data_batch_%d" % n for n in range(1, 6)] + ["test_batch"]:
        labels = [int(each) for each in rng.randint(10, size=number)]
        images = rng.randint(60, size=(1, 3, 32, 32)) + 15 * np.array(labels)[:, None, None, None]
        contents[name] = {
            b"batch_label": name.encode(),
            b"labels": labels,
            b"data": images.astype("uint8").reshape(number, 3072),
            b"filenames": [b"image_%d.png" % n for n in range(number)],
        }
    for name, content in contents.items():
        with open(os.path.join(directory, name), "wb") as file:
            Python2Pickler(file, protocol=2).dump(content)


class Model(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 16, 16, 3], tf.float32, "input"), tf.TensorSpec([None], tf.int32, "label")]

    def build_graph(self, image, label):
        with argscope(Conv2D, activation=BNReLU, use_bias=False, kernel_size=3):
            x = Conv2D("conv1", image / 64.0, filters=8, strides=2)
            x = Conv2D("conv2", x, filters=16, strides=2)
        x = GlobalAvgPooling("gap", x)
        logits = FullyConnected("linear", x, 10, kernel_initializer=tf.random_normal_initializer(stddev=0.01))
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        cost = tf.reduce_mean(cost, name="cross_entropy_loss")
        wrong = tf.cast(tf.logical_not(tf.nn.in_top_k(logits, label, 1)), tf.float32, name="wrong_vector")
        add_moving_summary(tf.reduce_mean(wrong, name="train_error"), cost)
        add_param_summary((".*/W", ["histogram"]))
        return tf.add_n([cost, regularize_cost("linear/W", tf.nn.l2_loss) * 4e-4], name="cost")

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.05, trainable=False)
        tf.summary.scalar("lr", lr)
        return tf.train.MomentumOptimizer(lr, 0.9)


def get_data(directory, train_or_test, processes):
    isTrain = train_or_test == "train"
    ds = dataset.Cifar10(train_or_test, dir=directory)
    pp_mean = ds.get_per_pixel_mean()
    if isTrain:
        augmentors = [
            imgaug.CenterPaste((40, 40)),
            imgaug.RandomCrop((32, 32)),
            imgaug.Flip(horiz=True),
            imgaug.RandomApplyAug(imgaug.Brightness(20), 0.5),
            imgaug.MapImage(lambda x: x - pp_mean),
            imgaug.Resize((16, 16)),
        ]
    else:
        augmentors = [imgaug.MapImage(lambda x: x - pp_mean), imgaug.Resize(16)]
    ds = AugmentImageComponent(ds, augmentors)
    ds = BatchData(ds, 20, remainder=not isTrain)
    if isTrain:
        ds = MultiProcessRunnerZMQ(ds, processes)
    return ds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="cifar10_data")
    parser.add_argument(
        "--make-data",
        type=int,
        nargs="?",
        const=40,
        help="write so many images per file; the published ones have 10000",
    )
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    if args.make_data:
        make_data(args.data, args.make_data)
    logger.auto_set_dir("d")
    config = TrainConfig(
        model=Model(),
        data=QueueInput(get_data(args.data, "train", args.processes)),
        callbacks=[
            ModelSaver(),
            InferenceRunner(
                get_data(args.data, "test", 0), [ScalarStats("cross_entropy_loss"), ClassificationError("wrong_vector")]
            ),
            ScheduledHyperParamSetter("learning_rate", [(1, 0.05), (2, 0.01)]),
        ],
        steps_per_epoch=10,
        max_epoch=2,
    )
    launch_train_with_config(config, SimpleTrainer())
