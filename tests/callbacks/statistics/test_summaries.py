from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tpk.callbacks.statistics.merged_summaries import MergeAllSummaries, MovingAverageSummary, SimpleMovingAverage
from tpk.errors import ConfigError
from tpk.graph.reports.summary_ops import add_moving_summary
from tpk.monitors import JSONWriter, Monitor, TFEventWriter
from tpk.plugin import Callback
from tpk.train.trainer import Trainer

v1 = tf.compat.v1


class Counting(Trainer):
    """Each step counts a variable up by one; ``count`` is its value after the step."""

    def __init__(self, build=lambda count: None):
        super().__init__()
        with self.graph.as_default():
            variable = v1.get_variable("variable", [], initializer=v1.zeros_initializer(), trainable=False)
            self.train_op = tf.identity(v1.assign_add(variable, 1.0), name="count")
            build(self.train_op)


class Scalars(Monitor):
    """Keeps the scalars as (step, value), by name."""

    def __init__(self):
        self.values = {}

    def process_scalar(self, name, value):
        self.values.setdefault(name, []).append((self.global_step, value))


def train(trainer, *callbacks, **options):
    scalars = Scalars()
    options = {"steps_per_epoch": 4, "max_epoch": 2, "monitors": [scalars], **options}
    trainer.train(callbacks=callbacks, **options)
    return scalars.values


def average(steps, decay=0.95):
    values = np.arange(1, steps + 1)
    return np.average(values, weights=decay ** (steps - values))


def test_moving_averages_are_maintained_in_each_step_and_shown_in_each_epoch():
    values = train(Counting(add_moving_summary), MovingAverageSummary(), MergeAllSummaries())
    assert values == {"count/EMA": [(4, pytest.approx(average(4), rel=1e-5)), (8, pytest.approx(average(8), rel=1e-5))]}


def test_a_summary_belongs_to_the_epoch_in_which_callbacks_see_it():
    class Reader(Callback):
        def trigger_epoch(self, trainer):
            seen.append(trainer.monitors.get_latest("count"))

    seen = []
    train(Counting(lambda count: v1.summary.scalar("count-summary", count)), Reader(), MergeAllSummaries())
    assert seen == [4, 8]


def test_without_summaries_a_step_is_the_bare_step():
    class Watch(Callback):
        def before_run(self, run_context):
            requests.append((averages.before_run(run_context), merge.before_run(run_context)))

    requests = []
    averages, merge = MovingAverageSummary(), MergeAllSummaries(period=1)
    assert train(Counting(), averages, merge, Watch()) == {}
    assert requests == [(None, None)] * 8


def test_requests_are_the_same_object_each_time():
    averages, merge = MovingAverageSummary(), MergeAllSummaries(period=1)

    class Watch(Callback):
        def before_run(self, run_context):
            requests.update([id(averages.before_run(run_context)), id(merge.before_run(run_context))])

    requests = set()
    train(Counting(add_moving_summary), averages, merge, Watch())
    assert len(requests) == 2


def test_several_updates_run_as_one():
    def build(count):
        add_moving_summary(count)
        add_moving_summary(tf.negative(count, name="less"))

    callback = MovingAverageSummary()
    values = train(Counting(build), callback, MergeAllSummaries(), max_epoch=1)
    assert values["less/EMA"] == [(4, -values["count/EMA"][0][1])]
    assert callback.before_run(None).type == "NoOp"


@pytest.mark.parametrize("by_name", [True, False])
def test_averages_can_go_with_an_op(by_name):
    class Twice(Counting):
        def run_step(self):
            self.hooked_sess.run(self.train_op)
            self.hooked_sess.run(self.other)

        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.other = tf.no_op("other")
                add_moving_summary(tf.constant(1.0, name="one"), collection="mine")

    trainer = Twice()
    callback = MovingAverageSummary("mine", train_op="other" if by_name else trainer.other)

    class Weights(Callback):
        def trigger_epoch(self, trainer):
            (variable,) = [each for each in v1.global_variables() if each.op.name.startswith("EMA/")]
            weights.append(trainer.sess.run(variable)[-1])

    weights = []
    train(trainer, callback, Weights(), max_epoch=1)
    assert weights == [pytest.approx(1 - 0.95**4)], "updated once in each of the four steps"


def test_a_missing_op_is_an_error_that_names_it():
    with pytest.raises(KeyError, match="train_up"):
        train(Counting(add_moving_summary), MovingAverageSummary(train_op="train_up"))


def show_count(count):
    v1.summary.scalar("count-summary", count)


@pytest.mark.parametrize(
    ("period", "steps"), [(0, [4, 8]), (1, list(range(1, 9))), (2, [2, 4, 6, 8]), (3, [3, 4, 7, 8]), (9, [4, 8])]
)
def test_summaries_are_evaluated_along_with_steps(period, steps):
    values = train(Counting(show_count), MergeAllSummaries(period=period))
    assert values == {"count": [(step, step) for step in steps]}


@pytest.mark.parametrize(("period", "steps"), [(0, [4, 8]), (1, list(range(1, 9))), (3, [3, 4, 7, 8]), (4, [4, 8])])
def test_summaries_are_evaluated_alone(period, steps):
    def build(count):
        v1.summary.scalar("variable-summary", v1.global_variables()[0])

    values = train(Counting(build), MergeAllSummaries(period=period, run_alone=True))
    assert values == {"variable": [(step, step) for step in steps]}


def test_a_refined_evaluation_may_leave_out_the_trainer():
    class Noting(MergeAllSummaries):
        def trigger(self):
            super().trigger(self.trainer)

    def build(count):
        v1.summary.scalar("variable-summary", v1.global_variables()[0])

    values = train(Counting(build), Noting(period=3, run_alone=True))
    assert values == {"variable": [(step, step) for step in (3, 4, 7, 8)]}


def test_summaries_of_what_is_fed_cannot_be_evaluated_alone():
    def build(count):
        v1.summary.scalar("fed", v1.placeholder(tf.float32, []))

    with pytest.raises(ConfigError, match="the summaries depend on what is fed with each step"):
        train(Counting(build), MergeAllSummaries(run_alone=True))


def test_only_the_hooks_that_are_needed_are_implemented():
    def hooks(**options):
        return set(MergeAllSummaries(**options).hook_implementations())

    always = {"setup_graph"}
    assert hooks() == hooks(period=2) == always | {"before_run", "after_run"}
    assert hooks(run_alone=True) == always | {"trigger_epoch"}
    assert hooks(run_alone=True, period=2) == always | {"trigger_epoch", "trigger_step"}


class TwoRuns(Counting):
    """Each step makes two runs."""

    def run_step(self):
        self.hooked_sess.run(self.train_op)
        self.hooked_sess.run(self.train_op)


def test_a_step_of_several_runs_is_summarized_once():
    values = train(TwoRuns(show_count), MergeAllSummaries())
    assert [value for _, value in values["count"]] == [7, 15]


def test_another_collection_can_be_summarized():
    def build(count):
        v1.summary.scalar("mine-summary", count, collections=["mine"])
        v1.summary.scalar("other-summary", count)

    assert set(train(Counting(build), MergeAllSummaries(key="mine"))) == {"mine"}


def test_a_negative_period_is_an_error():
    with pytest.raises(ConfigError, match="period must be an integer, 0 or more, not -1"):
        MergeAllSummaries(period=-1)


def test_simple_moving_averages_are_reported_once_in_each_window():
    callback = SimpleMovingAverage(["count", "twice:0"], window_size=3)
    values = train(Counting(lambda count: tf.multiply(count, 2, name="twice")), callback)
    assert values == {"count/SMA": [(3, 2), (6, 5)], "twice/SMA": [(3, 4), (6, 10)]}


def test_simple_moving_averages_of_tensors():
    trainer = Counting()
    assert train(trainer, SimpleMovingAverage([trainer.train_op], 4)) == {"count/SMA": [(4, 2.5), (8, 6.5)]}


def test_a_window_counts_steps_not_runs():
    values = train(TwoRuns(), SimpleMovingAverage(["count"], 4))
    assert values == {"count/SMA": [(4, np.mean([1, 3, 5, 7])), (8, np.mean([9, 11, 13, 15]))]}


def test_a_window_survives_a_restart():
    first, second = SimpleMovingAverage(["count"], 4), SimpleMovingAverage(["count"], 4)
    assert train(Counting(), first, steps_per_epoch=3, max_epoch=1) == {}
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    values = train(Counting(), second, steps_per_epoch=1, max_epoch=1)
    assert values == {"count/SMA": [(1, np.mean([1, 2, 3, 1]))]}


def test_simple_moving_averages_check_what_they_are_given():
    with pytest.raises(ConfigError, match="list of tensors"):
        SimpleMovingAverage("cost", 10)
    with pytest.raises(ConfigError, match="window_size must be an integer, 1 or more, not 0"):
        SimpleMovingAverage(["cost"], 0)
    with pytest.raises(ConfigError, match="no tensor 'cost'"):
        train(Counting(), SimpleMovingAverage(["cost"], 10))
    with pytest.raises(ConfigError, match=r"'losses:0' has the shape \(3,\)"):
        train(Counting(lambda count: tf.zeros([3], name="losses")), SimpleMovingAverage(["losses"], window_size=10))


def test_files_of_a_whole_training(tmp_path):
    class Evaluate(Callback):
        def trigger_epoch(self, trainer):
            trainer.monitors.put_scalar("val-error", 1 / trainer.epoch_num)

    run_dir = tmp_path / "run"
    train(
        Counting(add_moving_summary),
        Evaluate(),
        MovingAverageSummary(),
        MergeAllSummaries(),
        monitors=[TFEventWriter(), JSONWriter()],
        run_dir=run_dir,
    )
    rows = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text().splitlines()]
    assert [(row["epoch_num"], row["global_step"], row["val-error"]) for row in rows] == [(1, 4, 1.0), (2, 8, 0.5)]
    assert rows[1]["count/EMA"] == pytest.approx(average(8), rel=1e-5)
    board = EventAccumulator(str(run_dir)).Reload()
    assert set(board.Tags()["scalars"]) == {"count/EMA", "val-error"}
    assert [(each.step, each.value) for each in board.Scalars("val-error")] == [(4, 1.0), (8, 0.5)]
    assert board.Tags()["graph"]


def test_a_broken_monitor_does_not_stop_a_training(caplog):
    class Broken(Monitor):
        def process_scalar(self, name, value):
            raise OSError("gone")

        def before_run(self, run_context):
            raise OSError("no request")

    scalars = Scalars()
    train(Counting(show_count), MergeAllSummaries(period=1), monitors=[Broken(), scalars])
    assert len(scalars.values["count"]) == 8
    assert "Broken is disabled" in caplog.text
    assert "Broken failed in" in caplog.records[-1].getMessage() or "Broken failed in" in caplog.text


def test_a_monitor_without_a_run_dir_is_an_error_before_training():
    steps = []

    class Steps(Callback):
        def trigger_step(self, trainer):
            steps.append(trainer.local_step)

    with pytest.raises(ConfigError, match="JSONWriter needs the directory of the run"):
        train(Counting(), Steps(), monitors=["JSONWriter"])
    assert steps == []


def test_a_monitor_can_fetch_along_with_the_step():
    class Fetch(Monitor):
        def before_train(self, trainer):
            self.count = trainer.train_op

        def before_run(self, run_context):
            return self.count

        def after_run(self, run_values):
            fetched.append(float(run_values.results))

    fetched = []
    train(Counting(), monitors=[Fetch()], max_epoch=1)
    assert fetched == [1, 2, 3, 4]
