from __future__ import annotations

import logging
import threading
from types import SimpleNamespace

import pytest

from tpk.dataflow import DataFromGenerator
from tpk.hang_watcher import HangWatcher
from tpk.input_source import FeedInput, QueueInput, StagingInput, TFDatasetInput


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watched():
    return SimpleNamespace(owner="Source", index=7, busy_thread=threading.get_ident())


@pytest.fixture
def warnings_at(clock, watched, caplog):
    """At which seconds the watcher warns, if it looks every second, and what happens at some of them."""

    def run(seconds, happens=None):
        watcher = HangWatcher(clock)
        watcher.watch(watched, 10)  # Its thread looks later than the test.
        said = []
        for now in range(seconds):
            clock.now = float(now)
            (happens or {}).get(now, lambda: None)()
            caplog.clear()
            watcher.look()
            if caplog.records:
                said.append(now)
        watcher.unwatch(watched)
        return said

    return run


def test_a_warning_comes_after_the_time_and_then_at_growing_intervals(warnings_at):
    assert warnings_at(200) == [10, 20, 40, 80, 160]


def test_a_delivery_sets_the_time_back(warnings_at, watched):
    assert warnings_at(40, {8: lambda: setattr(watched, "index", 8), 25: lambda: setattr(watched, "index", 9)}) == [
        18,
        35,
    ]


def test_data_code_that_is_not_running_is_not_stuck(warnings_at, watched):
    watched.busy_thread = 0
    assert warnings_at(100) == []


def test_the_warning_says_who_and_where(clock, watched, caplog):
    watcher = HangWatcher(clock)
    watcher.watch(watched, 10)
    watcher.look()
    clock.now = 12.0
    watcher.look()
    watcher.unwatch(watched)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Source: the data has not delivered datapoint 7 within 12 s" in record.message
    assert "test_the_warning_says_who_and_where" in record.message


def test_there_is_one_thread_while_something_is_watched(watched):
    before = set(threading.enumerate())

    def count():
        # Those of earlier tests may end at any time.
        return len(set(threading.enumerate()) - before)

    watcher = HangWatcher()
    other = SimpleNamespace(owner="Other", index=0, busy_thread=0)
    watcher.watch(watched, 1000)
    watcher.watch(watched, 1000)
    watcher.watch(other, 1000)
    assert count() == 1
    watcher.unwatch(watched)
    assert count() == 1
    watcher.unwatch(other)
    watcher.unwatch(other)
    assert count() == 0
    watcher.watch(watched, 1000)
    watcher.unwatch(watched)


@pytest.fixture
def said(when_logged):
    """Lets the data code go on once it was complained of where it hangs, rather than before it has come there."""
    event = threading.Event()
    when_logged("said.wait(60)", event.set)
    return event


@pytest.mark.parametrize(
    "make_source",
    [
        FeedInput,
        QueueInput,
        TFDatasetInput,
        lambda flow: StagingInput(QueueInput(flow)),
    ],
)
def test_data_code_that_hangs_is_shown_and_what_it_delivers_later_is_used(make_source, drive, specs, said, caplog):
    def datapoints():
        yield [0]
        said.wait(60)  # here it hangs
        yield [1]

    source = make_source(DataFromGenerator(datapoints))
    source.innermost.warn_after = 0.01
    with drive(source, specs("number")) as training:
        assert training.first_components(2) == [0, 1]
    (record,) = [record for record in caplog.records if "has not delivered datapoint 1" in record.message][:1]
    assert "said.wait(60)  # here it hangs" in record.message


def test_making_the_flow_ready_may_hang_too(drive, specs, said, caplog):
    class Flow:
        def reset_state(self):
            said.wait(60)

        def __iter__(self):
            yield [0]

    source = FeedInput(Flow())
    source.warn_after = 0.01
    with drive(source, specs("number")) as training:
        training.step()
    assert "in reset_state" in caplog.text
