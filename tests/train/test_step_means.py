"""What `run_step` reports stands for its mean over the epoch, wherever it is looked at."""

from __future__ import annotations

import contextlib
import io
import json
import logging

import pytest
import tensorflow as tf

import tpk

RETURNS = [1, 9, 2, 5, 5, 5, 0, 0, 10]
MEANS = [4, 5, pytest.approx(10 / 3)]
"""Those of epochs of three steps: the best is another one than by single steps, or by the last step."""


class Agent(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.op = tf.compat.v1.get_variable("w", initializer=0.0).assign_add(1.0).op

    def run_step(self):
        result = RETURNS[self.global_step]
        self.hooked_sess.run(self.op)
        self.monitors.put_scalar("return", result)


class Report(tpk.Callback):
    """Reports in hooks of the step, which arrives as it is."""

    def after_run(self, run_context, run_values):
        self.trainer.monitors.put_scalar("after_run", self.global_step)

    def trigger_step(self, trainer):
        trainer.monitors.put_scalar("trigger_step", self.global_step)


class KillAt(tpk.Callback):
    def __init__(self, step):
        self.step = step

    def trigger_step(self, trainer):
        if trainer.global_step == self.step:
            raise KeyError("killed")


def train(*callbacks, **options):
    trainer = Agent()
    options = {"monitors": ["JSONWriter"], "steps_per_epoch": 3, "max_epoch": 3, **options}
    trainer.train(callbacks=callbacks, **options)
    return trainer


def returns_in(run_dir):
    rows = map(json.loads, (run_dir / "stats.jsonl").read_text().splitlines())
    return [row["return"] for row in rows if "return" in row]


def test_the_mean_is_what_everything_sees(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    saver = tpk.MaxSaver("return")
    trainer = train(tpk.ModelSaver(), saver, Report(), run_dir=tmp_path)
    assert trainer.history["return"].tolist() == MEANS
    assert trainer.history.steps("return").tolist() == [3, 6, 9]
    assert returns_in(tmp_path) == MEANS
    assert [path.name for path in tmp_path.glob("max-return*.index")] == ["max-return-6.index"]
    assert "best: return 5 in epoch 2 (step 6)" in caplog.text
    for name in ("after_run", "trigger_step"):
        assert trainer.history[name].tolist() == list(range(1, 10))


def test_a_training_that_is_resumed_within_an_epoch_has_the_same_means(tmp_path):
    saver = tpk.ModelSaver(when=tpk.Every(steps=2))
    with pytest.raises(KeyError):
        train(saver, KillAt(5), run_dir=tmp_path)
    trainer = train(tpk.ModelSaver(), run_dir=tmp_path, resume="must")
    assert trainer.history["return"].tolist() == MEANS
    assert returns_in(tmp_path) == MEANS


def test_the_progress_bar_shows_it():
    file = io.StringIO()
    file.isatty = lambda: True
    with contextlib.redirect_stderr(file):
        train(tpk.ProgressBar("return"), monitors=[], max_epoch=2)
    assert "return=4" in file.getvalue()
    assert "return=5" in file.getvalue()
