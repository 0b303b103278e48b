"""Hangs: noticed in time, described, and ended wherever the training is stuck."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.guards.hangs import Interruption, Watchdog, describe_children
from tpk.dataflow import DataFromGenerator
from tpk.errors import HangError

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
    watched = sorted(signal.valid_signals() - {signal.SIGALRM})  # that one is for the limit of the tests
    signals = [signal.getsignal(signum) for signum in watched]
    yield
    assert not [thread for thread in threading.enumerate() if thread.name in ("tpk-Watchdog", "tpk-HangWatcher")]
    assert [signal.getsignal(signum) for signum in watched] == signals


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
    return Watchdog(**{"timeout": SHORT, "first_step_timeout": 60, "grace": 1, **options})


def test_a_step_that_waits_for_a_queue_is_ended_and_the_session_stays_open(hanging, caplog, monkeypatch):
    monkeypatch.setattr("tpk.input_source.threads.STOP_TIMEOUT", 0.1)
    ending = Ending()
    source = tpk.QueueInput(DataFromGenerator(hanging))
    with pytest.raises(
        HangError, match=r"not gone on for .* s, longer than a step may take \(3 s\), in epoch 1, step 4"
    ):
        train(source, watchdog(), ending)
    assert isinstance(ending.failure, HangError)
    assert ending.value == pytest.approx(-0.3)
    report = next(message for message in caplog.messages if "has not gone on" in message)
    assert "input: QueueInput\ndatapoints that steps have asked for: 4\ndatapoints in its queue: 0\n" in report
    assert re.search(r"thread MainThread .*\n(.*\n)*.*hooked_sess.run", report)
    assert re.search(r"thread tpk-QueueInput .*\n(.*\n)*.*self.released.wait\(60\)", report)
    assert not [message for message in caplog.messages if "closing the session" in message]


def test_data_code_that_waits_in_the_main_thread_is_interrupted(hanging):
    ending = Ending()
    with pytest.raises(HangError, match="step 4 ") as caught:
        train(tpk.FeedInput(DataFromGenerator(hanging)), watchdog(), ending)
    assert ending.value == pytest.approx(-0.3)
    assert any(entry.name == "__call__" for entry in caught.traceback), "raised where it was stuck"


class Waiting(tpk.Callback):
    def __init__(self, hook):
        self.released = threading.Event()
        setattr(self, hook, lambda trainer: self.released.wait(60))


@pytest.mark.parametrize(
    ("hook", "options", "step"),
    [
        ("trigger_step", {"first_step_timeout": SHORT}, 1),
        ("trigger_epoch", {"between_epochs_timeout": SHORT}, 10),
        ("before_train", {"first_step_timeout": SHORT}, 0),
    ],
)
def test_a_callback_that_waits_is_interrupted(hook, options, step):
    waiting = Waiting(hook)
    with pytest.raises(HangError, match=f"step {step} ") as caught:
        train(tpk.DummyConstantInput([[]]), watchdog(**options), waiting)
    assert f"in callback 'Waiting', hook '{hook}'" in caught.value.__notes__


def test_a_run_that_no_input_source_can_end_is_cancelled_with_the_session(caplog):
    def func(w, x):
        return w * x * v1.get_default_graph().hole.dequeue()

    with tf.Graph().as_default() as graph:
        graph.hole = tf.queue.FIFOQueue(1, [tf.float32], [[]])
        trainer = build(tpk.DummyConstantInput([[]]), func)
        with pytest.raises(HangError, match="longer than a first step may take"):
            trainer.train(callbacks=[watchdog(first_step_timeout=SHORT)], steps_per_epoch=1, max_epoch=1)
    assert "closing the session, which cancels what it runs" in caplog.messages


class Dequeues(tpk.Callback):
    """Takes from an empty queue, in a run of its own."""

    def __init__(self, queue=None):
        self.queue = queue

    def setup_graph(self, trainer):
        self.value = (self.queue or trainer.input_source.queue).dequeue()

    def trigger_epoch(self, trainer):
        trainer.sess.run(self.value)


def test_a_callback_that_waits_for_the_queue_of_the_input_does_not_end_the_training_in_good_order(hanging, monkeypatch):
    monkeypatch.setattr("tpk.input_source.threads.STOP_TIMEOUT", 0.1)
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
    assert any("interrupted: the training has not gone on" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("make_source", [tpk.QueueInput, tpk.FeedInput])
def test_in_another_thread_a_wait_in_python_has_to_end_first(hanging, make_source, when_logged, monkeypatch):
    monkeypatch.setattr("tpk.input_source.threads.STOP_TIMEOUT", 0.1)
    caught = []

    def run():
        try:
            train(make_source(DataFromGenerator(hanging)), watchdog())
        except BaseException as error:
            caught.append(error)

    when_logged("nothing within the process", hanging.released.set)  # Then the watchdog is at its wits' end.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(caught[0], HangError)
    assert "step 4" in str(caught[0])


def test_what_only_warns_warns_again_after_twice_the_time(hanging, caplog):
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        now = [0.0]
        dog = Watchdog(10, action="warn", between_epochs_timeout=100)
        dog.trainer = trainer
        watch = dog._watch()

        def warnings_at(*times):
            caplog.clear()
            for now[0] in times:
                watch.look(now[0])
            return [re.search("for (.*?) s, longer than a (.*?) may", message).groups() for message in caplog.messages]

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


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells")
def test_child_processes_are_listed():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", "input(0)"], **pipes) as process:
        assert process.stdout.read(1) == b"0"
        (line,) = [line for line in describe_children() if f" {process.pid}:" in line]
        assert re.fullmatch(rf"child process {process.pid}: (running|waiting), .* -c input\(0\)", line)
        process.stdin.write(b"\n")


def test_a_hang_that_ends_in_the_last_moment_is_none():
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        interruption = Interruption(trainer, is_stuck=lambda: False, grace=0.01)
        interruption.begin(HangError("too long"))
        interruption.end(None)
        assert interruption.take() is None


def test_nothing_is_said_of_a_training_that_goes_on(caplog):
    flow = DataFromGenerator(lambda: iter([[np.float32(1)]] * 5))
    train(tpk.QueueInput(flow), watchdog(timeout=30), epochs=3)
    assert not [message for message in caplog.messages if "not gone on" in message]


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
    dog = Watchdog(timeout=0.2, first_step_timeout=0.2, grace=0.1, exit_after=0.5)
    trainer.train(callbacks=[dog, Stuck], steps_per_epoch=1, max_epoch=1)
"""


def test_what_cannot_be_interrupted_ends_with_the_process_if_that_is_wanted():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", STUCK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert done.returncode == 1
    assert "Timeout (" in done.stderr
    assert re.search(r'File "<string>", line \d+ in trigger_step', done.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": 5, "first_step_timeout": -1}, "first_step_timeout=-1"),
        ({"timeout": 5, "grace": 0}, "grace=0"),
        ({"timeout": 5, "action": "panic"}, "action='panic'.*'raise' or 'warn'"),
        ({"timeout": 5, "action": "warn", "exit_after": 1}, "exit_after"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        Watchdog(**options)


def test_a_thread_that_ends_while_processes_are_listed_does_not_end_the_watchdog(monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [Path("/proc/self/task/0/children")])
    assert describe_children() == []
