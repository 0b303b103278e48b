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
    threads = set(threading.enumerate())
    stats = Stats()
    inferencers = [tpk.ScalarStats(["average", "training"]), tpk.ClassificationError()]
    train(tmp_path, tpk.InferenceRunner(SOURCES[source](), inferencers), stats)
    history = stats.monitors.get_history
    # Over two batches of different sizes, all examples count the same.
    assert history("validation_average") == [(3, -0.5), (6, -0.5)]
    assert history("validation_error") == [(3, 0.5), (6, 0.5)]
    assert history("validation_training") == [(3, 0.0), (6, 0.0)]
    # One of an earlier test may have ended since.
    assert set(threading.enumerate()) <= threads


def test_evaluation_does_not_count_as_training(tmp_path):
    class Steps(tpk.Callback):
        def after_train(self, trainer):
            self.steps = trainer.global_step, int(trainer.sess.run(v1.train.get_global_step()))

    steps = Steps()
    train(tmp_path, tpk.InferenceRunner(TEST, tpk.ClassificationError()), steps)
    assert steps.steps == (6, 6)


class Towers(tpk.Callback):
    def before_train(self, trainer):
        self.names = [tower.ns_name for tower in trainer.towers.inference()]


def test_several_runners_have_towers_of_their_own(tmp_path):
    stats, towers = Stats(), Towers()
    train(
        tmp_path,
        tpk.InferenceRunner(TEST, tpk.ClassificationError()),
        tpk.PeriodicTrigger(
            tpk.InferenceRunner(TEST[1:], tpk.ClassificationError(summary_name="second")), every_k_epochs=1
        ),
        tpk.InferenceRunner(TEST[:1], tpk.ClassificationError(summary_name="third"), tower_name="Third"),
        tpk.InferenceRunner(TEST[:1], tpk.ScalarStats("average", prefix="fourth")),
        stats,
        towers,
    )
    latest = stats.monitors.get_latest
    assert latest("validation_error") == 0.5
    assert latest("second") == 1.0
    assert latest("third") == pytest.approx(1 / 3)
    assert latest("fourth_average") == 0.0
    assert towers.names == ["InferenceTower", "InferenceTower2", "Third", "InferenceTower3"]


class Named(Inferencer):
    """Tells the names of its statistics only when it reports them."""

    def get_fetches(self, tower):
        return []

    def before_inference(self):
        pass

    def on_fetches(self, results):
        assert results == []

    def after_inference(self):
        return {"validation_error": 0.0}


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (
            lambda: [tpk.InferenceRunner(TEST, [tpk.ScalarStats("average"), tpk.ScalarStats("average:0")])],
            "two inferencers of InferenceRunner both report 'validation_average'",
        ),
        (
            lambda: [
                tpk.InferenceRunner(TEST, tpk.ClassificationError()),
                tpk.PeriodicTrigger(tpk.InferenceRunner(TEST, tpk.ClassificationError()), every_k_epochs=1),
            ],
            "InferenceRunner and InferenceRunner in PeriodicTrigger both report 'validation_error'",
        ),
        (
            lambda: [
                tpk.InferenceRunner(TEST, tpk.ClassificationError()),
                tpk.InferenceRunner(TEST, Named(), sanity_batches=1),
            ],
            "InferenceRunner and InferenceRunner#2 both report 'validation_error'",
        ),
    ],
    ids=["one runner", "two runners", "found by the sanity check"],
)
def test_two_statistics_of_one_name_are_an_error_before_the_first_step(tmp_path, callbacks, message):
    class Started(tpk.Callback):
        def before_epoch(self, trainer):
            raise AssertionError

    with pytest.raises(tpk.ConfigError, match=message):
        train(tmp_path, *callbacks(), Started())


def test_a_batch_is_taken_even_if_nothing_depends_on_it(tmp_path):
    stats = Stats()
    train(tmp_path, tpk.InferenceRunner(tpk.QueueInput(iter_once(TEST)), Named()), stats)
    assert stats.monitors.get_history("validation_error") == [(3, 0.0), (6, 0.0)]


def iter_once(batches):
    """Data of unknown length."""
    return tpk.dataflow.DataFromGenerator(lambda: iter(batches))


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpk.InferenceRunner(TEST, []), r"takes Inferencers, .* and not \[\]"),
        (lambda: tpk.InferenceRunner(TEST, [tpk.ModelSaver]), "takes Inferencers"),
        (lambda: tpk.InferenceRunner(TEST, "cost"), r"tpk\.ScalarStats\('cost'\), and not 'cost'"),
        (lambda: tpk.InferenceRunner(TEST, tpk.ScalarStats), "and not <class .*ScalarStats"),
        (lambda: tpk.InferenceRunner(iter(TEST), tpk.ClassificationError()), "one-shot iterator. Give DataFromGen"),
        (lambda: tpk.InferenceRunner(lambda: TEST, tpk.ClassificationError()), "takes an iterable of datapoints"),
        (
            lambda: tpk.InferenceRunner(TEST, tpk.ClassificationError(), sanity_batches=-1),
            "must be an integer, 0 or more",
        ),
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
        (tpk.ScalarStats("accuracy"), tpk.TowerError, "^ScalarStats: the model has no tensor 'accuracy'"),
        (tpk.ClassificationError("wrong"), tpk.TowerError, "^ClassificationError: the model has no tensor 'wrong'"),
    ],
)
def test_a_tensor_of_the_wrong_kind_is_an_error(tmp_path, inferencer, error, message):
    with pytest.raises(error, match=message):
        train(tmp_path, tpk.InferenceRunner(TEST, inferencer))


def test_a_trainer_without_towers_is_an_error():
    class Plain(tpk.Trainer):
        def run_step(self):
            pass

    with pytest.raises(tpk.ConfigError, match=r"Plain has no tower function.*tower_func=tpk.TowerFunc"):
        Plain().train(callbacks=[tpk.InferenceRunner(TEST, tpk.ClassificationError())], steps_per_epoch=1, max_epoch=1)
