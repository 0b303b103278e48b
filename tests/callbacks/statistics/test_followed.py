"""Statistics that callbacks follow, and what becomes of one that nobody reports."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint import newest_complete
from tpk.errors import UnknownScalarError

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


class ScoreInStep(tpk.Callback):
    def trigger_step(self, trainer):
        trainer.monitors.put_scalar("mean_score", 1.0)


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


@pytest.mark.parametrize("kind", FOLLOWERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_statistic_that_nobody_reports_is_an_error_after_the_first_epoch(tmp_path, kind, is_first):
    callbacks = [FOLLOWERS[kind]("mean_scroe"), Score(), tpk.ModelSaver()]
    with pytest.raises(UnknownScalarError, match=rf"{kind} follows.*'mean_scroe'.*epoch 1\. Nearest: 'mean_score'"):
        train(tmp_path, *callbacks[:: 1 if is_first else -1])
    assert newest_complete(tmp_path).step == 4
    assert train(tmp_path, FOLLOWERS[kind]("mean_score"), Score(), tpk.ModelSaver()).global_step == 12


@pytest.mark.parametrize("kind", FOLLOWERS)
def test_one_that_is_reported_is_none(tmp_path, kind):
    assert train(tmp_path, FOLLOWERS[kind]("mean_score"), Score()).epoch_num == 3


@pytest.mark.parametrize(
    "report",
    [
        tpk.PeriodicTrigger(Score(), every_k_epochs=2),
        tpk.PeriodicTrigger(Score(), every_k_steps=6),
        tpk.PeriodicCallback(Score(), every_k_epochs=2),
        tpk.PeriodicCallback(ScoreInStep(), every_k_steps=7),
        tpk.EnableCallbackIf(tpk.PeriodicTrigger(Score(), every_k_epochs=1), lambda self: self.epoch_num > 1),
    ],
)
def test_what_reports_every_few_epochs_has_its_turn_first(tmp_path, report):
    assert train(tmp_path / "a", tpk.MaxSaver("mean_score"), report).epoch_num == 3


@pytest.mark.parametrize("last_epoch", [1, 2])
def test_the_error_comes_when_it_had_its_turn(tmp_path, last_epoch):
    callbacks = [tpk.MaxSaver("mean_scroe"), tpk.PeriodicTrigger(Score(), every_k_epochs=last_epoch)]
    with pytest.raises(UnknownScalarError, match=f"up to the end of epoch {last_epoch}"):
        train(tmp_path, *callbacks)


def test_who_reports_at_times_of_its_own_is_followed_at_these_times(tmp_path):
    class EverySecond(tpk.Callback):
        def trigger_epoch(self, trainer):
            if trainer.epoch_num % 2 == 0:
                trainer.monitors.put_scalar("mean_score", 1.0)

    with pytest.raises(UnknownScalarError, match=r"PeriodicTrigger\(MaxSaver\(\.\.\.\), every_k_epochs"):
        train(tmp_path / "a", EverySecond(), tpk.MaxSaver("mean_score"))
    follower = tpk.PeriodicTrigger(tpk.MaxSaver("mean_score"), every_k_epochs=2)
    assert train(tmp_path / "b", EverySecond(), follower).epoch_num == 3


def test_a_resumed_training_knows_what_was_reported_before(tmp_path):
    def callbacks():
        return [tpk.PeriodicCallback(Score(), every_k_epochs=2), tpk.MaxSaver("mean_score"), "ModelSaver"]

    train(tmp_path, *callbacks(), max_epoch=2)
    assert train(tmp_path, *callbacks(), resume="must").epoch_num == 3
