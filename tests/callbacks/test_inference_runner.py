from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks import Inferencer

v1 = tf.compat.v1


class Model(tpk.ModelDesc):
    """Learns nothing: its one weight stays 2, and it is wrong about every x below zero."""

    def inputs(self):
        return [tf.TensorSpec([None], tf.float32, "x")]

    def build_graph(self, x):
        w = v1.get_variable("w", initializer=2.0)
        tf.cast(x < 0, tf.float32, name="incorrect_vector")
        tf.multiply(tf.reduce_mean(x), w, name="average")
        training = tpk.get_current_tower_context().is_training
        tf.constant(1.0 if training else 0.0, name="training")
        return tf.identity(w * 0.0, name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.0)


TEST = [[np.float32([1, 2, -3])], [np.float32([-1])]]


def train(tmp_path, *callbacks, **options):
    options = {"max_epoch": 2, **options}
    run = tpk.TrainConfig(
        model=Model(),
        dataflow=[[np.float32([1.0])]] * 3,
        callbacks=callbacks,
        run_dir=tmp_path / "run",
        **options,
    )
    tpk.launch_train_with_config(run)


class Stats(tpk.Callback):
    def trigger_epoch(self, trainer):
        self.monitors = trainer.monitors


SOURCES = {
    "list": lambda: TEST,
    "feed": lambda: tpk.FeedInput(TEST, infinite=False),
    "queue": lambda: tpk.QueueInput(TEST),
    "dataset": lambda: tpk.TFDatasetInput(TEST),
}


@pytest.mark.parametrize("source", SOURCES)
def test_each_epoch_makes_one_pass_over_the_data_and_reports(tmp_path, source):
    threads = threading.active_count()
    stats = Stats()
    inferencers = [tpk.ScalarStats(["average", "training"]), tpk.ClassificationError()]
    train(tmp_path, tpk.InferenceRunner(SOURCES[source](), inferencers), stats)
    history = stats.monitors.get_history
    # Two batches of different sizes: the mean of means, and the share among all examples.
    assert history("validation_average") == [(3, pytest.approx(-1.0)), (6, pytest.approx(-1.0))]
    assert history("validation_error") == [(3, 0.5), (6, 0.5)]
    assert history("validation_training") == [(3, 0.0), (6, 0.0)]
    assert threading.active_count() == threads


def test_evaluation_does_not_count_as_training(tmp_path):
    class Steps(tpk.Callback):
        def after_train(self, trainer):
            self.steps = trainer.global_step, int(trainer.sess.run(v1.train.get_global_step()))

    steps = Steps()
    train(tmp_path, tpk.InferenceRunner(TEST, tpk.ClassificationError()), steps)
    assert steps.steps == (6, 6)


def test_two_runners_have_towers_of_their_own(tmp_path):
    stats = Stats()
    train(
        tmp_path,
        tpk.InferenceRunner(TEST, tpk.ClassificationError()),
        tpk.InferenceRunner(TEST[1:], tpk.ClassificationError(summary_name="other"), tower_name="Other"),
        stats,
    )
    assert stats.monitors.get_latest("validation_error") == 0.5
    assert stats.monitors.get_latest("other") == 1.0


def test_a_period_of_its_own(tmp_path):
    stats = Stats()
    runner = tpk.InferenceRunner(TEST, tpk.ClassificationError())
    train(tmp_path, tpk.PeriodicTrigger(runner, every_k_epochs=2), stats, max_epoch=5)
    assert [step for step, _ in stats.monitors.get_history("validation_error")] == [6, 12]


def test_an_inferencer_of_ones_own(tmp_path):
    class Largest(Inferencer):
        def get_fetches(self, tower):
            return {"x": tower.get_tensor("x")}

        def before_inference(self):
            self.largest = -np.inf

        def on_fetches(self, results):
            self.largest = max(self.largest, results["x"].max())

        def after_inference(self):
            return {"largest": self.largest}

    stats = Stats()
    train(tmp_path, tpk.InferenceRunner(TEST, Largest()), stats)
    assert stats.monitors.get_latest("largest") == 2.0


@pytest.mark.parametrize("make", [lambda flow: tpk.QueueInput(flow, infinite=False), lambda flow: flow])
def test_data_that_ends_before_its_length_is_an_error_and_no_end_of_the_training(tmp_path, make):
    class Short(list):
        def __len__(self):
            return 3

    with pytest.raises(tpk.InputError, match="says that it has 3 datapoints, but ended after 2"):
        train(tmp_path, tpk.InferenceRunner(make(Short(TEST)), tpk.ClassificationError()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpk.InferenceRunner(TEST, []), "no Inferencer"),
        (lambda: tpk.InferenceRunner(TEST, [tpk.ModelSaver]), "takes Inferencers"),
        (lambda: tpk.InferenceRunner(iter(TEST), tpk.ClassificationError()), "known length"),
        (lambda: tpk.InferenceRunner([], tpk.ClassificationError()), "length 0"),
    ],
)
def test_what_cannot_be_run_is_an_error(make, message):
    with pytest.raises(tpk.ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("inferencer", "error", "message"),
    [
        (tpk.ScalarStats("incorrect_vector"), tpk.ConfigError, "ScalarStats takes scalars"),
        (tpk.ClassificationError("average"), tpk.ConfigError, "one element for each example"),
        (tpk.ScalarStats("accuracy"), tpk.TowerError, "no tensor 'accuracy'"),
    ],
)
def test_a_tensor_of_the_wrong_kind_is_an_error(tmp_path, inferencer, error, message):
    with pytest.raises(error, match=message):
        train(tmp_path, tpk.InferenceRunner(TEST, inferencer))


def test_a_trainer_without_towers_is_an_error():
    class Plain(tpk.Trainer):
        def run_step(self):
            pass

    with pytest.raises(tpk.ConfigError, match="Plain is no TowerTrainer"):
        Plain().train(callbacks=[tpk.InferenceRunner(TEST, tpk.ClassificationError())], steps_per_epoch=1, max_epoch=1)
