"""Profiles of chosen steps: traces by Chrome's own rules, TensorBoard's profile, and nothing in other steps."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from guarded_trainings import REPLICATED, SIGNATURE, assert_same, cost, data, momentum, train, two_costs

import tpk
from tpk.callbacks import GraphProfiler
from tpk.errors import ConfigError
from tpk.graph.objective import Objective

v1 = tf.compat.v1


def trace_of(path):
    """Return the events of a trace, checked by the rules of Chrome's trace event format."""
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    needed = {"M": {"name", "args"}, "X": {"name", "ts", "dur", "cat"}, "s": {"id", "ts"}, "t": {"id", "ts"}}
    for event in events:
        assert event["ph"] in needed
        assert needed[event["ph"]] | {"pid"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert all(isinstance(event[key], int) and event[key] >= 0 for key in ("ts", "dur", "tid") if key in event)
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {event["pid"] for event in events} == named.keys()
    return events, set(named.values())


def ops_in(path):
    return {event["args"]["name"] for event in trace_of(path)[0] if event["ph"] == "X"}


def host_events(folder):
    """Return the names of what happened on the host, as TensorBoard's profile has them."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = folder.glob("*.xplane.pb")
    planes = xplane_pb2.XSpace.FromString(path.read_bytes()).planes
    return {each.name for plane in planes for each in plane.event_metadata.values()}


def files_in(folder):
    traces = [path.name for path in (*folder.glob("chrome-trace*"), *folder.glob("runmetadata*"))]
    return sorted([*traces, *(path.name for path in folder.glob("plugins/profile/*")), *folder.glob(".profile*")])


@pytest.mark.parametrize(
    "strategy", ["single", REPLICATED, tpk.use("parameter_server", devices=2), tpk.use("async", devices=2)], ids=str
)
def test_chosen_steps_have_a_trace_and_a_profile(tmp_path, strategy):
    train(GraphProfiler([3, 5]), tmp_path, strategy=strategy, make_input=tpk.QueueInput)
    assert files_in(tmp_path) == ["chrome-trace-3.json", "chrome-trace-5.json", "step-3", "step-5"]
    _, processes = trace_of(tmp_path / "chrome-trace-3.json")
    ops = ops_in(tmp_path / "chrome-trace-3.json")
    devices = 1 if strategy == "single" else 2
    prefix = "" if devices == 1 else "tower0/"
    assert f"{prefix}sub" in ops
    if strategy is REPLICATED:
        assert "tower1/sub" in ops
        assert {f"/job:localhost/replica:0/task:0/device:CPU:{index} Compute" for index in (0, 1)} <= processes
    assert any(f"{prefix}sub" in name for name in host_events(tmp_path / "plugins/profile/step-5"))
    assert {"train", "SessionRun"} <= host_events(tmp_path / "plugins/profile/step-3")


def test_the_training_is_the_same_and_other_steps_ask_for_nothing(tmp_path):
    plain = train(tpk.CallbackFactory(before_train=lambda self: None), make_input=tpk.QueueInput)
    profiler, asked = GraphProfiler(range(2, 4), dump_profile=False), []
    spy = tpk.CallbackFactory(
        after_run=lambda self, run_values: asked.append(len(run_values.run_metadata.step_stats.dev_stats))
    )
    profiled = train(profiler, tmp_path, make_input=tpk.QueueInput, callbacks=[spy])
    assert [count > 0 for count in asked] == [False, True, True, False, False, False]
    assert_same(plain.final, profiled.final)
    assert files_in(tmp_path) == ["chrome-trace-2.json", "chrome-trace-3.json"]


def test_metadata_goes_to_a_file_and_to_tensorboard(tmp_path):
    profiler = GraphProfiler(2, dump_tracing=False, dump_profile=False, dump_metadata=True, dump_event=True)
    train(profiler, tmp_path, monitors=["TFEventWriter"])
    metadata = v1.RunMetadata.FromString((tmp_path / "runmetadata-2.pb").read_bytes())
    names = {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}
    assert "sub" in names
    (path,) = tmp_path.glob("events.*")
    events = [event for event in v1.train.summary_iterator(str(path)) if event.HasField("tagged_run_metadata")]
    assert [(event.step, event.tagged_run_metadata.tag) for event in events] == [(2, "step 2")]
    assert v1.RunMetadata.FromString(events[0].tagged_run_metadata.run_metadata) == metadata
    assert files_in(tmp_path) == ["runmetadata-2.pb"]


def test_each_run_of_a_step_has_its_own(tmp_path):
    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update="in_turn")
        objectives = [
            Objective(lambda: v1.train.GradientDescentOptimizer(0.1), name=name, variables=name, every=every)
            for name, every in (("first", 1), ("second", 2))
        ]
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data(count=20)), two_costs, objectives)
        callbacks = [GraphProfiler([3, 4], dump_metadata=True)]
        trainer.train(callbacks=callbacks, steps_per_epoch=3, max_epoch=2, run_dir=tmp_path)
    runs = ("3", "4", "4-run2")
    assert files_in(tmp_path) == sorted(
        [*(f"chrome-trace-{run}.json" for run in runs), *(f"runmetadata-{run}.pb" for run in runs)]
        + [f"step-{run}" for run in runs]
    )
    minimized = [
        {
            name
            for name in ("first", "second")
            if any(name in op for op in ops_in(tmp_path / f"chrome-trace-{run}.json"))
        }
        for run in ("4", "4-run2")
    ]
    assert [("second" in names) for names in minimized] == [False, True]


@pytest.mark.parametrize("dump_profile", [True, False])
def test_of_several_steps_in_a_run_the_one_that_has_the_step_is_profiled(tmp_path, dump_profile):
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(steps_per_run=3)
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data()), cost, momentum)
        profiler = GraphProfiler([5, 6], dump_profile=dump_profile)
        trainer.train(callbacks=[profiler], steps_per_epoch=9, max_epoch=1, run_dir=tmp_path)
    assert files_in(tmp_path) == ["chrome-trace-6.json", *(["step-6"] if dump_profile else [])]
    assert "sub" in ops_in(tmp_path / "chrome-trace-6.json")
    if dump_profile:
        assert any(
            "steps_of_run" in name or "step/" in name for name in host_events(tmp_path / "plugins/profile/step-6")
        )


def test_every_step_that_is_enabled_is_profiled(tmp_path):
    profiler = GraphProfiler(None, dump_profile=False)
    train(tpk.EnableCallbackIf(profiler, lambda self: 2 <= self.global_step < 4), tmp_path)
    assert files_in(tmp_path) == ["chrome-trace-3.json", "chrome-trace-4.json"]


def test_a_resumed_training_profiles_the_rest_and_says_if_there_is_none(tmp_path, caplog):
    stop = tpk.CallbackFactory(trigger_step=lambda self: self.global_step == 4 and self.trainer.request_stop("enough"))
    train(GraphProfiler([2, 7], dump_profile=False), tmp_path, callbacks=[stop], epochs=2, resume="auto")
    assert files_in(tmp_path) == ["chrome-trace-2.json"]
    train(GraphProfiler([2, 7], dump_profile=False), tmp_path, epochs=2, resume="auto")
    assert files_in(tmp_path) == ["chrome-trace-2.json", "chrome-trace-7.json"]
    assert "profiles nothing" not in caplog.text
    train(GraphProfiler([2, 7], dump_profile=False), tmp_path, epochs=3, resume="auto")
    assert "its last step is 7, but 12 steps have completed already" in caplog.text


def test_a_run_that_fails_leaves_no_profiler_behind(tmp_path):
    def fails(x):
        w = v1.get_variable("w", initializer=1.0)
        with tf.control_dependencies([v1.debugging.Assert(x[0] < 0, ["bad data"])]):
            return tf.reduce_sum(w * tf.identity(x))

    with pytest.raises(tf.errors.InvalidArgumentError, match="bad data"):
        train(GraphProfiler(1), tmp_path, func=fails)
    assert files_in(tmp_path) == []
    tf.profiler.experimental.start(str(tmp_path))
    tf.profiler.experimental.stop(save=False)


def test_what_profiles_already_is_told(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    try:
        with pytest.raises(
            ConfigError, match=r"cannot profile step 2: TensorFlow has only one profiler, already running"
        ):
            train(GraphProfiler(2), tmp_path)
    finally:
        tf.profiler.experimental.stop(save=False)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("steps", [0, [3, -1], [2.5], True])
def test_steps_have_numbers_from_one_on(steps):
    with pytest.raises(ConfigError, match="GraphProfiler: steps must be an integer, 1 or more"):
        GraphProfiler(steps)


def test_there_has_to_be_something_to_write_and_a_place_for_it():
    for options in ({"dump_tracing": False, "dump_profile": False}, {"steps": []}):
        with pytest.raises(ConfigError, match=r"nothing to write. Choose a step, and set dump_tracing or dump_profile"):
            GraphProfiler(**options)
    with pytest.raises(ConfigError, match="GraphProfiler needs the directory of the run, but this run has none"):
        train(GraphProfiler())
