from __future__ import annotations

import json

import pytest

from tpk.checkpoint.series import Retention

HOUR = 3600.0


def test_the_latest_stay():
    retention = Retention(2, 1000)
    assert [retention.add(f"model-{step}", step) for step in range(4)] == [[], [], ["model-0"], ["model-1"]]
    assert retention.names == ["model-2", "model-3"]


@pytest.mark.parametrize("number", [0, None])
def test_all_stay(number):
    retention = Retention(number, 1000)
    assert not any(retention.add(str(step), step) for step in range(50))


@pytest.mark.parametrize("restart_after", [None, 0, 3, 7])
def test_one_of_each_so_many_hours_stays_for_good_over_restarts(restart_after):
    retention, gone = Retention(1, 2), []
    retention.start(0)
    for half_hours in range(1, 13):
        gone += retention.add(f"model-{half_hours}", half_hours * HOUR / 2)
        if half_hours == restart_after:
            state = json.loads(json.dumps(retention.state_dict()))
            names, retention = retention.names, Retention(1, 2)
            retention.load_state_dict(state, names)
    assert retention.preserved == ("model-4", "model-8")
    assert retention.latest == ("model-12",)
    assert len(gone) == 9


def test_after_a_clock_was_set_back_the_hours_count_from_then():
    retention = Retention(2, 2)
    retention.start(10 * HOUR)
    gone = [name for step in range(9) for name in retention.add(str(step), step * HOUR)]
    assert retention.preserved == ("2", "4", "6")
    assert gone == ["0", "1", "3", "5"]


def test_a_name_that_is_written_again_counts_once():
    retention = Retention(2, 1000)
    for name in ("a", "b", "a"):
        assert retention.add(name, 0) == []
    assert retention.names == ["b", "a"]


def test_what_is_gone_from_the_disk_is_forgotten():
    retention = Retention(3, 1000)
    retention.load_state_dict(
        {"preserved": ["a", "b"], "times": {"c": 1.0, "d": 2.0}, "last_preserved": 0.0}, ["b", "d"]
    )
    assert retention.names == ["b", "d"]


@pytest.mark.parametrize("wrong", [{"times": {"b": "noon"}}, {"times": None}, {"last_preserved": []}])
def test_what_is_no_state_is_refused_when_it_is_loaded_and_not_when_it_is_used(wrong):
    state = {"preserved": [], "times": {"b": 1.0}, "last_preserved": 0.0, **wrong}
    with pytest.raises((AttributeError, TypeError, ValueError)):
        Retention(3, 1000).load_state_dict(state, ["b"])
