from __future__ import annotations

import pickle
from itertools import chain, cycle, islice

import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import (
    BatchData,
    DataFromGenerator,
    DataFromList,
    FixedSizeData,
    MultiThreadRunner,
    RepeatedData,
    RepeatedDataPoint,
)
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


@given(st.lists(st.integers(), min_size=1, max_size=6), st.integers(1, 8))
def test_passes_go_on_where_the_one_before_stopped(items, size):
    flow = FixedSizeData(items, size)
    passes = [list(flow) for _ in range(4)]
    assert {len(each) for each in passes} == {len(flow)} == {size}
    assert list(chain(*passes)) == list(islice(cycle(items), 4 * size))


@given(st.lists(st.integers(), min_size=1, max_size=6), st.integers(1, 8))
def test_without_state_each_pass_starts_anew(items, size):
    flow = FixedSizeData(items, size, keep_state=False)
    for _ in range(2):
        assert list(flow) == list(islice(cycle(items), size))


def test_a_pass_that_is_left_early_goes_on_too():
    flow = FixedSizeData(range(10), 4)
    assert list(islice(flow, 2)) == [0, 1]
    assert list(flow) == [2, 3, 4, 5]


def test_it_continues_after_its_workers_were_ended():
    flow = FixedSizeData(MultiThreadRunner(lambda: DataFromList(range(10)), 2), 4)
    assert list(flow) == [0, 1, 2, 3]
    flow.close()
    assert list(flow) == [4, 5, 6, 7]
    flow.close()


@pytest.mark.parametrize("keep_state", [True, False])
def test_nothing_is_an_error_and_not_an_endless_loop(keep_state):
    with pytest.raises(InputError, match="a pass of list has no datapoint"):
        list(FixedSizeData([], 1, keep_state))
    with pytest.raises(InputError, match="one-shot"):
        list(FixedSizeData(iter([1]), 2, keep_state))


def test_it_can_be_sent_to_another_process_while_it_is_iterated():
    flow = FixedSizeData(DataFromList(range(5)), 3)
    list(flow)
    assert len(list(pickle.loads(pickle.dumps(flow)))) == 3
    assert list(flow) == [3, 4, 0]


def test_a_flow_without_end_is_not_read_to_its_end():
    flow = FixedSizeData(DataFromGenerator(lambda: cycle([1])), 3, keep_state=False)
    assert [list(flow), list(flow)] == [[1] * 3] * 2


def test_a_pass_has_a_size():
    with pytest.raises(ConfigError, match="FixedSizeData: size must be an integer, 1 or more, not 0"):
        FixedSizeData([1], 0)
