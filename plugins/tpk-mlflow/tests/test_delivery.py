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


def test_items_arrive_in_order_and_together():
    arrived = []
    with delivering(lambda items: arrived.append(list(items)) or len(items), items=range(5)) as thread:
        assert thread.wait(10)
    assert arrived == [[0, 1], [2, 3], [4]]
    assert thread.waiting == []


def test_what_fails_is_tried_again_and_logged_once(caplog):
    attempts = []

    def deliver(items):
        attempts.append(items[0])
        if len(attempts) < 4:
            raise ConnectionError("nobody there")
        return 1

    caplog.set_level("INFO")
    with delivering(deliver, items="ab") as thread:
        assert thread.wait(10)
    assert attempts == ["a"] * 4 + ["b"]
    assert caplog.text.count("the server takes no reports: nobody there. The training goes on") == 1
    assert caplog.text.count("the server takes reports again") == 1
    assert thread.lost == 0


def test_what_is_refused_is_lost_alone_and_said(caplog):
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
    assert caplog.text.count("the server refuses a report of this run, which is lost: no such thing") == 1


def test_a_receiver_that_hangs_is_given_up(caplog):
    answer = threading.Event()

    def hang(items):
        answer.wait(10)
        return len(items)

    with delivering(hang, items="abc") as thread:
        assert not thread.wait(0.01)
        assert thread.waiting == ["a", "b", "c"]
        answer.set()


def test_no_more_wait_than_there_is_room_for(monkeypatch, caplog):
    monkeypatch.setattr(delivery, "MAX_WAITING", 3)
    arrived = []
    with delivering(lambda items: arrived.extend(items) or len(items), items=range(5)) as thread:
        assert thread.wait(10)
    assert arrived == [0, 1, 2]
    assert thread.lost == 2
    assert caplog.text.count("3 reports wait for the server; no more are taken") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_what_comes_first_is_known_to_be_done_or_to_have_failed(fails):
    def first():
        if fails:
            raise ConnectionError("nobody there")

    with delivering(len, first=first, retry_secs=60) as thread:
        assert thread.begun.wait(10)
        assert (thread.failure is not None) == fails
