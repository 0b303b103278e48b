"""The truth of synchronized batch normalization in several processes: all towers of all equal one on all their data."""

from __future__ import annotations

import collective_trainings as trainings
import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.tower.context import get_current_tower_context

pytestmark = pytest.mark.once

v1 = tf.compat.v1

STEPS = 12


class Model(tpk.ModelDesc):
    """Two normalized layers; the second has the gradients of the first flow through it."""

    def __init__(self, sync=True, optimizer="sgd", dtype=tf.float64):
        self._sync, self._optimizer, self._dtype = sync, optimizer, dtype

    def inputs(self):
        return [tf.TensorSpec([None, 5], self._dtype, "x"), tf.TensorSpec([None, 2], self._dtype, "y")]

    def build_graph(self, x, y):
        for index, units in enumerate((6, 2)):
            initializer = v1.glorot_uniform_initializer(seed=index)
            x = tpk.layers.dense(x, units, use_bias=False, kernel_initializer=initializer)
            training = get_current_tower_context().is_training
            x = tf.tanh(tpk.layers.batch_normalization(x, training=training, sync=self._sync, momentum=0.8))
        return tf.reduce_mean((x - y) ** 2, name="cost")

    def optimizer(self):
        return trainings.OPTIMIZERS[self._optimizer]()


def batches(count, dtype=np.float64):
    # Far from zero, and each of another scale: statistics of one batch are not those of another.
    rng = np.random.default_rng(3)
    return [
        [rng.normal(3.0, 1 + index % 4, size=(4, 5)).astype(dtype), rng.normal(size=(4, 2)).astype(dtype)]
        for index in range(count)
    ]


def concatenated(data, count):
    return [
        [np.concatenate(component) for component in zip(*data[start : start + count], strict=True)]
        for start in range(0, len(data), count)
    ]


def train(strategy, data, **options):
    values = trainings.Values()
    model = Model(**options)
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    trainer.train(callbacks=["RunUpdateOps", values], steps_per_epoch=STEPS, max_epoch=1)
    return values.values


def train_together(devices, options):
    return train(tpk.use("collective", devices=devices), batches(STEPS * 2 * devices), **options)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_towers_of_processes_equal_those_of_one_and_one_tower_on_the_concatenation(launch, devices, optimizer):
    first, second = launch(train_together, args=(devices, {"optimizer": optimizer})).returned()
    data = batches(STEPS * 2 * devices)
    as_towers = train(tpk.use("replicated", devices=2 * devices), data, optimizer=optimizer)
    as_one = train("single", concatenated(data, 2 * devices), optimizer=optimizer)
    assert "batch_normalization_1/moving_variance:0" in as_one
    for name, value in as_one.items():
        # All replicates are the same bits, with what is not trained.
        assert first[name].tobytes() == second[name].tobytes(), name
        # Sums of float64 in another order.
        np.testing.assert_allclose(first[name], value, rtol=1e-9, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(first[name], as_towers[name], rtol=1e-9, atol=1e-9, err_msg=name)


def test_what_travels_compressed_are_gradients_not_statistics(launch):
    def run():
        data = batches(STEPS * 2, np.float32)
        strategy = tpk.use("collective", compression="fp16")
        return train(strategy, [[1e5 * x, y] for x, y in data], dtype=tf.float32, optimizer="slow_sgd")

    # In half precision, sums of what is larger than 65504 would be infinite.
    first, _ = launch(run).returned()
    assert np.isfinite(first["batch_normalization/moving_mean:0"]).all()
    assert np.abs(first["batch_normalization/moving_mean:0"]).max() > 65504


def test_without_synchronization_each_process_has_its_own_statistics(launch):
    first, _ = launch(train_together, args=(1, {"sync": False})).returned()
    as_one = train("single", concatenated(batches(STEPS * 2), 2), sync=False)
    assert np.max(np.abs(first["dense/kernel:0"] - as_one["dense/kernel:0"])) > 0.01
