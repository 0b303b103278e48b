"""What the chief decides of hyperparameters and of the end holds in all processes; they are threads here."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from processes_as_threads import ThreadStrategy, run_in_threads

import tpk
from tpk.errors import ConfigError

pytestmark = pytest.mark.once

SIGNATURE = [tf.TensorSpec([2], tf.float32, "x")]


def cost(x):
    return tf.reduce_mean(x * tf.compat.v1.get_variable("w", initializer=0.5))


def optimizer():
    rate = tf.compat.v1.get_variable("learning_rate", initializer=1.0, trainable=False)
    return tf.compat.v1.train.GradientDescentOptimizer(rate)


class Rates(tpk.Callback):
    """The learning rate that a process has in each epoch, and how far it comes."""

    chief_only = False

    def __init__(self):
        self.rates = []

    def before_epoch(self, trainer):
        (rate,) = [each for each in tf.compat.v1.global_variables() if each.op.name == "learning_rate"]
        self.rates.append(float(trainer.sess.run(rate)))

    def after_train(self, trainer):
        self.steps = trainer.global_step


def train_two(tmp_path, *callbacks):
    def target(meeting, rank):
        trainer, rates = tpk.SingleCostTrainer(ThreadStrategy(meeting, rank, devices=["/cpu:0"])), Rates()
        trainer.setup_graph(SIGNATURE, tpk.FeedInput([[np.ones(2, np.float32)]] * 4, infinite=True), cost, optimizer)
        trainer.train(
            callbacks=[*(make(rank) for make in callbacks), rates],
            monitors=[],
            steps_per_epoch=20,
            max_epoch=4,
            run_dir=tmp_path / "run",
        )
        return rates

    return run_in_threads(2, target)


def test_what_the_chief_reads_holds_in_all_processes(tmp_path):
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "hyper.txt"
    file.write_text("learning_rate: 0.5")

    class Human(tpk.Callback):
        def before_epoch(self, trainer):
            if trainer.epoch_num == 2:
                file.write_text("learning_rate: 0.25")

    first, second = train_two(tmp_path, lambda rank: tpk.HumanHyperParamSetter("learning_rate"), lambda rank: Human())
    assert first.rates == second.rates == [0.5, 0.5, 0.25, 0.25]


def test_a_schedule_is_the_same_in_all_processes(tmp_path):
    schedule = tpk.CosineSchedule(0.5, 0.0, 4)
    setter = lambda rank: tpk.ScheduledHyperParamSetter("learning_rate", schedule, every_k_steps=5)  # noqa: E731
    first, second = train_two(tmp_path, setter)
    assert first.rates == second.rates == pytest.approx([schedule(epoch) for epoch in range(4)])


def test_when_the_time_of_the_chief_is_over_all_processes_end_in_the_same_step(tmp_path):
    class Clock:
        now = 0.0

        def __call__(self):
            self.now += 1.0
            return self.now

    first, second = train_two(tmp_path, lambda rank: tpk.MaxTime(30 if rank == 0 else 1e6, clock=Clock()))
    assert first.steps == second.steps
    assert 20 < first.steps < 80


def test_a_search_for_a_learning_rate_is_for_one_process(tmp_path):
    first, second = train_two(tmp_path, lambda rank: tpk.LRFinder())
    assert isinstance(first, ConfigError)
    assert "LRFinder works in one process" in str(first)
    assert not isinstance(second, Rates)
