from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from tpk_mlflow import delivery
from tpk_mlflow.delivery import Delivery, RefusedError


@contextmanager
def delivering(deliver, *, first=lambda: None, items=(), retry_secs=0.01):
    """Deliver `items` in batches of two."""
    thread = Delivery("the server", deliver, batch=2, flush_secs=60, retry_secs=retry_secs, first=first)
    for item in items:
        thread.put(item)
    thread.start()
    yield thread
    thread.close()
    thread._thread.join(10)
    assert not thread._thread.is_alive()


def test_items_are_delivered_in_order_and_in_batches():
    arrived = []
    with delivering(lambda items: arrived.append(list(items)) or len(items), items=range(5)) as thread:
        assert thread.wait(10)
    assert arrived == [[0, 1], [2, 3], [4]]
    assert thread.waiting == []


def test_failures_are_retried_and_logged_once(caplog):
    attempts = []

    def deliver(items):
        attempts.append(items[0])
        if len(attempts) < 4:
            raise ConnectionError("unreachable")
        return 1

    caplog.set_level("INFO")
    with delivering(deliver, items="ab") as thread:
        assert thread.wait(10)
    assert attempts == ["a"] * 4 + ["b"]
    assert caplog.text.count("the server does not accept reports: unreachable. Training continues") == 1
    assert caplog.text.count("the server accepts reports again") == 1
    assert thread.lost == 0


def test_only_a_rejected_item_is_lost_and_logged_once(caplog):
    arrived = []

    def deliver(items):
        if items[0] == "bad":
            raise RefusedError("no such thing")
        arrived.append(items[0])
        return 1

    with delivering(deliver, items=["a", "bad", "bad", "b"]) as thread:
        assert thread.wait(10)
    assert arrived == ["a", "b"]
    assert thread.lost == 2
    assert caplog.text.count("the server rejected a report of this run, which is lost: no such thing") == 1


def test_waiting_for_a_receiver_that_hangs_times_out(caplog):
    answer = threading.Event()

    def hang(items):
        answer.wait(10)
        return len(items)

    with delivering(hang, items="abc") as thread:
        assert not thread.wait(0.01)
        assert thread.waiting == ["a", "b", "c"]
        answer.set()


def test_items_beyond_the_limit_are_dropped(monkeypatch, caplog):
    monkeypatch.setattr(delivery, "MAX_WAITING", 3)
    arrived = []
    with delivering(lambda items: arrived.extend(items) or len(items), items=range(5)) as thread:
        assert thread.wait(10)
    assert arrived == [0, 1, 2]
    assert thread.lost == 2
    assert caplog.text.count("3 reports wait for the server; new reports are dropped") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_outcome_of_the_first_call_is_known(fails):
    def first():
        if fails:
            raise ConnectionError("unreachable")

    with delivering(len, first=first, retry_secs=60) as thread:
        assert thread.begun.wait(10)
        assert (thread.failure is not None) == fails
