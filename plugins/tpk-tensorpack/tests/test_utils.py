"""tensorpack's `utils`: the log and its directory, memoization, statistics, threads and processes, files."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import queue
import subprocess
import sys
import threading

import numpy as np
import pytest
from tpk_tensorpack.utils import (
    argtools,
    concurrency,
    fs,
    get_rng,
    humanize_time_delta,
    logger,
    serialize,
    stats,
    timer,
)
from tpk_tensorpack.utils.utils import execute_only_once


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logger, "LOG_DIR", None)
    yield tmp_path
    if logger._file_handler is not None:
        logger._logger.removeHandler(logger._file_handler)
        logger._file_handler.close()
        logger._file_handler = None


def test_the_log_goes_to_the_directory_that_was_set(directory):
    logger.set_logger_dir("train_log/x")
    logger.warn("a %s", "warning")
    assert logger.get_logger_dir() == "train_log/x"
    assert "WRN a warning" in (directory / "train_log/x/log.log").read_text()


@pytest.mark.parametrize(("action", "is_kept", "is_same"), [("k", True, True), ("d", False, True), ("n", False, False)])
def test_an_action_says_what_becomes_of_a_directory_that_is_there(directory, action, is_kept, is_same):
    (directory / "logs").mkdir()
    (directory / "logs/old").touch()
    logger.set_logger_dir("logs", action)
    assert (logger.get_logger_dir() == "logs") == is_same
    assert os.path.exists(os.path.join(logger.get_logger_dir(), "old")) == is_kept


def test_a_backup_takes_another_name(directory):
    (directory / "logs").mkdir()
    (directory / "logs/old").touch()
    logger.set_logger_dir("logs", "b")
    assert os.listdir("logs") == ["log.log"]
    assert len(list(directory.glob("logs_*/old"))) == 1


def test_a_directory_that_is_there_is_an_error_where_nobody_can_be_asked(directory, monkeypatch):
    (directory / "logs").mkdir()
    (directory / "logs/old").touch()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(OSError, match=r"'logs' exists.*action='k'"):
        logger.set_logger_dir("logs")
    with pytest.raises(ValueError, match="action='x': expected one of 'b', 'd', 'n', 'k'"):
        logger.set_logger_dir("logs", "x")


def test_the_directory_is_called_after_the_script(directory, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/a/train_it.py", raising=False)
    logger.auto_set_dir(name="second")
    assert logger.get_logger_dir() == "train_log/train_it:second"


def test_results_are_remembered_by_arguments_by_object_or_once():
    calls = []

    class Thing:
        @argtools.memoized_method
        def method(self, x):
            calls.append(x)
            return x

    thing = Thing()
    assert [thing.method(1), thing.method(1), thing.method(2), Thing().method(1)] == [1, 1, 2, 1]
    assert calls == [1, 2, 1]
    assert argtools.memoized(calls.append)(5) is None
    once = argtools.memoized_ignoreargs(lambda x: x)
    assert (once(3), once(4)) == (3, 3)


def test_shapes_of_two_and_four():
    assert argtools.shape2d(3) == [3, 3]
    assert argtools.shape4d((2, 3)) == [1, 2, 3, 1]
    assert argtools.shape4d(2, "NCHW") == [1, 1, 2, 2]
    with pytest.raises(ValueError, match=r"neither a number nor a pair"):
        argtools.shape2d([1, 2, 3])
    with pytest.raises(ValueError, match="data_format='NWHC'"):
        argtools.get_data_format("NWHC")


def test_a_message_is_logged_once(caplog):
    logger._logger.addHandler(caplog.handler)
    try:
        for _ in range(3):
            argtools.log_once("only once", "warn")
    finally:
        logger._logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == ["only once"]


def test_a_line_is_executed_only_once():
    assert [execute_only_once() for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 seconds"),
        (1, "1 second"),
        (59.6, "59.6 seconds"),
        (61.5, "1 minute 1 second"),
        (90061, "1 day 1 hour 1 minute 1 second"),
    ],
)
def test_durations_in_words(seconds, words):
    assert humanize_time_delta(seconds) == words


def test_random_states_differ():
    assert get_rng(object()).randint(2**31) != get_rng(object()).randint(2**31)


def test_statistics_are_those_of_numpy():
    numbers = np.random.default_rng(0).normal(size=100)
    moments, counter = stats.OnlineMoments(), stats.StatCounter()
    for number in numbers:
        moments.feed(number)
        counter.feed(number)
    assert (moments.mean, moments.variance, moments.std) == pytest.approx(
        (numbers.mean(), numbers.var(), numbers.std())
    )
    assert (counter.count, counter.max, counter.min) == (100, numbers.max(), numbers.min())
    with pytest.raises(ValueError, match="feed it first"):
        _ = stats.StatCounter().average


def test_binary_statistics_are_those_of_their_definitions():
    binary = stats.BinaryStatistics()
    binary.feed(np.array([1, 0, 1, 1]), np.array([1, 1, 0, 1]))
    assert (binary.precision, binary.recall, binary.false_positive) == pytest.approx((2 / 3, 2 / 3, 1))
    assert binary.false_negative == pytest.approx(1 / 3)


def test_a_timer_stands_still_while_it_is_paused():
    now = iter([0.0, 2.0, 10.0, 11.0])
    watch = timer.Timer(lambda: next(now))
    watch.pause()
    assert watch.seconds() == 2
    watch.resume()
    assert watch.seconds() == 3


def test_a_loop_thread_stops_while_it_waits_for_a_queue(monkeypatch):
    monkeypatch.setattr(concurrency, "_POLL", 0.01)
    called, full = threading.Event(), queue.Queue(1)
    full.put(0)

    def loop():
        called.set()
        thread.queue_put_stoppable(full, 1)

    thread = concurrency.LoopThread(loop)
    thread.start()
    assert called.wait(10)
    thread.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_process_of_ones_own_ends_with_this_one():
    code = """
import multiprocessing, time
from tpk_tensorpack.utils.concurrency import ensure_proc_terminate
process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
ensure_proc_terminate(process)
process.start()
print(process.pid)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout.split()[-1]), 0)
    with pytest.raises(TypeError, match="expected a process"):
        concurrency.ensure_proc_terminate(5)
    assert multiprocessing.active_children() == []


def test_the_directory_of_data_sets_is_that_of_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORPACK_DATASET", str(tmp_path))
    assert fs.get_dataset_path("a", "b") == str(tmp_path / "a/b")
    monkeypatch.setenv("TENSORPACK_DATASET", str(tmp_path / "missing"))
    with pytest.raises(OSError, match="no such directory"):
        fs.get_dataset_path("a")


def test_a_download_is_kept_if_its_size_is_right(tmp_path):
    (tmp_path / "source").write_bytes(b"12345")
    url = (tmp_path / "source").as_uri()
    path = fs.download(url, str(tmp_path / "to"), "name", expect_size=5)
    (tmp_path / "source").write_bytes(b"abcde")
    assert fs.download(url, str(tmp_path / "to"), "name", expect_size=5) == path
    assert (tmp_path / "to/name").read_bytes() == b"12345"
    with pytest.raises(OSError, match="Failed to download"):
        fs.download((tmp_path / "missing").as_uri(), str(tmp_path / "to"))


def test_objects_come_back_from_bytes():
    array = np.arange(5)
    assert serialize.loads(serialize.dumps([1, "a"])) == [1, "a"]
    np.testing.assert_array_equal(serialize.loads(serialize.dumps(array)), array)
