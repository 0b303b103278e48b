"""Hangs are noticed in time, described, and end the training."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.guards.hangs import Watchdog
from tpk.dataflow import DataFromGenerator
from tpk.errors import HangError
from tpk.hang_watcher import HangWatcher

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([], tf.float32, "x")]


class Hanging:
    """Data that hangs after some datapoints, until it is released or interrupted."""

    def __init__(self, after=3):
        self.after = after
        self.released = threading.Event()

    def __call__(self):
        for number in range(self.after):
            yield [np.float32(number)]
        # Much longer than the test may take.
        self.released.wait(60)


@pytest.fixture
def hanging():
    data = Hanging()
    yield data
    data.released.set()


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    yield
    assert not [thread for thread in threading.enumerate() if thread.name in ("tpk-Watchdog", "tpk-HangWatcher")]


class Ending(tpk.Callback):
    """Whether the session can be used at the end."""

    def after_train(self, trainer):
        self.failure = trainer.loop.failure
        self.value = trainer.sess.run(v1.global_variables()[0])


def build(source, func=lambda w, x: w * x):
    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(
        SIGNATURE,
        source,
        lambda x: func(v1.get_variable("w", [], initializer=v1.zeros_initializer()), x),
        lambda: v1.train.GradientDescentOptimizer(0.1),
    )
    return trainer


def train(source, watchdog, *callbacks, epochs=1, **options):
    with tf.Graph().as_default():
        trainer = build(source, **options)
        trainer.train(callbacks=[watchdog, *callbacks], steps_per_epoch=10, max_epoch=epochs)


SHORT = 3
"""Seconds: longer than what does not hang takes on a busy machine."""


def watchdog(**options):
    return Watchdog(**{"timeout": SHORT, **options})


def test_a_step_that_waits_for_a_queue_is_ended_and_the_session_stays_open(hanging, caplog, monkeypatch):
    monkeypatch.setattr("tpk.input_source.data_thread.STOP_TIMEOUT", 0.1)
    ending = Ending()
    source = tpk.QueueInput(DataFromGenerator(hanging))
    with pytest.raises(
        HangError, match=r"no progress for .* s, longer than a step may take \(3 s\), in epoch 1, step 4"
    ):
        train(source, watchdog(), ending)
    assert isinstance(ending.failure, HangError)
    assert ending.value == pytest.approx(-0.3)
    report = next(message for message in caplog.messages if "no progress for" in message)
    assert "input: QueueInput\ndatapoints that steps have asked for: 4\ndatapoints in its queue: 0\n" in report
    assert re.search(r"thread MainThread .*\n(.*\n)*.*hooked_sess.run", report)
    assert re.search(r"thread tpk-QueueInput .*\n(.*\n)*.*self.released.wait\(60\)", report)
    assert not [message for message in caplog.messages if "closing the session" in message]


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_data_code_that_hangs_in_the_step_raises_the_error_when_it_returns(hanging, when_logged, in_main_thread):
    def run():
        with pytest.raises(HangError, match="step 4 "):
            train(tpk.FeedInput(DataFromGenerator(hanging)), watchdog())
        done.append(True)

    done = []
    when_logged("closing the session", hanging.released.set)
    if in_main_thread:
        run()
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
    assert done


class Waiting(tpk.Callback):
    def __init__(self, hook):
        self.released = threading.Event()
        setattr(self, hook, lambda trainer: self.released.wait(60))


@pytest.mark.parametrize(
    ("hook", "options", "step"),
    [
        ("trigger_step", {}, 1),
        ("trigger_epoch", {"between_epochs_timeout": SHORT}, 10),
        ("before_train", {}, 0),
    ],
)
def test_a_callback_that_hangs_raises_the_error_when_it_returns(hook, options, step, when_logged):
    waiting = Waiting(hook)
    when_logged("closing the session", waiting.released.set)
    with pytest.raises(HangError, match=f"step {step} "):
        train(tpk.DummyConstantInput([[]]), watchdog(**options), waiting)


def test_a_run_that_no_input_source_can_end_is_cancelled_with_the_session(caplog):
    def func(w, x):
        return w * x * v1.get_default_graph().hole.dequeue()

    with tf.Graph().as_default() as graph:
        graph.hole = tf.queue.FIFOQueue(1, [tf.float32], [[]])
        trainer = build(tpk.DummyConstantInput([[]]), func)
        with pytest.raises(HangError, match="longer than a first step may take"):
            trainer.train(callbacks=[watchdog(timeout=SHORT / 10)], steps_per_epoch=1, max_epoch=1)
    assert "closing the session, which cancels its runs" in caplog.messages


class Dequeues(tpk.Callback):
    """Takes from an empty queue, in a run of its own."""

    def __init__(self, queue=None):
        self.queue = queue

    def setup_graph(self, trainer):
        self.value = (self.queue or trainer.input_source.queue).dequeue()

    def trigger_epoch(self, trainer):
        trainer.sess.run(self.value)


def test_a_callback_that_waits_for_the_queue_of_the_input_does_not_end_the_training_cleanly(hanging, monkeypatch):
    monkeypatch.setattr("tpk.input_source.data_thread.STOP_TIMEOUT", 0.1)
    hanging.after = 10
    source = tpk.QueueInput(DataFromGenerator(hanging))
    with pytest.raises(HangError, match="step 10 "):
        train(source, watchdog(between_epochs_timeout=SHORT), Dequeues)


def test_the_error_of_a_cancelled_run_outside_of_the_steps_says_why():
    with tf.Graph().as_default():
        trainer = build(tpk.DummyConstantInput([[]]))
        callbacks = [watchdog(between_epochs_timeout=SHORT), Dequeues(tf.queue.FIFOQueue(1, [tf.float32], [[]]))]
        with pytest.raises(tf.errors.CancelledError) as caught:
            trainer.train(callbacks=callbacks, steps_per_epoch=1, max_epoch=1)
    assert any("interrupted: no progress for" in note for note in caught.value.__notes__)


def test_each_phase_has_its_timeout_and_is_reported_again_after_twice_the_time(caplog, monkeypatch):
    now = [0.0]
    watcher = HangWatcher(lambda: now[0])
    monkeypatch.setattr("tpk.callbacks.guards.hangs.hang_watcher", watcher)
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        dog = Watchdog(10, between_epochs_timeout=100)
        dog.trainer = trainer
        dog.before_train(trainer)

        def warnings_at(*times):
            caplog.clear()
            for now[0] in times:
                watcher.look()
            reports = [re.search("for (.*?) s, longer than a (.*?) may", message) for message in caplog.messages]
            return [report.groups() for report in reports if report]

        assert warnings_at(0, 99) == []
        assert warnings_at(100, 150, 199) == [("100", "first step")]
        dog.before_epoch(trainer)
        trainer.loop.progress.local_step = trainer.loop.progress.global_step = 1
        assert warnings_at(200, 209.9) == []
        assert warnings_at(210, 219, 220, 239, 240) == [("10", "step"), ("20", "step"), ("40", "step")]
        trainer.loop.progress.global_step = 2
        assert warnings_at(241, 250) == []
        dog.after_epoch(trainer)
        assert warnings_at(251, 350) == []
        assert warnings_at(351) == [("100", "time between epochs")]
        dog.before_epoch(trainer)
        assert warnings_at(360, 369) == []
        assert warnings_at(370) == [("10", "step")]
        watcher.unwatch(dog)


def test_nothing_is_said_of_a_training_that_goes_on(caplog):
    flow = DataFromGenerator(lambda: iter([[np.float32(1)]] * 5))
    train(tpk.QueueInput(flow), watchdog(timeout=30), epochs=3)
    assert not [message for message in caplog.messages if "no progress" in message]


STUCK = """
import sys
import tensorflow as tf
import tpk
from tpk.callbacks.guards.hangs import Watchdog

class Stuck(tpk.Callback):
    def trigger_step(self, trainer):
        # Lets no other thread run Python, like an extension that keeps the lock.
        sys.setswitchinterval(1e9)
        while True:
            pass

with tf.Graph().as_default():
    trainer = tpk.Trainer()
    trainer.train_op = tf.no_op()
    dog = Watchdog(timeout=0.02, exit_after=0.5)
    trainer.train(callbacks=[dog, Stuck], steps_per_epoch=1, max_epoch=1)
"""


def test_what_cannot_be_interrupted_ends_with_the_process_if_that_is_wanted():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", STUCK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 1
    assert "Timeout (" in done.stderr
    assert re.search(r'File "<string>", line \d+ in trigger_step', done.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be positive, not 0"),
        ({"timeout": 5, "between_epochs_timeout": -1}, "between_epochs_timeout must be positive, not -1"),
        ({"timeout": 5, "exit_after": 0}, "exit_after must be positive, not 0"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        Watchdog(**options)
