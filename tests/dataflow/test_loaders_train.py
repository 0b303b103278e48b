"""Loaders of other libraries in a training, each the real one."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tpk  # noqa: E402 - what is above may skip
from tpk.dataflow import BatchData, DataFromGenerator, MapData  # noqa: E402

ROWS, BATCH = 32, 8
FEATURES = np.random.default_rng(0).standard_normal((ROWS, 3)).astype(np.float32)
TARGETS = FEATURES @ np.array([1.0, -2.0, 0.5], np.float32)


def torch_loader():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(FEATURES), torch.from_numpy(TARGETS))
    return torch.utils.data.DataLoader(dataset, batch_size=BATCH)


def torch_datapoints():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(FEATURES), torch.from_numpy(TARGETS))
    return BatchData(torch.utils.data.DataLoader(dataset, batch_size=None), BATCH)


def grain_dataset():
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(list(zip(FEATURES, TARGETS, strict=True)))
    return dataset.batch(BATCH).to_iter_dataset()


def hugging_face_dataset():
    datasets = pytest.importorskip("datasets")
    columns = {"features": FEATURES.tolist(), "target": TARGETS.tolist()}
    return datasets.Dataset.from_dict(columns).with_format("numpy").batch(BATCH)


def hugging_face_stream():
    datasets = pytest.importorskip("datasets")
    columns = {"features": FEATURES.tolist(), "target": TARGETS.tolist()}
    stream = datasets.Dataset.from_dict(columns).to_iterable_dataset()
    return BatchData(MapData(stream, lambda row: {key: np.float32(value) for key, value in row.items()}), BATCH)


def tf_dataset():
    return tf.data.Dataset.from_tensor_slices((FEATURES, TARGETS)).batch(BATCH)


def generator():
    def batches():
        for begin in range(0, ROWS, BATCH):
            yield FEATURES[begin : begin + BATCH], TARGETS[begin : begin + BATCH]

    return DataFromGenerator(batches)


def numpy_batches():
    return list(generator())


class Losses(tpk.Callback):
    def __init__(self):
        self.values = []

    def before_train(self, trainer):
        self.tensor = trainer.graph.get_tensor_by_name("loss:0")

    def before_run(self, run_context):
        return self.tensor

    def after_run(self, run_context, run_values):
        self.values.append(float(run_values.results))


def train(source):
    def cost(features, target):
        weights = tf.compat.v1.get_variable("weights", [3, 1])
        error = tf.matmul(features, weights)[:, 0] - target
        return tf.reduce_mean(error**2, name="loss")

    specs = [tf.TensorSpec([None, 3], tf.float32, "features"), tf.TensorSpec([None], tf.float32, "target")]
    losses = Losses()
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(0)
        trainer = tpk.SimpleTrainer()
        trainer.setup_graph(specs, source, cost, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1))
        trainer.train(callbacks=[losses], steps_per_epoch=ROWS // BATCH, max_epoch=6)
    return losses.values


SOURCES = [tpk.FeedInput, tpk.QueueInput]
MAKERS = [torch_loader, torch_datapoints, grain_dataset, hugging_face_dataset, hugging_face_stream, generator]


# TensorFlow iterates its own datasets where the thread is in eager mode, which that of a queue is, and a trainer not.
@pytest.mark.parametrize(
    ("make", "source"), [*((make, source) for make in MAKERS for source in SOURCES), (tf_dataset, tpk.QueueInput)]
)
def test_a_training_goes_as_with_a_list_of_the_same_batches(make, source):
    losses = train(source(make()))
    assert losses == train(tpk.FeedInput(numpy_batches()))
    assert losses[-1] < 0.1 * losses[0]
