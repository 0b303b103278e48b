"""What the log says last of a training."""

from __future__ import annotations

import logging
import re

import pytest
import tensorflow as tf

import tpk
from tpk.train.run.report import outcome_logged


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


class Report(tpk.Callback):
    """Reports a value of each epoch under each name."""

    def __init__(self, **values):
        self.values = values

    def trigger(self):
        for name, values in self.values.items():
            self.trainer.monitors.put_scalar(name, values[self.epoch_num - 1])


class Do(tpk.Callback):
    def __init__(self, what):
        self.what = what

    def before_epoch(self, trainer):
        if trainer.epoch_num == 2:
            self.what(trainer)


def fail(error):
    def fail(trainer):
        raise error

    return fail


@pytest.fixture
def outcome(caplog):
    """The messages of the outcome so far; then they are forgotten."""

    def messages():
        found = [record.getMessage() for record in caplog.records if record.name == "tpk.train.run.report"]
        # What ended it is not a part of the outcome.
        found = [each for each in found if not re.match("training |the data ended|interrupted ", each)]
        caplog.clear()
        return found

    with caplog.at_level(logging.INFO, "tpk"):
        yield messages


def train(run_dir, *callbacks, steps=None, max_epoch=3, **options):
    options = {"run_dir": run_dir, "resume": "auto" if run_dir else "never", **options}
    Counting(steps).train(callbacks=callbacks, steps_per_epoch=2, max_epoch=max_epoch, **options)


def test_it_says_why_it_ended_how_long_it_took_and_what_was_best(tmp_path, outcome):
    report = Report(cost=[3.0, 1.0, 2.0], score=[0.25, 0.125, 0.5], error=[0.5, 0.25, 0.125], other=[1, 2, 3])
    train(
        tmp_path,
        report,
        tpk.ModelSaver(),
        tpk.MinSaver("cost"),
        tpk.EarlyStopping("score", 9, mode="max"),
        tpk.PeriodicTrigger(tpk.MinSaver("error"), every_k_epochs=1),
    )
    ending, best, checkpoints = outcome()
    assert re.fullmatch(r"max_epoch=3 is reached: trained 6 steps in [\d.]+ s, [\d.e+]+ steps/s", ending)
    assert best == ("best: cost 1 in epoch 2 (step 4); score 0.5 in epoch 3 (step 6); error 0.125 in epoch 3 (step 6)")
    assert checkpoints == (
        f"checkpoints: the last is {tmp_path / 'model-6'}; the best by cost is {tmp_path / 'min-cost-4'}; "
        f"the best by error is {tmp_path / 'min-error-6'}"
    )


class Precision(tpk.Callback):
    """A callback of somebody else, which says that larger values of its statistic are better."""

    def setup_graph(self, trainer):
        trainer.monitors.set_direction("precision", "max")
        trainer.monitors.set_direction("unclear")

    def trigger(self, trainer):
        trainer.monitors.put_scalar("precision", 1 / trainer.epoch_num)
        trainer.monitors.put_scalar("unclear", 1)


def test_a_callback_says_which_values_of_its_statistic_are_better(tmp_path, outcome):
    train(tmp_path, tpk.PeriodicTrigger(Precision(), every_k_epochs=1), tpk.MinSaver("unclear"))
    assert outcome()[1] == "best: unclear 1 in epoch 1 (step 2); precision 1 in epoch 1 (step 2)"
    train(None, Precision())
    assert outcome()[1] == "best: precision 1 in epoch 1 (step 2)"


def test_the_duration_is_that_of_the_loop(outcome):
    times = iter([10.0, 3735.0])
    trainer = Counting()
    trainer.setup_callbacks()
    with outcome_logged(trainer, None, clock=lambda: next(times)):
        trainer.loop.progress.global_step += 7450
        trainer.loop.max_epoch = 2
    assert outcome() == ["max_epoch=2 is reached: trained 7450 steps in 1:02:05, 2 steps/s"]


@pytest.mark.parametrize(
    ("callbacks", "steps", "reason"),
    [
        ([Do(fail(tpk.StopTraining("it is good")))], None, "it is good"),
        ([Do(lambda trainer: trainer.request_stop("it is late"))], None, "it is late"),
        ([], 2, "the data ended"),
    ],
)
def test_the_reason_of_an_early_end_comes_before(caplog, callbacks, steps, reason):
    caplog.set_level(logging.INFO, "tpk")
    train(None, *callbacks, steps=steps)
    why, outcome = (record.getMessage() for record in caplog.records[-2:])
    assert reason in why
    assert outcome.startswith("trained 2 steps in")


def test_an_interrupt_is_told_and_a_failure_is_not(tmp_path, outcome):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, tpk.ModelSaver(), Do(fail(KeyboardInterrupt())))
    (ending,) = outcome()
    assert ending.startswith("trained 2 steps in")
    with pytest.raises(ArithmeticError):
        train(None, Do(fail(ArithmeticError("bad number"))))
    assert outcome() == []


def test_the_checkpoint_is_named_without_reading_its_gigabytes(tmp_path, caplog):
    def damage(trainer):
        (data,) = tmp_path.glob("model-2.data-*")
        data.write_bytes(bytes(data.stat().st_size))  # A reader would skip it.
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, tpk.ModelSaver(), Do(damage))
    (message,) = [each for each in caplog.messages if each.startswith("interrupted")]
    assert f"saved {tmp_path / 'model-2'}; to resume from it" in message


def test_resuming_what_is_finished_says_so_and_how_to_train_longer(tmp_path, outcome):
    train(tmp_path, tpk.ModelSaver())
    outcome()
    train(tmp_path, tpk.ModelSaver())
    said, checkpoints = outcome()
    assert said == (
        f"nothing to do: the run of {tmp_path / 'model-6'} is finished, max_epoch=3 is reached. To train longer, give "
        "a max_epoch greater than 3."
    )
    assert checkpoints == f"checkpoints: the last is {tmp_path / 'model-6'}"
    train(tmp_path, tpk.ModelSaver(), max_epoch=4)
    assert outcome()[0].startswith("max_epoch=4 is reached: trained 2 steps")


def test_resuming_what_a_callback_has_ended_says_so(tmp_path, outcome):
    def callbacks():
        return [Report(cost=[1.0, 1.0, 1.0]), tpk.ModelSaver(), tpk.EarlyStopping("cost", patience=1)]

    train(tmp_path, *callbacks())
    outcome()
    train(tmp_path, *callbacks())
    assert re.search(r"is finished, cost was 1 at best.*resume it without the callback that ends it", outcome()[0])


def test_a_statistic_whose_time_never_came_is_warned_of(tmp_path, outcome, caplog):
    train(None, tpk.PeriodicTrigger(Report(cost=[1.0] * 3), every_k_epochs=9), tpk.EarlyStopping("cost", patience=9))
    assert outcome()[-1] == "EarlyStopping has never seen the statistic 'cost'. Reported so far: none."


def test_only_the_chief_says_anything(outcome):
    class Other(Counting):
        is_chief = False

    with outcome_logged(Other(), None):
        pass
    assert outcome() == []


def train_model(*callbacks):
    def build_graph(x):
        w = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
        tf.abs(x - w, name="distance")
        tf.cast([w > 0.3], tf.float32, name="correct")
        return tf.reduce_mean((x - w) ** 2, name="cost")

    trainer = tpk.SingleCostTrainer()
    signature = [tf.TensorSpec([], tf.float32, "x")]
    trainer.setup_graph(
        signature, tpk.FeedInput([[1.0]]), build_graph, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1)
    )
    trainer.train(callbacks=[*callbacks, "EpochMeans"], steps_per_epoch=1, max_epoch=3)
    return trainer.history


def test_the_cost_counts_as_best_when_it_is_least(outcome):
    history = train_model()
    assert outcome()[1] == f"best: cost {history['cost'][-1]:.5g} in epoch 3 (step 3)"


def test_the_best_of_an_evaluation_counts_instead_of_the_cost_of_the_training(outcome):
    def evaluation():
        return tpk.InferenceRunner([[1.0]], [tpk.ScalarStats(["cost", "distance"]), tpk.Accuracy("correct")])

    history = train_model(evaluation())
    cost = f"validation_cost {history['validation_cost'][-1]:.5g} in epoch 3 (step 3)"
    # No name says whether a small distance is good.
    assert outcome()[1] == f"best: {cost}; validation_accuracy 1 in epoch 2 (step 2)"
    train_model(evaluation(), tpk.EarlyStopping("validation_distance", 9))
    assert outcome()[1].startswith("best: validation_distance")
