from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from registered import RegisteredMonitors

from tpk.checkpoint.encoding import decode, encode
from tpk.errors import StopTraining, UnknownScalarError
from tpk.monitors import Monitor, Monitors, ReportedValueError
from tpk.plugin import Callback
from tpk.plugin.implementations import implementations_of


class Recorder(Monitor):
    """Keeps everything that arrives."""

    def __init__(self):
        self.scalars = []
        self.images = []
        self.histograms = []
        self.summaries = []
        self.events = []
        self.flushes = 0

    def process_scalar(self, name, value):
        self.scalars.append((self.global_step, name, value))

    def process_image(self, name, images):
        self.images.append((name, images))

    def process_histogram(self, name, values):
        self.histograms.append((name, values))

    def process_summary(self, summary):
        self.summaries.append(summary)

    def process_event(self, event):
        self.events.append(event)

    def flush(self):
        self.flushes += 1


class Broken(Monitor):
    def process_scalar(self, name, value):
        raise OSError("gone")

    def trigger_epoch(self, trainer):
        raise OSError("gone")


def test_a_scalar_reaches_every_monitor_and_the_history(trainer):
    first, second = Recorder(), Recorder()
    monitors = RegisteredMonitors(trainer, first, second)
    trainer.global_step = 5
    monitors.put_scalar("val error, %", np.float32(0.5))
    trainer.global_step = 7
    monitors.put_scalar("val error, %", 1)
    assert first.scalars == second.scalars == [(5, "val error, %", 0.5), (7, "val error, %", 1)]
    assert first.summaries[0].value[0].simple_value == 0.5
    assert monitors.get_history("val error, %") == [(5, 0.5), (7, 1.0)]
    assert monitors.get_latest("val error, %") == 1.0
    assert monitors.names == ["val error, %"]


def test_an_invalid_scalar_is_an_error_of_the_caller(trainer):
    with pytest.raises(ReportedValueError, match="'cost'"):
        RegisteredMonitors(trainer, Recorder()).put_scalar("cost", [1, 2])
    with pytest.raises(UnknownScalarError, match="Reported so far: none"):
        RegisteredMonitors(trainer).get_latest("cost")


def test_scalars_of_a_summary_arrive_as_scalars_too(trainer):
    recorder = Recorder()
    monitors = RegisteredMonitors(trainer, recorder)
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        with tf.name_scope("tower0"):
            tf.compat.v1.summary.scalar("cost-summary", tf.constant(0.5))
            tf.compat.v1.summary.histogram("weights", tf.constant([1.0, 2.0]))
        serialized = sess.run(tf.compat.v1.summary.merge_all())
    monitors.put_summary(serialized)
    assert recorder.scalars == [(0, "cost", 0.5)]
    assert monitors.get_latest("cost") == 0.5
    (summary,) = recorder.summaries
    assert [value.tag for value in summary.value] == ["cost", "weights"]


def test_an_image_and_a_histogram_arrive_as_values_and_as_summaries(trainer):
    recorder = Recorder()
    monitors = RegisteredMonitors(trainer, recorder)
    monitors.put_image("digits", np.zeros((2, 8, 8, 1)))
    monitors.put_histogram("weights", np.arange(6).reshape(2, 3))
    assert recorder.images[0][1].shape == (2, 8, 8, 1)
    assert recorder.histograms[0][1].tolist() == [0, 1, 2, 3, 4, 5]
    assert [value.tag for value in recorder.summaries[0].value] == ["digits/0", "digits/1"]
    assert recorder.summaries[1].value[0].histo.num == 6


def test_values_that_are_not_finite_are_left_out_of_a_histogram_with_a_warning(trainer, caplog):
    recorder = Recorder()
    monitors = RegisteredMonitors(trainer, recorder)
    monitors.put_histogram("weights", [1.0, np.nan, np.inf])
    monitors.put_histogram("all bad", [np.nan])
    assert [(name, values.tolist()) for name, values in recorder.histograms] == [("weights", [1.0])]
    assert "'weights' in step 0: 2 of 3 values are not finite" in caplog.text
    assert "'all bad' in step 0: 1 of 1" in caplog.text


def test_an_event_gets_step_and_time(trainer):
    recorder = Recorder()
    trainer.global_step = 12
    event = tf.compat.v1.Event()
    event.tagged_run_metadata.tag = "step12"
    RegisteredMonitors(trainer, recorder, clock=lambda: 1234.5).put_event(event)
    (arrived,) = recorder.events
    assert (arrived.step, arrived.wall_time, arrived.tagged_run_metadata.tag) == (12, 1234.5, "step12")
    assert event.step == 0, "the caller's event is not changed"
    with pytest.raises(ReportedValueError, match="put_event"):
        RegisteredMonitors(trainer).put_event("now")


def test_a_broken_monitor_does_not_affect_the_others(trainer, caplog):
    recorder = Recorder()
    monitors = RegisteredMonitors(trainer, Broken(), recorder)
    for _ in range(7):
        monitors.put_scalar("cost", 1)
        monitors.call("trigger_epoch")
    assert len(recorder.scalars) == recorder.flushes == 7
    monitors.call("after_train")
    assert "Broken is disabled" in caplog.text
    assert "Broken failed in 9 of 14 calls and was disabled" in caplog.records[-1].getMessage()


def test_a_stop_request_does_not_keep_a_report_from_other_monitors(trainer):
    class Stop(Monitor):
        def process_scalar(self, name, value):
            raise StopTraining("good enough")

    recorder = Recorder()
    RegisteredMonitors(trainer, Stop(), recorder).put_scalar("cost", 0)
    assert recorder.scalars == [(0, "cost", 0)]
    assert trainer.stop_reasons == ["good enough"]


def test_only_the_chief_has_monitors_but_every_process_has_the_history(trainer):
    recorder = Recorder()
    monitors = RegisteredMonitors(trainer, recorder, is_chief=False)
    monitors.put_scalar("cost", 0.5)
    monitors.call("trigger_epoch")
    monitors.call("after_train")
    assert recorder.scalars == []
    assert recorder.flushes == 0
    assert monitors.get_latest("cost") == 0.5


def test_only_hooks_that_a_monitor_implements_are_registered():
    class EachStep(Monitor):
        def trigger_step(self, trainer):
            pass

    # It flushes at the end of each epoch and of the training.
    assert set(EachStep().hook_implementations()) == {"trigger_step", "trigger_epoch", "after_train"}
    assert set(Recorder().hook_implementations()) == {"trigger_epoch", "after_train"}


def test_monitors_begin_first_and_end_last():
    class All(Recorder):
        def before_train(self, trainer):
            pass

    order = {each.hook: each.place for each in implementations_of(All())}
    assert order["before_train"] == -1
    assert order["trigger_epoch"] == order["after_train"] == 1


def test_reports_of_the_last_hooks_are_flushed(trainer):
    class Reporting(Callback):
        def trigger_epoch(self, trainer):
            monitors.put_scalar("cost", 1)

    class Flushing(Recorder):
        def flush(self):
            self.flushed = len(self.scalars)

    flushing = Flushing()
    monitors = RegisteredMonitors(trainer, flushing)
    monitors.hooks.register(Reporting())
    monitors.call("trigger_epoch")
    assert flushing.flushed == 1


def test_each_monitor_is_registered_under_its_own_name(trainer):
    first, second, other = Recorder(), Recorder(), Broken()
    monitors = RegisteredMonitors(trainer, first, second, other)
    assert monitors.hooks.plugins == {"Recorder": first, "Recorder#2": second, "Broken": other}
    assert [first.plugin_name, second.plugin_name, other.plugin_name] == ["Recorder", "Recorder#2", "Broken"]


def test_the_state_survives_a_restart(trainer):
    class Counting(Monitor):
        count = 0

        def process_scalar(self, name, value):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    recorder = Recorder()
    monitors = RegisteredMonitors(trainer, Counting(), recorder)
    monitors.put_scalar("cost", float("nan"))
    state = decode(json.loads(json.dumps(encode(monitors.state_dict()), allow_nan=False)))
    assert recorder.flushes == 1, "what the state takes for reported is brought to the disk first"

    counting = Counting()
    resumed = RegisteredMonitors(trainer, counting)
    resumed.load_state_dict(state)
    resumed.put_scalar("cost", 0.5)
    assert counting.count == 2
    np.testing.assert_array_equal(resumed.get_history("cost"), [(0, np.nan), (0, 0.5)])
    RegisteredMonitors(trainer).load_state_dict(state)


def warnings_of_duplicates(caplog):
    return [record.getMessage() for record in caplog.records if "was reported twice" in record.getMessage()]


def test_a_scalar_that_is_reported_twice_in_one_step_is_warned_about_once(trainer, caplog):
    trainer.monitors = Monitors(trainer)
    for trainer.global_step in (5, 10):
        trainer.monitors.put_scalar("error", 1.0)
        trainer.monitors.put_scalar("error", 2.0)
    (warning,) = warnings_of_duplicates(caplog)
    assert "'error' was reported twice in step 5" in warning
    assert trainer.monitors.get_history("error") == [(5, 1.0), (5, 2.0), (10, 1.0), (10, 2.0)]


def test_a_value_in_a_summary_counts_as_a_report(trainer, caplog):
    trainer.monitors = Monitors(trainer)
    trainer.monitors.put_scalar("error", 1.0)
    trainer.monitors.put_summary(
        tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag="error", simple_value=1.0)])
    )
    assert len(warnings_of_duplicates(caplog)) == 1


def test_reports_of_other_steps_and_of_a_resumed_run_are_no_duplicates(trainer, caplog):
    trainer.monitors = Monitors(trainer)
    for trainer.global_step in (5, 6):
        trainer.monitors.put_scalar("error", 1.0)
        trainer.monitors.put_scalar("cost", 1.0)
    # A resumed run may report the step of its checkpoint again.
    resumed = Monitors(trainer)
    resumed.load_state_dict(decode(encode(trainer.monitors.state_dict())))
    resumed.put_scalar("error", 1.0)
    assert warnings_of_duplicates(caplog) == []
