from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.statistics.progress_bar import EstimatedTimeLeft
from tpk.errors import ConfigError


class Slow(tpk.Trainer):
    """Takes as many seconds for each epoch as it is told to, by its own clock."""

    def __init__(self, *seconds):
        super().__init__()
        self.seconds = seconds
        self.now = 100.0
        with self.graph.as_default():
            self.train_op = tf.no_op()

    def run_step(self):
        self.now += self.seconds[self.epoch_num - 1]
        super().run_step()


def estimates(*seconds, last_k_epochs=5, median=True, **options):
    trainer = Slow(*seconds)
    callback = EstimatedTimeLeft(last_k_epochs, median, clock=lambda: trainer.now)
    seen = []

    class Look(tpk.Callback):
        def trigger_epoch(self):
            seen.append((callback.seconds_left, callback.seconds_total))

    trainer.train(
        callbacks=[callback, Look()],
        monitors=[],
        steps_per_epoch=1,
        **{"max_epoch": len(seconds), **options},
    )
    return seen


def test_the_time_left_is_estimated_by_the_median_of_the_last_epochs():
    assert estimates(10, 2, 3, 3, last_k_epochs=3) == [(30, 40), (12, 24), (3, 18), (0, 18)]


def test_the_time_left_is_estimated_by_the_mean_if_asked():
    assert estimates(10, 2, 3, 4, last_k_epochs=2, median=False) == [(30, 40), (12, 24), (2.5, 17.5), (0, 19)]


def test_the_epochs_that_a_training_skips_take_no_time():
    assert estimates(7, 7, 2, 2, starting_epoch=3) == [(2, 4), (0, 4)]


def test_the_estimate_is_logged_while_there_are_epochs_left(caplog):
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        estimates(3600.4, 3600.4)
    assert [
        record.getMessage() for record in caplog.records if record.name == "tpk.callbacks.statistics.progress_bar"
    ] == ["estimated time left: 1:00:00 of 2:00:01"]


def test_a_training_without_an_end_has_no_estimate(caplog):
    class Ends(tpk.Callback):
        def trigger_epoch(self):
            if self.epoch_num == 2:
                raise tpk.StopTraining

    trainer = Slow(1, 1)
    callback = EstimatedTimeLeft(clock=lambda: trainer.now)
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer.train(callbacks=[callback, Ends()], monitors=[], steps_per_epoch=1)
    assert callback.seconds_left is None
    assert "estimated" not in caplog.text


def test_at_least_one_epoch_is_looked_at():
    with pytest.raises(ConfigError, match="last_k_epochs must be an integer, 1 or more, not 0"):
        EstimatedTimeLeft(last_k_epochs=0)


def test_the_estimate_goes_on_after_a_restart_without_the_time_in_between():
    now = [100.0]
    first, second = (EstimatedTimeLeft(clock=lambda: now[0]) for _ in range(2))
    trainer = SimpleNamespace(loop=SimpleNamespace(max_epoch=5), epoch_num=1)
    first.trainer = second.trainer = trainer
    first.before_train(trainer)
    now[0] += 10
    first.trigger_epoch(trainer)
    now[0] += 4
    state = first.state_dict()
    now[0] += 1000
    second.before_train(trainer)
    second.load_state_dict(state)
    now[0] += 6
    trainer.epoch_num = 2
    second.trigger_epoch(trainer)
    assert (second.seconds_left, second.seconds_total) == (30, 50)
