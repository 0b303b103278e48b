from __future__ import annotations

import json
from datetime import timedelta

import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint import newest_complete
from tpk.errors import ConfigError


class Clock:
    """A clock that goes by itself, by a second each time that somebody looks, and may be put forward."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Nothing(tpk.Trainer):
    """Its steps do nothing."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.train_op = tf.no_op()


def train(*callbacks, steps_per_epoch=100, max_epoch=1, **options):
    trainer = Nothing()
    trainer.train(
        callbacks=list(callbacks), monitors=[], steps_per_epoch=steps_per_epoch, max_epoch=max_epoch, **options
    )
    return trainer


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (20, 20),
        (20.5, 20.5),
        (timedelta(minutes=1), 60),
        ("00:00:20", 20),
        ("00:01:05", 65),
        ("1:0:0", 3600),
        ("30:00:00", 30 * 3600),
        ("01:02:03:04", 86400 + 2 * 3600 + 3 * 60 + 4),
    ],
)
def test_a_duration_is_given_in_any_of_these_ways(duration, seconds):
    class Still:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Still()

    def pass_time(self):
        # Well before the end, a moment before it, and then at it.
        clock.now = {1: seconds / 2, 2: seconds - 0.01}.get(self.global_step, seconds)

    trainer = train(tpk.CallbackFactory(trigger_step=pass_time), tpk.MaxTime(duration, clock=clock))
    assert trainer.global_step == 3


def test_the_training_ends_in_good_order_with_a_checkpoint(tmp_path, caplog):
    with caplog.at_level("INFO", "tpk"):
        trainer = train("ModelSaver", tpk.MaxTime(20, clock=Clock()), run_dir=tmp_path)
    assert 10 < trainer.global_step < 20
    assert newest_complete(tmp_path).step == trainer.global_step
    assert "MaxTime: it has run for 0:00:2" in str(trainer.loop.ended_by)
    assert any("training ended" in message and "MaxTime" in message for message in caplog.messages)


def test_what_comes_between_two_epochs_counts():
    clock = Clock()

    class Evaluation(tpk.Callback):
        def trigger_epoch(self, trainer):
            clock.now += 1000

    trainer = train(Evaluation(), tpk.MaxTime(500, clock=clock), steps_per_epoch=5, max_epoch=10)
    assert trainer.global_step == 5


def resume_after(tmp_path, duration, more):
    """Train for so long, and then for longer, with a clock that goes on from somewhere else."""
    first = train("ModelSaver", tpk.MaxTime(duration, clock=Clock()), run_dir=tmp_path, max_epoch=5)
    clock = Clock()
    clock.now = -777.0
    second = train("ModelSaver", tpk.MaxTime(more, clock=clock), run_dir=tmp_path, max_epoch=5, resume="must")
    return first.global_step, second.global_step


def test_a_training_that_is_resumed_goes_on_counting(tmp_path):
    first, second = resume_after(tmp_path, 20, 30)
    assert 0 < second - first < 12


def test_a_training_that_has_had_its_time_ends_at_once(tmp_path):
    first, second = resume_after(tmp_path, 20, 20)
    assert second == first


def test_the_state_is_plain_data_and_counts_on():
    clock = Clock()
    first = tpk.MaxTime(20, clock=clock)
    train(first, steps_per_epoch=5)
    state = json.loads(json.dumps(first.state_dict()))
    assert 5 <= state["elapsed"] <= 10
    second = tpk.MaxTime(20, clock=Clock())
    load = tpk.CallbackFactory(before_train=lambda self: second.load_state_dict(state))
    assert train(second, load).global_step <= 20 - state["elapsed"]


@pytest.mark.parametrize(
    "duration",
    [0, -1, True, None, float("nan"), float("inf"), "90", "01:30", "00:99:00", "half an hour", timedelta(0), [1]],
)
def test_what_is_no_duration_is_an_error(duration):
    with pytest.raises(
        ConfigError, match=r"MaxTime\(.*\): expected a positive number of seconds, a datetime.timedelta"
    ):
        tpk.MaxTime(duration)
