"""Two runs with one seed give the same bits."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError

v1 = tf.compat.v1
RNG = np.random.default_rng(0)
DATA = [(row, row.sum(keepdims=True)) for row in RNG.normal(size=(48, 3)).astype(np.float32)]


class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        hidden = tpk.layers.dropout(tpk.layers.dense(x, 16, tf.nn.relu, name="hidden"), 0.5)
        return tf.reduce_mean((tpk.layers.dense(hidden, 1, name="out") - y) ** 2, name="cost")

    def optimizer(self):
        return v1.train.AdamOptimizer(0.01)


class CountsTwice(Model):
    def build_graph(self, x, y):
        count = v1.get_variable("count", initializer=1.0, trainable=False)
        with tf.control_dependencies([count.assign_add(1.0), count.assign(count * 2.0)]):
            return super().build_graph(x, y) * 1.0


class Weights(tpk.Callback):
    def after_train(self, trainer):
        if trainer.loop.failure is None:
            variables = tf.compat.v1.trainable_variables()
            self.values = [value.tobytes() for value in trainer.sess.run(variables)]


def augment(datapoint):
    """Draw from the global generators, as user code does."""
    x, y = datapoint
    return [x + np.float32(0.01 * np.random.normal() + 0.01 * random.random()), y]


class Reading(tpk.dataflow.DataFlow):
    """A user's flow, which keeps the one that it reads as an attribute."""

    def __init__(self, ds):
        self.ds = ds

    def __iter__(self):
        yield from self.ds

    def __len__(self):
        return len(self.ds)


def train(seed, tmp_path, trainer="single", model=None, **options):
    flow = tpk.BatchData(tpk.MapData(Reading(tpk.DataFromList(DATA, shuffle=True)), augment), 8)
    weights = Weights()
    config = tpk.TrainConfig(
        model=model or Model(),
        dataflow=flow,
        callbacks=[weights],
        monitors=[],
        max_epoch=2,
        seed=seed,
        run_dir=tmp_path / str(len(list(tmp_path.iterdir()))),
        **options,
    )
    tpk.launch_train_with_config(config, trainer)
    return weights.values


@pytest.mark.parametrize("trainer", ["single", tpk.use("replicated", devices=2)], ids=["single", "replicated"])
def test_the_seed_fixes_everything(tmp_path, trainer):
    # The kernels of a GPU add gradients of biases in the order in which threads come, unless told otherwise.
    options = {"deterministic": bool(tf.config.list_physical_devices("GPU"))}
    weights = train(3, tmp_path, trainer, **options)
    assert train(3, tmp_path, trainer, **options) == weights
    assert train(4, tmp_path, trainer, **options) != weights


def test_a_deterministic_training_equals_itself(tmp_path):
    assert train(3, tmp_path, deterministic=True) == train(3, tmp_path, deterministic=True)


def test_determinism_is_for_one_training_only(tmp_path):
    train(3, tmp_path, deterministic=True)
    with tf.Graph().as_default(), v1.Session() as sess:
        assert sess.run(tf.random.uniform([])) >= 0  # It would be an error without a seed.


def test_determinism_needs_a_seed(tmp_path):
    with pytest.raises(ConfigError, match=r"deterministic=True.* needs a seed"):
        train(None, tmp_path, deterministic=True)


def test_towers_that_do_not_wait_for_each_other_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"AsyncStrategy cannot be deterministic.*replicated"):
        train(3, tmp_path, tpk.use("async", devices=2), deterministic=True)


def test_updates_in_no_order_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"deterministic training was requested, but .*count"):
        train(3, tmp_path, model=CountsTwice(), deterministic=True)


def test_stateful_random_ops_are_named_before_the_training(tmp_path, caplog):
    class Stateful(Model):
        def build_graph(self, x, y):
            return super().build_graph(x + tf.random.normal([3], name="jitter"), y)

    train(3, tmp_path, model=Stateful())
    assert "1 stateful random ops" in caplog.text
    assert "jitter" in caplog.text


class OfOnesOwn(tpk.Trainer):
    """Has a random initial value, and noise from NumPy in each step."""

    def __init__(self, seed):
        super().__init__()
        with self.graph.as_default():
            v1.set_random_seed(seed)
            self.noise = v1.placeholder(tf.float32, [])
            w = v1.get_variable("w", [3])
            self.train_op = w.assign_add([self.noise] * 3)

    def run_step(self):
        self.hooked_sess.run(self.train_op, {self.noise: np.random.normal()})


def by_hand(seed, **options):
    weights = Weights()
    OfOnesOwn(seed).train(callbacks=[weights], steps_per_epoch=2, max_epoch=1, seed=seed, **options)
    return weights.values


def test_a_trainer_of_ones_own_is_seeded(tmp_path):
    assert by_hand(3) == by_hand(3, deterministic=True, run_dir=tmp_path) != by_hand(4)
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 3


def test_a_script_seeds_python_numpy_and_the_graph():
    def drawn(seed):
        with tf.Graph().as_default() as graph, v1.Session() as sess:
            tpk.set_random_seed(seed)
            assert graph.seed == seed
            stateless = tpk.graph.random.normal([])
            sess.run(v1.global_variables_initializer())
            return [random.random(), np.random.random(), *sess.run([tf.random.normal([]), stateless])]

    # NumPy's seeds have 32 bits.
    for seed in (3, 2**40):
        assert drawn(seed) == drawn(seed)
    assert not set(drawn(3)) & set(drawn(4))


@pytest.mark.parametrize("seed", [-1, 0.5, "3", None, True])
def test_an_invalid_seed_is_an_error(seed):
    with pytest.raises(ConfigError, match=r"set_random_seed\(.*\): expected a whole number, at least 0"):
        tpk.set_random_seed(seed)


def test_data_is_seeded_when_the_training_begins():
    def trained():
        model, weights, trainer = Model(), Weights(), tpk.SimpleTrainer()
        flow = tpk.BatchData(tpk.MapData(tpk.DataFromList(DATA, shuffle=True), augment), 8)
        with trainer.graph.as_default():
            v1.set_random_seed(0)
        trainer.setup_graph(model.get_input_signature(), tpk.QueueInput(flow), model.build_graph, model.get_optimizer)
        trainer.train(callbacks=[weights], steps_per_epoch=6, max_epoch=2, seed=0)
        return weights.values

    assert trained() == trained()


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        (tpk.Trainer, {"deterministic": True}, "deterministic=True needs a seed"),
        (lambda: OfOnesOwn(3), {"seed": 4}, r"seed=4 comes too late .*tpk\.set_random_seed\(4\)"),
    ],
)
def test_a_training_that_would_not_be_reproducible_is_refused(trainer, options, message):
    with pytest.raises(ConfigError, match=message):
        trainer().train(steps_per_epoch=1, max_epoch=1, **options)
