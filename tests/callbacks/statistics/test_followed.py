"""Statistics that callbacks follow, also one with a mistyped name."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            v1.get_variable("learning_rate", initializer=1.0)
            self.train_op = v1.get_variable("counter", initializer=0).assign_add(1, read_value=False)


class Score(tpk.Callback):
    """Reports at the end of each epoch."""

    def trigger(self):
        self.trainer.monitors.put_scalar("mean_score", 1.0)


class Epochs(tpk.Callback):
    """Counts the warnings at the end of each epoch."""

    def __init__(self, caplog):
        self.caplog, self.counts = caplog, []

    @tpk.hookimpl(wrapper=True)
    def trigger_epoch(self, trainer):
        yield
        self.counts.append(len(warnings_of(self.caplog)))


def train(run_dir, *callbacks, max_epoch=3, resume="auto"):
    trainer = Counting()
    trainer.train(callbacks=callbacks, steps_per_epoch=4, max_epoch=max_epoch, run_dir=run_dir, resume=resume)
    return trainer


FOLLOWERS = {
    "EarlyStopping": lambda name: tpk.EarlyStopping(name, patience=9),
    "MinSaver": tpk.MinSaver,
    "MaxSaver": lambda name: tpk.MaxSaver(name),
    "StatMonitorParamSetter": lambda name: tpk.StatMonitorParamSetter("learning_rate", name, lambda rate: rate, 0, 9),
}


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if "follows the statistic" in each.getMessage()]


@pytest.mark.parametrize("kind", FOLLOWERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_mistyped_statistic_is_warned_of_once_after_the_first_epoch(tmp_path, kind, is_first, caplog):
    callbacks = [FOLLOWERS[kind]("mean_scroe"), Score(), Epochs(caplog)]
    train(tmp_path, *callbacks[:: 1 if is_first else -1])
    (warning,) = warnings_of(caplog)
    assert "'mean_scroe', which has not been reported yet. Nearest: 'mean_score'" in warning
    assert callbacks[2].counts == [1, 1, 1]


@pytest.mark.parametrize("kind", FOLLOWERS)
def test_a_statistic_that_is_reported_is_not(tmp_path, kind, caplog):
    train(tmp_path, FOLLOWERS[kind]("mean_score"), Score())
    assert warnings_of(caplog) == []


def test_a_statistic_that_is_reported_later_is_followed_from_then_on(tmp_path):
    saver = tpk.MaxSaver("mean_score")
    train(tmp_path, saver, tpk.PeriodicCallback(Score(), every_k_epochs=2))
    assert saver.best_checkpoint.name == "max-mean_score-8"


def test_each_value_is_used_once(tmp_path):
    stopping = tpk.EarlyStopping("mean_score", patience=1)
    trainer = train(tmp_path, stopping, tpk.PeriodicCallback(Score(), every_k_epochs=2), max_epoch=9)
    assert trainer.epoch_num == 4


def test_a_resumed_training_knows_what_was_reported_before(tmp_path, caplog):
    def callbacks():
        return [tpk.PeriodicCallback(Score(), every_k_epochs=2), tpk.MaxSaver("mean_score"), "ModelSaver"]

    train(tmp_path, *callbacks(), max_epoch=2)
    caplog.clear()
    assert train(tmp_path, *callbacks(), resume="must").epoch_num == 3
    assert warnings_of(caplog) == []
