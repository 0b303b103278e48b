from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import DataFromGenerator, DataFromIterable, DataFromList, Position
from tpk.dataflow.base import reset_state
from tpk.errors import ConfigError, InputError

seeds = st.integers(0, 2**63)


@given(st.lists(st.integers()), seeds)
def test_a_shuffled_list_is_a_permutation_in_each_epoch(items, seed):
    flow = DataFromList(items, shuffle=True, seed=seed)
    for _ in range(3):
        delivered = list(flow)
        assert sorted(delivered) == sorted(items)
        assert len(delivered) == len(flow)


@given(st.lists(st.integers()))
def test_without_shuffling_a_list_is_delivered_as_it_stands(items):
    flow = DataFromList(items)
    assert list(flow) == list(flow) == items


def test_epochs_of_a_shuffled_list_differ_and_the_seed_repeats_them():
    items = list(range(50))
    flow, same = (DataFromList(items, shuffle=True, seed=1) for _ in range(2))
    epochs = [list(flow) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epochs == [list(same) for _ in range(3)]


def test_rows_of_an_array_are_datapoints_of_a_list():
    rows = np.arange(6).reshape(3, 2)
    assert np.array_equal(list(DataFromList(rows)), rows)


def test_a_list_must_have_length_and_items():
    with pytest.raises(ConfigError, match="DataFromIterable"):
        DataFromList(iter([1]))


@pytest.mark.parametrize("kind", [DataFromIterable, DataFromGenerator])
def test_an_iterable_is_delivered_anew_each_epoch(kind):
    flow = kind([[1], [2]])
    assert list(flow) == list(flow) == [[1], [2]]
    assert len(flow) == 2


@pytest.mark.parametrize("kind", [DataFromIterable, DataFromGenerator])
def test_a_second_epoch_of_a_one_shot_iterator_is_an_error(kind):
    flow = kind(iter([[1], [2]]))
    assert list(flow) == [[1], [2]]
    with pytest.raises(InputError, match="one-shot iterator"):
        list(flow)


def test_a_generator_function_is_called_for_each_epoch():
    calls = []

    def datapoints():
        calls.append(len(calls))
        yield [calls[-1]]

    flow = DataFromGenerator(datapoints)
    assert [list(flow), list(flow)] == [[[0]], [[1]]]
    with pytest.raises(TypeError):
        len(flow)


def test_a_flow_is_true_whether_or_not_it_knows_how_long_it_is():
    endless, empty = DataFromGenerator(lambda: iter([[1]])), DataFromList([])
    assert (endless or empty) is endless and (empty or endless) is empty


def test_a_generator_flow_needs_a_function_or_an_iterable():
    with pytest.raises(ConfigError, match="DataFromGenerator takes"):
        DataFromGenerator(3)


def test_an_iterable_flow_needs_an_iterable():
    with pytest.raises(ConfigError, match="DataFromIterable takes"):
        DataFromIterable(3)


@pytest.mark.parametrize("kind", [DataFromIterable, DataFromGenerator])
def test_a_flow_within_is_made_ready(kind):
    ready = []

    class Source(DataFromList):
        def reset_state(self):
            ready.append("ready")

    reset_state(kind(Source([[1]])))
    assert ready == ["ready"]


def test_a_resumed_list_does_not_touch_what_was_delivered():
    class Items(list):
        def __getitem__(self, index):
            touched.append(index)
            return super().__getitem__(index)

    touched = []
    position = Position(DataFromList(Items(range(6))))
    list(islice(position, 4))
    resumed = Position(DataFromList(Items(range(6))))
    resumed.load_state_dict(position.state_dict())
    touched.clear()
    assert list(resumed) == [4, 5]
    assert touched == [4, 5]


def test_what_has_no_position_is_replayed_with_a_word_about_it(caplog):
    calls = []

    def datapoints():
        calls.append(None)
        yield from ([len(calls), number] for number in range(5))

    position = Position(DataFromGenerator(datapoints))
    list(position)
    list(islice(position, 2))
    list(islice(position, 3))
    state = position.state_dict()
    calls.clear()
    resumed = Position(DataFromGenerator(datapoints))
    resumed.load_state_dict(state)
    with caplog.at_level("INFO"):
        assert list(resumed) == [[3, 3], [3, 4]]
    assert "DataFromGenerator keeps no position: replayed 10 datapoints of it (3 passes)" in caplog.text


def test_a_flow_that_has_become_shorter_cannot_be_resumed():
    position = Position(DataFromIterable({1: 1, 2: 2, 3: 3}))
    list(islice(position, 3))
    resumed = Position(DataFromIterable({1: 1, 2: 2}))
    resumed.load_state_dict(position.state_dict())
    with pytest.raises(InputError, match=r"cannot go on after 3 datapoints of pass 1: .* it ended after 2"):
        list(resumed)
