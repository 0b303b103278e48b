from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tpk
from tpk.callbacks.statistics.epoch_means import EpochMeans

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([2], tf.float32, "x")]
DATA = np.random.default_rng(0).uniform(1, 9, size=(24, 2)).astype(np.float32)
COSTS = DATA.mean(1)


def cost(x):
    """The mean of the datapoint, whatever the weight is."""
    w = v1.get_variable("w", initializer=0.5)
    return tf.add(tf.reduce_mean(x), 0.0 * w, name="cost")


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


def train(run_dir, func=cost, strategy="single", data=DATA, **options):
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(SIGNATURE, tpk.FeedInput([[row] for row in data]), func, sgd)
    trainer.train_with_defaults(**{"steps_per_epoch": 6, "max_epoch": 2, "run_dir": run_dir, **options})
    return trainer


def history(trainer, name):
    return [value for _, value in trainer.monitors.get_history(name)]


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
def test_the_cost_is_reported_everywhere_without_any_summary(tmp_path, caplog, strategy):
    caplog.set_level(logging.INFO, "tpk.monitors")
    towers = 1 if strategy == "single" else 2
    train(tmp_path, strategy=strategy if towers == 1 else tpk.use(strategy, devices=2))
    expected = COSTS[: 12 * towers].astype(np.float64).reshape(2, -1).mean(1)
    rows = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert [row["cost"] for row in rows] == pytest.approx(expected, rel=1e-6)
    board = EventAccumulator(str(tmp_path)).Reload()
    assert [(each.step, each.value) for each in board.Scalars("cost")] == [
        (6, pytest.approx(expected[0], rel=1e-6)),
        (12, pytest.approx(expected[1], rel=1e-6)),
    ]
    lines = [message for message in caplog.messages if message.startswith("epoch")]
    assert [f" | cost {mean:.4g} " in line for mean, line in zip(expected, lines, strict=True)] == [True, True]


def test_callbacks_find_the_mean_when_the_epoch_is_over(tmp_path):
    class Look(tpk.Callback):
        def trigger_epoch(self, trainer):
            seen.append(trainer.monitors.get_latest("cost"))

    seen = []
    train(tmp_path, callbacks=[Look()])
    assert seen == pytest.approx([COSTS[:6].mean(), COSTS[6:12].mean()])


def test_a_name_stands_for_the_mean_and_what_is_smoothed_is_marked(tmp_path):
    def func(x):
        tpk.add_moving_summary(tf.reduce_max(x, name="largest"), decay=0.5)
        own = cost(x)
        tpk.add_moving_summary(own, tf.cast(tf.reduce_min(x), tf.float64, name="smallest"), decay=0.5)
        tpk.add_moving_summary(own, decay=0.1)
        return own

    trainer = train(tmp_path, func)
    weights = 0.5 ** np.arange(11, -1, -1)
    for name, values in (("cost", COSTS), ("largest", DATA.max(1)), ("smallest", DATA.min(1))):
        assert history(trainer, name) == pytest.approx([values[:6].mean(), values[6:12].mean()], rel=1e-6)
        assert history(trainer, f"{name}/EMA")[-1] == pytest.approx(np.average(values[:12], weights=weights), rel=1e-5)
    steps = [step for step, _ in trainer.monitors.get_history("cost")]
    assert steps == [6, 12], "reported once an epoch, though it was summarized twice"


def test_means_are_exact(tmp_path):
    exact = {
        "count": (tf.int64, 2**24 + 1),
        "large": (tf.float64, 1e8 + 1),
        "half": (tf.bfloat16, 0.5),
        "steps": (tf.int32, 5),
    }

    def func(x):
        tpk.add_moving_summary(*(tf.constant(value, dtype, name=name) for name, (dtype, value) in exact.items()))
        return cost(x)

    trainer = train(tmp_path, func)
    for name, (_, value) in exact.items():
        assert history(trainer, name) == [value, value]
        assert history(trainer, f"{name}/EMA")[-1] == pytest.approx(value)


def test_the_sums_are_added_to_by_an_op_and_nothing_is_fetched(tmp_path):
    class Watch(tpk.Callback):
        def before_run(self, run_context):
            means = next(each for each in self.trainer.hooks.plugins.values() if isinstance(each, EpochMeans))
            requests.add(means.before_run(run_context))

    requests = set()
    train(tmp_path, callbacks=[Watch()])
    assert [type(each) for each in requests] == [tf.Operation]


@pytest.mark.parametrize("reports", ["a tensor of add_moving_summary", "a summary of its own"])
def test_something_else_called_cost_keeps_its_name(tmp_path, reports):
    def func(x):
        part = tf.reduce_max(x, name="cost")
        if reports == "a summary of its own":
            v1.summary.scalar("cost-summary", part)
        else:
            tpk.add_moving_summary(part)
        return tf.add(part, cost(x), name="total")

    trainer = train(tmp_path, func)
    largest = DATA.max(1)
    expected = largest[[5, 11]] if reports == "a summary of its own" else [largest[:6].mean(), largest[6:12].mean()]
    assert history(trainer, "cost") == pytest.approx(expected, rel=1e-6)
    total = largest + COSTS
    assert history(trainer, "training_cost") == pytest.approx([total[:6].mean(), total[6:12].mean()], rel=1e-6)


@pytest.mark.parametrize("update", ["in_turn", "together"])
def test_each_of_several_costs_has_its_name_and_the_mean_over_the_runs_that_minimize_it(tmp_path, update):
    def costs(x):
        w = v1.get_variable("w", initializer=0.5)
        return {"first": tf.reduce_mean(x) + 0.0 * w, "second": tf.reduce_max(x) + 0.0 * w}

    trainer = tpk.MultiObjectiveTrainer(update=update)
    objectives = [tpk.Objective(sgd, name="first"), tpk.Objective(sgd, name="second", every=2)]
    trainer.setup_graph(SIGNATURE, tpk.FeedInput([[row] for row in DATA]), costs, objectives)
    trainer.train_with_defaults(steps_per_epoch=6, max_epoch=1, run_dir=tmp_path)
    # Which datapoints a run has: of two runs in a step, each has its own.
    first, second = ([0, 1, 3, 4, 6, 7], [2, 5, 8]) if update == "in_turn" else (range(6), [1, 3, 5])
    assert history(trainer, "first") == pytest.approx([COSTS[list(first)].mean()], rel=1e-6)
    assert history(trainer, "second") == pytest.approx([DATA.max(1)[list(second)].mean()], rel=1e-6)


def test_towers_that_train_by_themselves_are_left_alone(tmp_path):
    trainer = tpk.SingleCostTrainer(tpk.use("async", devices=2))
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.constant([1.0, 3.0])]), cost, sgd)
    trainer.train_with_defaults(steps_per_epoch=5, max_epoch=1, run_dir=tmp_path)
    assert history(trainer, "cost") == [2.0]
    (variable,) = [each for each in trainer.graph.get_collection("local_variables") if "epoch_means" in each.name]
    assert variable.shape == [2], "the sum of one tower, not of two, and the count"


def test_a_trainer_without_towers_reports_no_cost(tmp_path):
    trainer = tpk.Trainer()
    with trainer.graph.as_default():
        w = v1.get_variable("w", initializer=1.0)
        trainer.train_op = sgd().minimize(w * w)
    trainer.train_with_defaults(steps_per_epoch=2, max_epoch=1, run_dir=tmp_path)
    assert trainer.monitors.names == ["steps_per_second"]


@pytest.mark.parametrize("summarize", [False, True])
def test_a_training_resumed_within_an_epoch_has_the_same_means_to_the_bit(tmp_path, summarize):
    class Breaks(tpk.Callback):
        def trigger_step(self, trainer):
            if trainer.global_step == 11:
                raise OSError("broken")

    def func(x):
        own = cost(x)
        if summarize:
            tpk.add_moving_summary(own)
        return own

    def run(name, *callbacks, resume="auto"):
        saver = tpk.ModelSaver(when=tpk.Every(steps=3))
        with tf.Graph().as_default():
            return train(tmp_path / name, func, callbacks=[saver, *callbacks], steps_per_epoch=8, resume=resume)

    whole = run("whole")
    with pytest.raises(OSError, match="broken"):
        run("broken", Breaks())
    resumed = run("broken", resume="must")
    assert history(resumed, "cost") == history(whole, "cost")
    assert history(whole, "cost") == pytest.approx([COSTS[:8].mean(), COSTS[8:16].mean()], rel=1e-6)


def test_sums_have_double_precision(tmp_path):
    """In single precision, the sum of 20,000 values would be wrong in the fourth digit."""
    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.constant([0.1, 0.1])]), cost, sgd)
    trainer.train(callbacks=["EpochMeans"], steps_per_epoch=20_000, max_epoch=1)
    assert history(trainer, "cost") == pytest.approx([np.float32(0.1)], rel=1e-5)


def test_a_cost_that_is_not_finite_is_warned_of_once(tmp_path, caplog):
    data = DATA.copy()
    data[[8, 13]] = np.nan
    trainer = train(tmp_path, data=data, max_epoch=4)
    assert np.isnan(history(trainer, "cost")).tolist() == [False, True, True, False]
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "tpk.callbacks.statistics.epoch_means"]
    assert warning.startswith("the mean of cost over the epoch so far is nan in epoch 2, step 6.")
    assert "NanGuard" in warning
