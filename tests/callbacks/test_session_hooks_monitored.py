"""TensorFlow's own hooks do under a trainer what they do under a `MonitoredSession`."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import tpk
from tpk.callbacks.session_hooks import HookToCallback

train = tf.compat.v1.train


@attrs.define
class Model:
    """Gradient descent on w², which stays itself; a nan, an error and an end of input can be had at a step."""

    train_op: Any
    cost: Any
    step: Any
    w: Any


def build_model(*, increments: bool, nan_at=None, error_at=None, input_ends_after=None) -> Model:
    step = train.get_or_create_global_step()
    w = tf.compat.v1.get_variable("w", initializer=1.0)
    cost = w.read_value() ** 2
    now = step.read_value()
    if nan_at is not None:
        cost = cost + tf.where(tf.equal(now + 1, nan_at), float("nan"), 0.0)
    if error_at is not None:
        with tf.control_dependencies([tf.debugging.assert_none_equal(now + 1, tf.cast(error_at, tf.int64))]):
            cost = tf.identity(cost)
    if input_ends_after is not None:
        data = tf.data.Dataset.from_tensors(1.0).repeat(input_ends_after)
        cost = cost * tf.compat.v1.data.make_one_shot_iterator(data).get_next()
    cost = tf.identity(cost, name="cost")
    tf.compat.v1.summary.scalar("cost", cost)
    optimizer = train.GradientDescentOptimizer(0.1)
    # Hooks read the global step in the run that increments it. That is a race, here as there, which must not decide.
    with tf.control_dependencies([cost, training_util._get_or_create_global_step_read()]):
        train_op = optimizer.minimize(cost, global_step=step if increments else None)
    return Model(train_op, cost, step, w)


@attrs.define
class Outcome:
    """What a training came to: how many steps it ran, and how it ended."""

    steps: int
    error: type | None
    hooks: list[Any] = attrs.field(eq=False)


MakeHooks = Callable[[Model, Path], list[Any]]


def under_monitored_session(make_hooks: MakeHooks, directory: Path, steps: int, **model: Any) -> Outcome:
    with tf.Graph().as_default():
        built = build_model(increments=True, **model)
        outcome = Outcome(0, None, make_hooks(built, directory))
        try:
            with train.MonitoredSession(hooks=outcome.hooks) as sess:
                while not sess.should_stop() and outcome.steps < steps:
                    sess.run(built.train_op)
                    outcome.steps += 1
        except BaseException as error:
            outcome.error = type(error)
    return outcome


class ModelTrainer(tpk.Trainer):
    def __init__(self, **model):
        super().__init__()
        self.steps_done = 0
        with self.graph.as_default():
            self.model = build_model(increments=False, **model)
            self.train_op = self.model.train_op

    def run_step(self):
        super().run_step()
        self.steps_done += 1


def under_trainer(make_hooks: MakeHooks, directory: Path, steps: int, **model: Any) -> Outcome:
    trainer = ModelTrainer(**model)
    with trainer.graph.as_default():
        outcome = Outcome(0, None, make_hooks(trainer.model, directory))
    try:
        trainer.train(
            callbacks=[HookToCallback(hook) for hook in outcome.hooks],
            monitors=[],
            steps_per_epoch=2,
            max_epoch=steps // 2,
        )
    except BaseException as error:
        outcome.error = type(error)
    outcome.steps = trainer.steps_done
    return outcome


@pytest.fixture
def both(tmp_path):
    """Runs hooks in both ways, checks that they end in the same way, and returns both directories and outcomes."""

    def run(make_hooks: MakeHooks, steps: int = 8, **model: Any):
        runs = []
        for name, way in [("monitored", under_monitored_session), ("trainer", under_trainer)]:
            directory = tmp_path / name
            directory.mkdir()
            runs.append((directory, way(make_hooks, directory, steps, **model)))
            tf.compat.v1.summary.FileWriterCache.clear()
        (_, expected), (_, ours) = runs
        assert ours == expected
        return runs

    return run


def events(directory: Path) -> list[Any]:
    paths = sorted(directory.glob("events.out.tfevents.*"))
    return [event for path in paths for event in train.summary_iterator(str(path))]


def scalars(directory: Path) -> list[tuple[int, str, float]]:
    return [(event.step, value.tag, value.simple_value) for event in events(directory) for value in event.summary.value]


@pytest.mark.parametrize("fail_on_nan", [True, False])
def test_nan_tensor_hook(both, fail_on_nan):
    runs = both(lambda model, _: [train.NanTensorHook(model.cost, fail_on_nan_loss=fail_on_nan)], nan_at=5)
    assert runs[0][1].error is (train.NanLossDuringTrainingError if fail_on_nan else None)
    # The failing step does not return; the one that asks for the end does.
    assert runs[0][1].steps == (4 if fail_on_nan else 5)


@pytest.mark.parametrize("options", [{"every_n_iter": 3}, {"every_n_iter": 2, "at_end": True}, {"at_end": True}])
def test_logging_tensor_hook(both, caplog, options):
    logs = []

    def make_hooks(model, _):
        logs.append(len(caplog.records))
        return [train.LoggingTensorHook({"cost": "cost"}, **options)]

    with caplog.at_level(logging.INFO, "tensorflow"):
        both(make_hooks)
    lines = [[], []]
    for position, record in enumerate(caplog.records):
        if record.name == "tensorflow" and "cost = " in record.getMessage():
            lines[position >= logs[1]].append(re.sub(r" \([\d.]+ sec\)", "", record.getMessage()))
    assert lines[1] == lines[0] != []


@pytest.mark.parametrize("options", [{"last_step": 5}, {"num_steps": 3}, {"last_step": 100}, {"last_step": 1}])
def test_stop_at_step_hook(both, options):
    runs = both(lambda model, _: [train.StopAtStepHook(**options)])
    assert runs[0][1].steps == min(next(iter(options.values())), 8)


def test_step_counter_hook(both):
    runs = both(lambda model, directory: [train.StepCounterHook(every_n_steps=3, output_dir=str(directory))])
    counted = [[(step, tag) for step, tag, _ in scalars(directory)] for directory, _ in runs]
    assert counted[0] == counted[1] != []


@pytest.mark.parametrize("save_steps", [1, 3, 100])
def test_summary_saver_hook(both, save_steps):
    def make_hooks(model, directory):
        merged = tf.compat.v1.summary.merge_all()
        return [train.SummarySaverHook(save_steps, output_dir=str(directory), summary_op=merged)]

    runs = both(make_hooks)
    expected, ours = (scalars(directory) for directory, _ in runs)
    assert ours == expected != []


class Listener(train.CheckpointSaverListener):
    def __init__(self, directory):
        self.directory = directory
        self.calls = []

    def write(self, *call):
        self.calls.append(call)
        (self.directory / "calls.json").write_text(json.dumps(self.calls))

    def begin(self):
        self.write("begin")

    def before_save(self, session, step):
        self.write("before_save", int(step))

    def after_save(self, session, step):
        self.write("after_save", int(step))

    def end(self, session, step):
        self.write("end", int(step))


class StoppingListener(Listener):
    def after_save(self, session, step):
        super().after_save(session, step)
        return step >= 4


@pytest.mark.parametrize("listener", [Listener, StoppingListener])
@pytest.mark.parametrize("own_saver", [True, False])
def test_checkpoint_saver_hook(both, listener, own_saver):
    def make_hooks(model, directory):
        saver = train.Saver(max_to_keep=100) if own_saver else None
        return [train.CheckpointSaverHook(str(directory), save_steps=3, saver=saver, listeners=[listener(directory)])]

    runs = both(make_hooks)
    found = []
    for directory, _ in runs:
        paths = train.get_checkpoint_state(str(directory)).all_model_checkpoint_paths
        readers = [train.load_checkpoint(path) for path in paths]
        found.append(
            {
                "names": [Path(path).name for path in paths],
                "values": [[reader.get_tensor("w"), reader.get_tensor("global_step")] for reader in readers],
                "calls": json.loads((directory / "calls.json").read_text()),
                "events": [(event.step, event.WhichOneof("what")) for event in events(directory)],
                "graph": (directory / "graph.pbtxt").exists(),
            }
        )
    np.testing.assert_array_equal(found[1].pop("values"), found[0].pop("values"))
    assert found[1] == found[0]
    assert len(found[0]["names"]) > 2


def test_profiler_hook(both):
    def make_hooks(model, directory):
        return [train.ProfilerHook(save_steps=3, output_dir=str(directory), show_memory=True)]

    runs = both(make_hooks)
    expected, ours = (sorted(path.name for path in directory.glob("timeline-*.json")) for directory, _ in runs)
    assert ours == expected != []
    for directory, _ in runs:
        for path in directory.glob("timeline-*.json"):
            assert json.loads(path.read_text())["traceEvents"]
    steps = [
        [(event.step, event.tagged_run_metadata.tag) for event in events(directory) if event.tagged_run_metadata.tag]
        for directory, _ in runs
    ]
    assert steps[0] == steps[1] != []


@pytest.mark.parametrize("model", [{}, {"input_ends_after": 5}, {"error_at": 5}])
def test_final_ops_hook(both, model):
    runs = both(lambda built, _: [train.FinalOpsHook({"step": built.step, "w": built.w})], **model)
    expected, ours = (outcome.hooks[0].final_ops_values for _, outcome in runs)
    assert ours == expected
    assert (expected is None) == ("error_at" in model)


def test_global_step_waiter_and_feeding_hooks(both):
    """Hooks that feed, and hooks that look at the step before the run."""

    def make_hooks(model, _):
        fed = tf.compat.v1.placeholder_with_default(0.0, [])
        feeding = train.FeedFnHook(lambda: {fed: 3.0})
        return [feeding, train.GlobalStepWaiterHook(0), train.FinalOpsHook(fed)]

    runs = both(make_hooks)
    assert runs[1][1].hooks[2].final_ops_values == runs[0][1].hooks[2].final_ops_values == 0.0


def test_a_feeding_hook_without_more_data_ends_the_training_in_good_order(both):
    def make_hooks(model, _):
        fed, values = tf.compat.v1.placeholder_with_default(0.0, []), iter([1.0, 2.0, 3.0])
        return [train.FeedFnHook(lambda: {fed: next(values)}), train.FinalOpsHook(model.step)]

    runs = both(make_hooks)
    assert runs[1][1].hooks[1].final_ops_values == runs[0][1].hooks[1].final_ops_values == 3


class Recording(train.SessionRunHook):
    """Records its calls, and does something at one of them."""

    def __init__(self, name, log, at=None, act=None):
        self.name, self.log, self.at, self.act = name, log, at, act
        self.runs = 0

    def record(self, call, *arguments):
        self.log.append((self.name, call, self.runs))
        if self.at == (call, self.runs):
            self.act(self, *arguments)

    def begin(self):
        self.record("begin")

    def after_create_session(self, session, coord):
        self.coord = coord
        self.record("after_create_session", coord)

    def before_run(self, run_context):
        self.runs += 1
        self.record("before_run", run_context)

    def after_run(self, run_context, run_values):
        self.record("after_run", run_context)

    def end(self, session):
        self.record("end")


def raising(error):
    def act(hook, *_):
        raise error

    return act


def request_stop(hook, run_context):
    run_context.request_stop()


def stop_coordinator(hook, *_):
    hook.coord.request_stop()


def report_to_coordinator(hook, *_):
    def fail():
        with hook.coord.stop_on_exception():
            raise ValueError("in a thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("at", "act", "model"),
    [
        (None, None, {}),
        (("before_run", 3), request_stop, {}),
        (("after_run", 3), request_stop, {}),
        (("before_run", 3), raising(ValueError("broken")), {}),
        (("after_run", 3), raising(ValueError("broken")), {}),
        (("after_run", 3), raising(KeyboardInterrupt()), {}),
        (("after_run", 3), raising(tf.errors.OutOfRangeError(None, None, "over")), {}),
        (("before_run", 3), raising(StopIteration()), {}),
        (("after_run", 3), raising(StopIteration()), {}),
        (("after_run", 3), stop_coordinator, {}),
        (("after_run", 3), report_to_coordinator, {}),
        (("after_create_session", 0), raising(ValueError("broken")), {}),
        (None, None, {"input_ends_after": 3}),
        (None, None, {"error_at": 3}),
    ],
    ids=[
        "last_step",
        "stop_before_run",
        "stop_after_run",
        "error_before_run",
        "error_after_run",
        "interrupt",
        "out_of_range",
        "stop_iteration_before_run",
        "stop_iteration_after_run",
        "coordinator_stopped",
        "error_in_thread",
        "error_after_create_session",
        "input_ends",
        "error_in_step",
    ],
)
def test_two_hooks_are_called_at_the_same_times_and_the_training_ends_in_the_same_way(both, at, act, model):
    logs = []

    def make_hooks(built, _):
        logs.append([])
        return [Recording("first", logs[-1], at, act), Recording("second", logs[-1])]

    both(make_hooks, **model)
    assert logs[1] == logs[0]


def test_unlike_under_a_monitored_session_a_failing_end_does_not_rob_the_others(both):
    logs = []

    def make_hooks(built, _):
        logs.append([])
        return [Recording("first", logs[-1], ("end", 8), raising(ValueError("broken"))), Recording("second", logs[-1])]

    both(make_hooks)
    assert logs[1] == [*logs[0], ("second", "end", 8)]
