"""What a run records of how it was started, and how that ended."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys

import pytest
import tensorflow as tf

import tpk
from tpk.errors import TpkError
from tpk.train.run.attempts import read_attempts
from tpk.train.run.names import ATTEMPTS_NAME


class Counting(tpk.Trainer):
    def __init__(self, steps=None):
        super().__init__()
        with self.graph.as_default():
            self.count = tf.compat.v1.get_variable("count", initializer=0)
            self.train_op = self.count.assign_add(1, read_value=False)
        self.steps = steps

    def run_step(self):
        if self.global_step == self.steps:
            raise tf.errors.OutOfRangeError(None, None, "no more")
        super().run_step()


class Do(tpk.Callback):
    def __init__(self, what, hook="before_epoch"):
        self.what = what
        self.hook = hook

    def setup_graph(self, trainer):
        if self.hook == "setup_graph":
            self.what(trainer)

    def before_epoch(self, trainer):
        if self.hook == "before_epoch" and trainer.epoch_num == 2:
            self.what(trainer)


def raising(error):
    def act(trainer):
        raise error

    return act


def train(run_dir, *callbacks, steps=None, max_epoch=3, resume="auto"):
    Counting(steps).train(
        callbacks=[tpk.ModelSaver(), *callbacks], steps_per_epoch=2, max_epoch=max_epoch, run_dir=run_dir, resume=resume
    )


def test_a_training_that_finishes_says_when_where_and_by_what(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [__file__, "--lr", "0.1"])
    train(tmp_path)
    (attempt,) = read_attempts(tmp_path)
    assert attempt.argv == [__file__, "--lr", "0.1"]
    assert (attempt.pid, attempt.cwd, attempt.from_step) == (os.getpid(), os.getcwd(), None)
    assert (attempt.end, attempt.reason) == ("finished", "max_epoch=3 is reached")
    assert (attempt.epoch, attempt.step, attempt.checkpoint) == (3, 6, "model-6")
    assert attempt.ended >= attempt.began


def test_what_no_script_has_started_has_no_command(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [""])
    train(tmp_path)
    assert read_attempts(tmp_path)[0].argv is None


@pytest.mark.parametrize(
    ("callback", "steps", "expected"),
    [
        (Do(raising(tpk.StopTraining("good enough"))), None, ("finished", "good enough; in callback 'Do', hook")),
        (Do(lambda trainer: trainer.request_stop("asked")), None, ("finished", "asked")),
        (Do(lambda trainer: None), 3, ("finished", "the data ended")),
    ],
)
def test_an_end_in_good_order_says_by_what(tmp_path, callback, steps, expected):
    train(tmp_path, callback, steps=steps)
    (attempt,) = read_attempts(tmp_path)
    assert attempt.end == expected[0] and attempt.reason.startswith(expected[1].partition(";")[0])
    assert attempt.step == (2 if steps is None else 3)


@pytest.mark.parametrize(
    ("error", "hook", "end", "reason"),
    [
        (ValueError("no\nsuch thing"), "before_epoch", "failed", "ValueError: no such thing; in callback 'Do', hook"),
        (ValueError("too early"), "setup_graph", "failed", "ValueError: too early; in callback 'Do', hook"),
        (KeyboardInterrupt(), "before_epoch", "interrupted", "SIGINT (Ctrl-C)"),
    ],
)
def test_a_failure_says_what_and_where_and_is_raised(tmp_path, error, hook, end, reason):
    with pytest.raises(type(error)):
        train(tmp_path, Do(raising(error), hook))
    (attempt,) = read_attempts(tmp_path)
    assert attempt.end == end and attempt.reason.startswith(reason)
    assert attempt.step == (0 if hook == "setup_graph" else 2)


def test_an_error_before_the_callbacks_are_set_up_is_the_one_that_is_raised(tmp_path):
    class Early(Counting):
        def setup_callbacks(self, callbacks=(), monitors=()):
            raise ValueError("too early")

    with pytest.raises(ValueError, match="too early"):
        Early().train(steps_per_epoch=2, max_epoch=1, run_dir=tmp_path)
    (attempt,) = read_attempts(tmp_path)
    assert (attempt.end, attempt.reason, attempt.checkpoint) == ("failed", "ValueError: too early", None)


def test_a_signal_interrupts_and_what_was_saved_is_known(tmp_path):
    with pytest.raises(tpk.Preempted):
        train(tmp_path, Do(lambda trainer: signal.raise_signal(signal.SIGTERM)))
    (attempt,) = read_attempts(tmp_path)
    assert (attempt.end, attempt.reason) == ("interrupted", "SIGTERM")
    assert attempt.checkpoint == f"model-{attempt.step}"


def test_a_run_that_is_resumed_has_an_attempt_for_each_time(tmp_path):
    with pytest.raises(ValueError, match="boom"):
        train(tmp_path, Do(raising(ValueError("boom"))))
    train(tmp_path)
    first, second = read_attempts(tmp_path)
    assert (first.end, first.from_step) == ("failed", None)
    assert (second.end, second.from_step, second.step) == ("finished", 2, 6)


def test_what_a_kill_leaves_has_no_end(tmp_path):
    killed = tmp_path / "killed"
    train(tmp_path / "run", tpk.MinSaver("cost"), Do(lambda trainer: shutil.copytree(trainer.run_dir, killed)), Cost())
    (attempt,) = read_attempts(killed)
    assert (attempt.end, attempt.ended, attempt.step) == (None, None, None)
    # What is better is known before the first step.
    assert attempt.directions == {"cost": "min"}
    assert read_attempts(tmp_path / "run")[0].end == "finished"


class Cost(tpk.Callback):
    def trigger_epoch(self, trainer):
        trainer.monitors.put_scalar("cost", 1.0)


def test_without_a_directory_nothing_is_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Counting().train(steps_per_epoch=2, max_epoch=1)
    assert not os.listdir(tmp_path)


def test_a_record_that_cannot_be_written_stops_no_training(tmp_path, caplog):
    (tmp_path / f".{ATTEMPTS_NAME}.new").mkdir()
    with caplog.at_level(logging.WARNING, "tpk"):
        train(tmp_path)
    assert f"{tmp_path / ATTEMPTS_NAME} could not be written" in caplog.text
    assert (tmp_path / "model-6.index").exists()


def test_what_a_later_version_adds_is_left_out(tmp_path):
    train(tmp_path)
    train(tmp_path, max_epoch=4)
    path = tmp_path / ATTEMPTS_NAME
    content = json.loads(path.read_text())
    content["attempts"][1]["mood"] = "cheerful"
    path.write_text(json.dumps(content))
    assert read_attempts(tmp_path)[1].from_step == 6


@pytest.mark.parametrize("text", ["{", "[]", '{"attempts": [{"began": "now"}]}', '{"attempts": [1]}'])
def test_what_is_no_record_is_an_error_that_names_it_and_no_end_of_a_training(tmp_path, text, caplog):
    (tmp_path / ATTEMPTS_NAME).write_text(text)
    with pytest.raises(TpkError, match=r"attempts.json' is not what tpk writes .* Remove it"):
        read_attempts(tmp_path)
    with caplog.at_level(logging.WARNING, "tpk"):
        train(tmp_path)
    assert "is not what tpk writes" in caplog.text
    assert len(read_attempts(tmp_path)) == 1
