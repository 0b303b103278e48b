"""What goes on around the steps of collective trainings: resuming, data that ends, evaluation, predictors, Keras."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys

import collective_trainings as trainings
import numpy as np
import pytest
import tensorflow as tf
from tpk_distributed import CollectiveStrategy

import tpk
from tpk.checkpoint import newest_complete

v1 = tf.compat.v1


class Linear(tpk.ModelDesc):
    def __init__(self, rate=0.05):
        self._rate = rate

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        w = v1.get_variable("w", [3, 1])
        b = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
        output = tf.add(x @ w, b, name="output")
        tf.cast(tf.abs(output - y)[:, 0] > 1, tf.float32, name="incorrect_vector")
        cost = tf.reduce_mean((output - y) ** 2, name="cost")
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        return v1.train.AdamOptimizer(self._rate)


class Net(tpk.ModelDesc):
    """A Keras model with variables that a step changes otherwise than by gradients, and with random numbers."""

    def __init__(self):
        import tpk_keras

        self.net = tpk_keras.KerasModel(build_net)

    def inputs(self):
        return Linear().inputs()

    def build_graph(self, x, y):
        return tf.add_n([tf.reduce_mean((self.net(x) - y) ** 2), *self.net.losses], name="cost")

    def optimizer(self):
        return v1.train.AdamOptimizer(0.01)


def build_net():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((3,)),
            layers.Dense(8, use_bias=False, kernel_regularizer="l2"),
            layers.BatchNormalization(momentum=0.5),
            layers.ReLU(),
            layers.Dropout(0.25),
            layers.Dense(1),
        ]
    )


class Variables(tpk.Callback):
    """Keeps the values of the variables before the first step and after the last one."""

    chief_only = False

    def before_train(self, trainer):
        self.before = self._values(trainer)

    def after_train(self, trainer):
        if trainer.loop.failure is None:
            self.after = self._values(trainer)
            self.monitors = trainer.monitors

    @staticmethod
    def _values(trainer):
        return trainer.sess.run({variable.op.name: variable for variable in v1.global_variables()})


class Outputs(tpk.Callback):
    """Asks a predictor at the end of each epoch, each process for something else."""

    chief_only = False

    def setup_graph(self, trainer):
        self._predict = trainer.get_predictor(["x"], ["output"])
        self._x = np.random.default_rng(trainer.strategy.process_group.rank).normal(
            size=(5 + trainer.strategy.process_group.rank, 3)
        )
        self.asked = []

    def trigger_epoch(self, trainer):
        w, b = trainer.sess.run([v1.trainable_variables("w:"), v1.trainable_variables("b:")])
        self.asked.append((self._predict(self._x.astype(np.float32))[0], self._x @ w[0] + b[0]))


def batches(count, last=4):
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(4, 3)).astype(np.float32) for _ in range(count)]
    x[-1] = x[-1][:last]
    return [[each, each @ np.float32([[1], [2], [3]])] for each in x]


def train(strategy, callbacks=(), model=None, data=None, **options):
    """Train, and return what became of the variables."""
    variables = Variables()
    config = tpk.TrainConfig(
        model=model or Linear(),
        data=tpk.QueueInput(batches(20)) if data is None else data,
        callbacks=[*callbacks, variables],
        **{"steps_per_epoch": 5, "max_epoch": 1, "run_dir": "run", "seed": 3, **options},
    )
    tpk.launch_train_with_config(config, tpk.SingleCostTrainer(strategy))
    return variables


def assert_same_bits(values, expected):
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert values[name].tobytes() == value.tobytes(), name


def go_on(run_dir, strategy, max_epoch):
    variables = train(strategy, ["ModelSaver"], run_dir=run_dir, max_epoch=max_epoch, resume="auto")
    return variables.before, variables.after


def test_two_processes_then_one_then_two_go_on(launch, tmp_path):
    def by_two(max_epoch):
        return launch(lambda: go_on(run_dir, "collective", max_epoch)).returned()

    def assert_files(starts, epochs):
        assert len(list(tmp_path.rglob("events.*"))) == starts
        (stats,) = tmp_path.rglob("stats.jsonl")
        assert stats.parent == run_dir
        assert len(stats.read_text().splitlines()) == epochs
        progress = newest_complete(run_dir).state["progress"]
        assert (progress["epoch_num"], progress["global_step"]) == (epochs, 5 * epochs)

    run_dir = tmp_path / "run"
    (_, first), (_, also_first) = by_two(2)
    assert_same_bits(also_first, first)
    assert_files(1, 2)
    begun, second = go_on(run_dir, "single", 3)
    assert_same_bits(begun, first)
    assert_files(2, 3)
    for begun, third in by_two(5):
        assert_same_bits(begun, second)
        assert not np.array_equal(third["w"], second["w"])
    assert_files(3, 5)


@pytest.mark.parametrize("short", [0, 1])
def test_data_of_different_length_ends_all_processes_by_an_error_that_says_so(launch, short):
    def run():
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        strategy = CollectiveStrategy(shard_data=False, timeouts={"late_warning": 2})
        data = tpk.FeedInput(batches(7 if strategy.rank == short else 50), infinite=False)
        train(strategy, data=data, steps_per_epoch=100)

    outcomes = launch(run).wait()
    for outcome in outcomes:
        assert outcome.status == 1, outcome.stderr[-3000:]
    assert "FeedInput: the dataflow ended after 7 datapoints" in outcomes[short].stderr
    (last,) = [line for line in outcomes[1 - short].stderr.splitlines() if line.startswith("tpk.errors.PeerError")][-1:]
    assert f"rank {short}" in last
    # Either one may be the first to see that they wait for each other.
    assert "has ended its training, after 7 steps" in last or "is at another point of the program" in last


def evaluation():
    return tpk.InferenceRunner(batches(7, last=3), [tpk.ScalarStats("cost"), tpk.ClassificationError()])


def statistics(variables):
    return [variables.monitors.get_latest(name) for name in ("validation_cost", "validation_error")]


def test_the_statistics_of_all_processes_are_those_of_the_whole_set(launch, tmp_path):
    def run():
        saver = tpk.ModelSaver()
        return statistics(train("collective", [saver, evaluation()], run_dir=tmp_path / "run"))

    first, second = launch(run).returned()
    # Steps that change nothing.
    checkpoint = newest_complete(tmp_path / "run").prefix
    alone = train("single", [evaluation()], Linear(rate=0.0), session_init=checkpoint, run_dir=tmp_path / "alone")
    np.testing.assert_allclose(first, statistics(alone), rtol=1e-5)
    assert 0 < first[1] < 1
    assert second == first


def test_a_predictor_has_the_current_weights_in_each_process(launch):
    def run():
        outputs = Outputs()
        train("collective", [outputs], max_epoch=3)
        return outputs.asked

    first, second = launch(run).returned()
    for asked, count in ((first, 5), (second, 6)):
        assert [len(output) for output, _ in asked] == [count] * 3
        for output, expected in asked:
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
        assert not np.allclose(asked[0][0], asked[-1][0], atol=1e-3)


def test_a_keras_model_is_the_same_in_all_processes(launch):
    pytest.importorskip("tpk_keras")

    def run():
        variables = train("collective", model=Net(), max_epoch=2)
        return variables.before, variables.after

    (before, after), (also_before, also_after) = launch(run).returned()
    assert_same_bits(also_before, before)
    assert_same_bits(also_after, after)
    assert {"model/batch_normalization/moving_mean", "model/dense/kernel"} <= set(after)
    for name in after.keys() - {"tpk_further_runs"}:
        assert not np.array_equal(before[name], after[name]), name


def train_in_a_session_of_its_own():
    class Own(tpk.NewSessionCreator):
        pass

    trainings.train(trainings.batches(4), 2, strategy=tpk.use("collective"), session_creator=Own())


def test_a_session_elsewhere_than_on_the_server_is_refused(launch):
    for outcome in launch(train_in_a_session_of_its_own).wait():
        assert outcome.status == 1
        assert "ConfigError: strategy 'collective' needs a session on the server of this process" in outcome.stderr
        assert "session_config=<ConfigProto>" in outcome.stderr


def train_with_options_of_its_own():
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = tpk.use("collective", compression="fp16" if rank == 1 else None)
    trainings.train(trainings.batches(4), 2, strategy=strategy)


def test_gradients_that_travel_in_different_ways_are_an_error_before_the_first_step(launch):
    for outcome in launch(train_with_options_of_its_own).wait():
        assert outcome.status == 1
        assert "MismatchError: the processes of this training differ. In rank 1: compression is fp16" in outcome.stderr


def test_only_the_chief_says_what_a_signal_has_saved(launch, tmp_path):
    def run():
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        options = {"run_dir": tmp_path / "run", "steps_per_epoch": 10**6}
        train("collective", [trainings.Steps()], **options)

    running = launch(run)
    running.workers[1].wait_for("step 3")
    running.workers[1].send(signal.SIGTERM)
    chief, other = running.wait()
    assert (chief.status, other.status) == (128 + signal.SIGTERM,) * 2
    assert "; saved " in chief.stderr
    assert "the log of rank 0" in other.stderr and "nothing is saved" not in other.stderr
