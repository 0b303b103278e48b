"""A flow that writes its datapoints into one and the same array: each step sees the datapoint as it was delivered."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import DataFromGenerator, aligned_empty
from tpk.input_source import BatchQueueInput, FeedInput, QueueInput, StagingInput, TFDatasetInput, dataflow_to_dataset

SOURCES = {
    "feed": FeedInput,
    "queue": QueueInput,
    "dataset": TFDatasetInput,
    "staged queue": lambda flow, **options: StagingInput(QueueInput(flow, **options), devices=["/cpu:0"] * 2),
    "staged dataset": lambda flow, **options: StagingInput(TFDatasetInput(flow, **options), devices=["/cpu:0"] * 2),
}
STEPS = 12


def array_of(size, start):
    """Return an array of `size` numbers that starts `start` bytes after a multiple of 64."""
    return aligned_empty((size + 16,), np.float32)[start // 4 :][:size]


def refilling(size, start):
    def datapoints():
        array = array_of(size, start)
        for number in range(4 * STEPS):
            array[:] = number
            yield [array]

    return DataFromGenerator(datapoints)


@pytest.mark.parametrize("towers", [1, 2])
@pytest.mark.parametrize("start", [0, 16])
@pytest.mark.parametrize("size", [1, 100, 100_000])
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_each_step_sees_the_datapoint_as_it_was_delivered(make, size, start, towers, drive):
    with drive(make(refilling(size, start)), [tf.TensorSpec([None], tf.float32, "x")], towers) as training:
        for step in range(STEPS):
            for tower, (x,) in enumerate(training.step()):
                assert set(x.tolist()) == {step * towers + tower}


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_each_row_of_a_batch_is_the_datapoint_as_it_was_delivered(size, drive):
    with drive(BatchQueueInput(refilling(size, 0), 4), [tf.TensorSpec([4, size], tf.float32, "x")]) as training:
        for step in range(STEPS):
            ((x,),) = training.step()
            assert np.array_equal(x, np.repeat(np.arange(4 * step, 4 * step + 4)[:, None], size, axis=1))


@pytest.mark.tf2_only("iterates a tf.data.Dataset in eager mode")
def test_each_element_of_a_dataset_is_the_datapoint_as_it_was_delivered():
    dataset = dataflow_to_dataset(refilling(1000, 0), [tf.TensorSpec([None], tf.float32)]).prefetch(8).batch(4)
    numbers = [row.tolist() for (batch,) in dataset.as_numpy_iterator() for row in batch]
    assert numbers == [[number] * 1000 for number in range(4 * STEPS)]


def test_a_variable_keeps_the_datapoint_that_was_assigned_to_it(drive):
    class Assigns(drive):
        def finish_graph(self):
            self.kept = tf.compat.v1.get_variable("kept", [100], use_resource=True)
            self.fetches = [self.kept.assign(self.towers[0][0], read_value=False)]

    with Assigns(FeedInput(refilling(100, 0)), [tf.TensorSpec([100], tf.float32, "x")]) as training:
        training.sess.run(training.kept.initializer)
        training.step()
        training.hooks.hook.before_run(run_context=None)  # Takes the next datapoint.
        assert set(training.sess.run(training.kept).tolist()) == {0.0}


class Means(tpk.callbacks.Inferencer):
    def get_fetches(self, tower):
        return tower.get_tensor("mean")

    def before_inference(self):
        self.means = []

    def on_fetches(self, results):
        self.means.append(float(results))

    def after_inference(self):
        return {}


def test_an_evaluation_by_several_towers_at_once_sees_each_datapoint_as_it_was_delivered():
    def cost(x):
        return tf.reduce_mean(x, name="mean") * tf.compat.v1.get_variable("weight", [])

    trainer = tpk.SimpleTrainer()
    source = FeedInput([[np.zeros(100, np.float32)]])
    signature = [tf.TensorSpec([100], tf.float32, "x")]
    trainer.setup_graph(signature, source, cost, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1))
    means = Means()
    runner = tpk.DataParallelInferenceRunner(refilling(100, 0), means, devices=3)
    trainer.train(callbacks=[runner], steps_per_epoch=1, max_epoch=1)
    assert means.means == list(range(4 * STEPS))
