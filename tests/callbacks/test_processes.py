from __future__ import annotations

import multiprocessing
import signal
import threading

import psutil
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, TrainerStateError

SPAWN = multiprocessing.get_context("spawn")


class Loop(threading.Thread):
    """Runs until it is stopped, and remembers what it has found."""

    def __init__(self, name="loop", ignores_stop=False):
        super().__init__(name=name, daemon=ignores_stop)
        self.stopped, self.release, self.began, self.found = (*(threading.Event() for _ in range(3)), None)
        self.ignores_stop = ignores_stop

    def run(self):
        self.found = tf.compat.v1.get_default_session(), tf.compat.v1.get_default_graph()
        self.began.set()
        (self.release if self.ignores_stop else self.stopped).wait(60)

    def stop(self):
        self.stopped.set()


class Look(tpk.Callback):
    """Waits in a step until all threads have begun, and looks which are there."""

    def __init__(self, *threads):
        self.threads = threads

    def trigger_step(self, trainer):
        assert all(each.began.wait(60) for each in self.threads)
        self.alive = [each.is_alive() for each in self.threads]
        self.sess = trainer.sess


def records(caplog, level):
    return [each.getMessage() for each in caplog.records if each.levelname == level]


def test_threads_live_as_long_as_the_training(run_steps):
    loops = [Loop("one"), Loop("two")]
    look = Look(*loops)
    run_steps([tpk.StartProcOrThread(loops), look], 1)
    assert look.alive == [True, True]
    assert [each.is_alive() for each in loops] == [False, False]


def test_they_are_stopped_when_the_training_fails(run_steps):
    class Fails(tpk.Callback):
        def trigger_step(self, trainer):
            raise RuntimeError("step")

    loop = Loop()
    with pytest.raises(RuntimeError, match="step"):
        run_steps([tpk.StartProcOrThread(loop), Fails()], 1)
    assert loop.stopped.is_set() and not loop.is_alive()


def test_those_that_have_started_are_stopped_when_the_next_one_does_not_start(run_steps):
    class Broken(Loop):
        def start(self):
            raise OSError("no more threads")

    loop = Loop()
    with pytest.raises(OSError, match="no more threads"):
        run_steps(tpk.StartProcOrThread([loop, Broken()]), 1)
    assert not loop.is_alive()


def test_what_other_callbacks_do_at_the_end_may_need_them(run_steps):
    class Last(tpk.Callback):
        def after_train(self, trainer):
            self.was_alive = loop.is_alive()

    loop, last = Loop(), Last()
    run_steps([tpk.StartProcOrThread(loop), last], 1)
    assert last.was_alive


def test_a_thread_that_does_not_stop_is_a_warning_that_shows_where_it_is(run_steps, caplog):
    loop = Loop("stubborn", ignores_stop=True)
    run_steps(tpk.StartProcOrThread(loop, stop_timeout=0.1), 1)
    (warning,) = records(caplog, "WARNING")
    assert "the thread 'stubborn' has not ended after its stop() within 0" in warning and "in run" in warning
    loop.release.set()
    loop.join()


def test_one_that_ends_before_the_training_is_told_of_once(run_steps, caplog):
    class Ends(tpk.Callback):
        def trigger_step(self, trainer):
            loop.stop()
            loop.join()

    caplog.set_level("INFO")
    loop = Loop()
    run_steps([tpk.StartProcOrThread(loop), Ends()], 1, epochs=3)
    told = [each for each in records(caplog, "INFO") if "has ended before the training" in each]
    assert told == ["'loop' has ended before the training"]


# Run by `exec`, since a new process cannot import this file.
WAIT = """
import signal, threading
ready.send(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)
threading.Event().wait(60)
"""
IGNORE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
FAIL = "ready.send(None); raise SystemExit(3)"


class Answers(tpk.Callback):
    """Waits in the first step until all processes have answered, and then, perhaps, until they have ended."""

    def __init__(self, ends, processes=()):
        self.ends, self.processes = ends, processes

    def trigger_step(self, trainer):
        if trainer.global_step == 1:
            self.answers = [end.recv() if end.poll(60) else "nothing" for end in self.ends]
            for each in self.processes:
                each.join(60)


def test_processes_are_ended_killed_and_told_of(run_steps, caplog):
    """In one training, since each of them takes seconds to start."""
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(3)]
    programs = {"obedient": WAIT, "stubborn": IGNORE + WAIT, "failing": FAIL}
    processes = [
        SPAWN.Process(target=exec, args=(program, {"ready": there}), name=name)
        for (name, program), (_, there) in zip(programs.items(), pipes, strict=True)
    ]
    answers = Answers([here for here, _ in pipes], processes[2:])
    run_steps([tpk.StartProcOrThread(processes, stop_timeout=1.0), answers], 1, epochs=2)
    assert answers.answers == [True, True, None]  # The first two ignore Ctrl-C.
    assert [each.exitcode for each in processes] == [-signal.SIGTERM, -signal.SIGKILL, 3]
    assert records(caplog, "ERROR") == ["'failing' has ended before the training, with exit code 3"]
    assert records(caplog, "WARNING") == ["'stubborn' has not ended after SIGTERM, and is killed"]
    assert not [each for each in psutil.Process().children() if each.pid in [each.pid for each in processes]]
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_a_process_that_would_be_forked_is_an_error():
    process = multiprocessing.get_context("fork").Process(target=print, name="simulator")
    with pytest.raises(ConfigError, match=r"'simulator' would be forked.*get_context\('spawn'\)"):
        tpk.StartProcOrThread([process])


@pytest.mark.parametrize(
    ("startable", "message"),
    [
        (threading.Thread(name="plain"), r"the thread 'plain' has no stop\(\).*Give its class a method stop"),
        ("simulator", "'simulator' is neither a process of multiprocessing nor a thread"),
    ],
)
def test_what_cannot_be_started_and_stopped_is_an_error(startable, message):
    with pytest.raises(ConfigError, match=message):
        tpk.StartProcOrThread(startable)


def test_a_timeout_that_makes_no_sense_is_an_error():
    with pytest.raises(ConfigError, match="StartProcOrThread: stop_timeout must be positive, not 0"):
        tpk.StartProcOrThread([], stop_timeout=0)


def test_a_thread_that_was_started_before_is_an_error(run_steps):
    loop = Loop()
    loop.start()
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        run_steps(tpk.StartProcOrThread(loop), 1)
    assert loop.is_alive()
    loop.stop()
    loop.join()


def test_a_shared_session_is_the_default_one_in_the_thread(run_steps):
    plain, shared = Loop("plain"), Loop("shared")
    starter = tpk.StartProcOrThread([plain, tpk.ShareSessionThread(shared)])
    look = Look(plain, shared)
    trainer = run_steps([starter, look], 1)
    assert shared.found == (look.sess, trainer.graph)
    assert plain.found[0] is None


def test_a_thread_without_a_session_to_share_does_not_start():
    with pytest.raises(TrainerStateError, match="'loop' cannot start without a default session"):
        tpk.ShareSessionThread(Loop()).start()


def test_what_is_no_thread_shares_nothing():
    with pytest.raises(
        ConfigError, match=r"ShareSessionThread\(.*expected a threading.Thread that has not been started"
    ):
        tpk.ShareSessionThread(print)


def test_a_shared_thread_that_cannot_be_stopped_is_an_error_too():
    with pytest.raises(ConfigError, match=r"has no stop\(\)"):
        tpk.StartProcOrThread(tpk.ShareSessionThread(threading.Thread()))
