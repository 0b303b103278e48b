#!/usr/bin/env python
"""A custom data set: print its flow, measure its speed, map it in threads, and train on it."""

import numpy as np
import tensorflow as tf
from tensorpack import *  # noqa: F403
from tensorpack.dataflow import *  # noqa: F403
from tensorpack.utils.utils import fix_rng_seed

# ruff: noqa: F405

fix_rng_seed(7)


class Shapes(RNGDataFlow):
    """Circles and squares, drawn on demand."""

    def __init__(self, size, number=64, shuffle=True):
        self.size, self.number, self.shuffle = size, number, shuffle

    def __len__(self):
        return self.number

    def __iter__(self):
        indices = list(range(self.number))
        if self.shuffle:
            self.rng.shuffle(indices)
        grid = np.arange(self.size)
        for index in indices:
            label = index % 2
            radius = self.rng.randint(2, self.size // 2)
            distances = np.abs(grid - self.size / 2)
            if label:
                image = np.maximum(distances[:, None], distances[None]) < radius
            else:
                image = distances[:, None] ** 2 + distances[None] ** 2 < radius**2
            yield [image.astype("uint8") * 255, label]


def to_float(point):
    image, label = point
    return [(image / 255.0).astype("float32"), label]


def only_large(point):
    return point if point[0].sum() > 8 else None


def get_data(number, batch):
    ds = Shapes(12, number)
    ds = MultiThreadMapData(ds, num_thread=2, map_func=to_float, buffer_size=8, strict=True)
    ds = MapData(ds, only_large)
    return BatchData(ds, batch)


class Model(ModelDesc):
    def inputs(self):
        return [tf.placeholder(tf.float32, [None, 12, 12], "image"), tf.placeholder(tf.int32, [None], "label")]

    def build_graph(self, image, label):
        x = tf.layers.flatten(image)
        x = tf.layers.dense(x, 16, activation=tf.nn.relu, name="hidden")
        logits = tf.layers.dense(x, 2, name="logits")
        cost = tf.losses.sparse_softmax_cross_entropy(label, logits)
        cost = tf.identity(cost, name="cost")
        summary.add_moving_summary(cost)
        return cost

    def optimizer(self):
        return tf.train.RMSPropOptimizer(0.005)


if __name__ == "__main__":
    logger.auto_set_dir("d")
    df = PrintData(get_data(40, 8), num=2, name="shapes")
    df.reset_state()
    batches = list(df)
    assert [each.shape for each in batches[0]] == [(8, 12, 12), (8,)], batches[0]
    assert batches[0][1].dtype == np.int32
    TestDataSpeed(get_data(40, 8), size=20, warmup=2).start()
    joined = JoinData([SelectComponent(Shapes(8, 6, shuffle=False), [1]), CacheData(Shapes(8, 6, shuffle=False))])
    joined = ConcatData([RepeatedDataPoint(joined, 2), FixedSizeData(Shapes(8, 6, shuffle=False), 4)])
    joined.reset_state()
    labels = [point[0 if len(point) == 3 else 1] for point in joined]
    assert labels == [0, 0, 1, 1] * 3 + [0, 1] * 2, labels
    train = LocallyShuffleData(get_data(64, 8), 4)
    launch_train_with_config(
        TrainConfig(model=Model(), data=QueueInput(train), callbacks=[ModelSaver()], steps_per_epoch=10, max_epoch=2),
        SimpleTrainer(),
    )
