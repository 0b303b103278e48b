"""An epoch: one pass over the data on every strategy, and what the log says of it."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpk

X = " \u00d7 "


class Linear(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 2], tf.float32, "x")]

    def build_graph(self, x):
        return tf.reduce_mean(tpk.layers.dense(x, 1) ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.01)


class Rows(tpk.Callback):
    """Keeps the first column of all rows that the towers have trained on."""

    def __init__(self):
        self.seen = []

    def setup_graph(self, trainer):
        self.columns = [tower.inputs[0][:, 0] for tower in trainer.towers.training()]

    def before_run(self, run_context):
        return self.columns

    def after_run(self, run_context, run_values):
        self.seen.extend(np.concatenate(run_values.results))


ROWS = [[np.float32([number, 1])] for number in range(24)]


def train(strategy, rows=ROWS, batch=4, **options):
    record = Rows()
    config = tpk.TrainConfig(
        model=Linear(),
        data=tpk.FeedInput(tpk.BatchData(tpk.DataFromList(rows, shuffle=False), batch)),
        callbacks=[record],
        extra_callbacks=[],
        monitors=[],
        max_epoch=1,
        **options,
    )
    tpk.launch_train_with_config(config, strategy)
    return record.seen


@pytest.mark.parametrize(
    "strategy",
    ["single", *(tpk.use(name, devices=2) for name in ("replicated", "parameter_server"))],
    ids=["single", "replicated", "parameter_server"],
)
def test_an_epoch_is_one_pass(strategy, tmp_path):
    assert sorted(train(strategy, run_dir=tmp_path)) == list(range(24))


def test_what_towers_cannot_share_begins_the_next_epoch(tmp_path):
    assert len(train(tpk.use("replicated", devices=4), run_dir=tmp_path)) == 16


def test_data_for_less_than_one_step_of_all_towers_is_a_step(tmp_path):
    assert len(train(tpk.use("replicated", devices=2), ROWS[:4], run_dir=tmp_path)) == 8


def test_steps_per_epoch_means_steps(tmp_path):
    assert len(train(tpk.use("replicated", devices=2), run_dir=tmp_path, steps_per_epoch=5.0)) == 5 * 2 * 4


@pytest.mark.parametrize(
    ("strategy", "options", "line"),
    [
        ("single", {}, f"an epoch is 6 steps{X}batch 4: one pass over 24 datapoints (SingleStrategy)"),
        (
            tpk.use("replicated", devices=2),
            {},
            f"an epoch is 3 steps{X}2 towers{X}batch 4: one pass over 24 datapoints (ReplicatedStrategy on /cpu:0, "
            "/cpu:1)",
        ),
        (
            tpk.use("replicated", devices=2),
            {"batch": 5},
            f"an epoch is 2 steps{X}2 towers{X}batch 5: one pass over 24 datapoints, of which each pass "
            "drops the last 4 (BatchData(..., remainder=True) keeps them) (ReplicatedStrategy on /cpu:0, /cpu:1)",
        ),
        (
            "single",
            {"steps_per_epoch": 1},
            f"an epoch is 1 step{X}batch 4: 0.167 passes over 24 datapoints (SingleStrategy)",
        ),
    ],
)
def test_the_log_says_what_an_epoch_is(strategy, options, line, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk.train")
    train(strategy, run_dir=tmp_path, **options)
    assert line in caplog.messages


@pytest.mark.parametrize(("options", "count"), [({}, 1), ({"max_epoch": 2}, 0)])
def test_the_log_says_once_that_a_run_without_max_epoch_goes_on(options, count, caplog):
    class StopsInTheSecondEpoch(tpk.Trainer):
        def run_step(self):
            if self.epoch_num == 2:
                raise tpk.StopTraining("enough")

    caplog.set_level(logging.INFO, logger="tpk.train")
    StopsInTheSecondEpoch().train(steps_per_epoch=2, **options)
    line = "max_epoch is not set: the run goes on until Ctrl-C, a signal or a callback stops it"
    assert caplog.messages.count(line) == count


def test_a_trainer_without_data_says_how_many_steps(caplog):
    class Nothing(tpk.Trainer):
        def run_step(self):
            pass

    caplog.set_level(logging.INFO, logger="tpk.train")
    Nothing().train(steps_per_epoch=2000, max_epoch=1)
    assert "an epoch is 2,000 steps" in caplog.messages


def test_an_epoch_without_an_end_is_not_counted(caplog):
    class StopsAfterThree(tpk.Trainer):
        def run_step(self):
            if self.local_step == 3:
                raise tpk.StopTraining("enough")

    caplog.set_level(logging.INFO, logger="tpk.train")
    StopsAfterThree().train(steps_per_epoch=sys.maxsize, max_epoch=1)
    assert "an epoch is any number of steps" in caplog.messages
    assert "training ended in epoch 1, after 3 steps (3 in all): enough" in caplog.messages
