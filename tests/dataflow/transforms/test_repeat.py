from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import BatchData, DataFromList, RepeatedData, RepeatedDataPoint
from tpk.dataflow.base import shard
from tpk.errors import ConfigError, InputError


@given(st.lists(st.integers()), st.integers(0, 4))
def test_everything_is_delivered_as_often_as_asked(items, num):
    flow = RepeatedData(items, num)
    assert list(flow) == items * num
    assert len(flow) == len(items) * num


@given(st.lists(st.integers(), min_size=1, max_size=5))
def test_forever_goes_round(items):
    assert list(islice(RepeatedData(items, -1), 17)) == (items * 17)[:17]


def test_forever_has_no_length():
    with pytest.raises(TypeError, match="forever"):
        len(RepeatedData([1], -1))


def test_each_repetition_is_an_epoch_of_its_own():
    delivered = list(RepeatedData(DataFromList(range(30), shuffle=True, seed=0), 2))
    assert delivered[:30] != delivered[30:]
    assert sorted(delivered[:30]) == sorted(delivered[30:])


def test_nothing_forever_is_an_error_and_not_an_endless_loop():
    with pytest.raises(InputError, match="repetition 0 of list has no datapoint"):
        list(RepeatedData([], -1))


@pytest.mark.parametrize("num", [2, -1])
def test_a_one_shot_iterator_cannot_be_repeated(num):
    with pytest.raises(InputError, match="one-shot"):
        list(RepeatedData(iter([1]), num))


def test_other_numbers_are_refused():
    with pytest.raises(ConfigError, match="-1"):
        RepeatedData([1], -2)


@given(st.lists(st.integers()), st.integers(1, 4))
def test_each_datapoint_comes_as_often_as_asked(items, num):
    flow = RepeatedDataPoint(items, num)
    assert list(flow) == [item for item in items for _ in range(num)]
    assert len(flow) == len(items) * num


def test_a_datapoint_comes_once_at_least():
    with pytest.raises(ConfigError, match="RepeatedDataPoint: num must be an integer, 1 or more, not 0"):
        RepeatedDataPoint([1], 0)


def test_endless_shares_have_all_datapoints_between_them():
    flow = BatchData(RepeatedData(DataFromList([[number] for number in range(8)]), -1), 2, use_list=True)
    shares = [list(islice(shard(flow, index, 2), 2)) for index in range(2)]
    assert shares == [[[[0, 1]], [[4, 5]]], [[[2, 3]], [[6, 7]]]]
