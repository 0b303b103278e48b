from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import (
    ConcatData,
    DataFromGenerator,
    DataFromList,
    JoinData,
    MapData,
    RandomChooseData,
    RandomMixData,
    RepeatedData,
)
from tpk.dataflow.base import reset_state, shard
from tpk.errors import ConfigError, InputError

lists = st.lists(st.lists(st.integers(), max_size=6), min_size=1, max_size=4)
KINDS = [ConcatData, JoinData, RandomMixData, RandomChooseData]


@given(lists)
def test_one_comes_after_the_other(numbers):
    flow = ConcatData(numbers)
    assert list(flow) == list(flow) == [number for each in numbers for number in each]
    assert len(flow) == sum(map(len, numbers))


@given(lists)
def test_joined_ones_go_side_by_side_until_one_ends(numbers):
    flow = JoinData([[(number,) for number in each] for each in numbers])
    assert list(flow) == list(flow) == [list(row) for row in zip(*numbers, strict=False)]
    assert len(flow) == min(map(len, numbers))


def test_joined_dicts_are_one_dict():
    assert list(JoinData([[{"x": 1}], [{"y": 2}]])) == [{"x": 1, "y": 2}]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1], {"x": 1}, "JoinData: datapoint 1 is list, dict in the flows"),
        ([1], 2, "JoinData: datapoint 1 is list, int in the flows"),
        ({"x": 1}, {"x": 1}, "JoinData: two flows have a component 'x' in datapoint 1"),
    ],
)
def test_what_cannot_be_joined_is_named(first, second, message):
    with pytest.raises(InputError, match=message):
        list(JoinData([[[0], first], [[0], second]]))


@given(lists, st.integers(0, 99))
def test_mixed_ones_are_all_there_in_their_order(numbers, seed):
    tagged = [[(which, place) for place in range(len(each))] for which, each in enumerate(numbers)]
    flow = RandomMixData(tagged, seed)
    for _ in range(2):
        delivered = list(flow)
        assert len(delivered) == len(flow)
        for which, each in enumerate(tagged):
            assert [datapoint for datapoint in delivered if datapoint[0] == which] == each


def test_mixed_ones_run_through_the_whole_pass():
    flow = RandomMixData([["rare"] * 100, ["common"] * 900], seed=0)
    delivered = list(flow)
    for begin in range(0, 1000, 250):
        assert 10 < delivered[begin : begin + 250].count("rare") < 40


def test_mixing_makes_do_with_a_length_that_is_wrong():
    class Unsure(list):
        def __len__(self):
            return 3

    assert sorted(RandomMixData([Unsure([1]), Unsure([2] * 5), [3]])) == [1, 2, 2, 2, 2, 2, 3]


def test_mixing_needs_lengths():
    with pytest.raises(ConfigError, match=r"RandomMixData: flows must have a length each.*RandomChooseData"):
        RandomMixData([[1], DataFromGenerator(lambda: [1])])


def test_drawn_ones_come_as_often_as_their_probability_says():
    flow = RandomChooseData([(RepeatedData(["rare"], 100), 0.1), (RepeatedData(["common"], 4000), 0.9)], seed=0)
    counts = Counter(flow)
    assert counts["rare"] == 100
    assert 700 < counts["common"] < 1100


def test_drawing_ends_with_the_flow_that_has_no_more():
    delivered = list(RandomChooseData([[1] * 10, [2] * 10], seed=0))
    assert 10 in (delivered.count(1), delivered.count(2))
    assert len(delivered) < 20


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ([([1], 0.5), ([2], 0.4)], "sum to 1"),
        ([([1], 1.5), ([2], -0.5)], "must not be negative"),
        ([([1], 0.5), [2]], "a probability each"),
    ],
)
def test_probabilities_are_those_of_all_and_1_in_all(flows, message):
    with pytest.raises(ConfigError, match=f"RandomChooseData: .*{message}"):
        RandomChooseData(flows)


def test_a_flow_of_probability_0_is_never_drawn():
    assert set(RandomChooseData([([1], 0), ([2] * 999, 1), ([3], 0)])) == {2}


@pytest.mark.parametrize("kind", KINDS)
def test_flows_are_a_list_of_flows(kind):
    with pytest.raises(ConfigError, match=kind.__name__):
        kind([])
    with pytest.raises(ConfigError, match=f"{kind.__name__} takes an iterable of datapoints, not 3"):
        kind([[1], 3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_flow_is_in_one_place_at_a_time(kind):
    flow = DataFromList([[1]])
    with pytest.raises(ConfigError, match=f"{kind.__name__}: the same DataFromList occurs twice"):
        kind([flow, MapData(flow, abs)])
    numbers = [[1]]
    kind([numbers, numbers])  # a list has no position of its own


@pytest.mark.parametrize("kind", KINDS)
def test_all_flows_are_made_ready(kind):
    ready = []

    class Source(DataFromList):
        def reset_state(self):
            ready.append(self.items)

    reset_state(kind([Source([1]), MapData(Source([2]), abs)]))
    assert ready == [[1], [2]]


@pytest.mark.parametrize("lengths", [(7, 7), (5, 8), (8, 5), (1, 3)])
@pytest.mark.parametrize("block", [1, 2])
def test_the_shares_of_joined_sequences_are_made_of_shares(lengths, block):
    def join():
        images, labels = (
            [[f"{kind}{number}"] for number in range(length)] for kind, length in zip("ab", lengths, strict=True)
        )
        return JoinData([images, DataFromList(labels, shuffle=True, seed=3)])

    whole, shares = join(), [shard(join(), index, 3, block) for index in range(3)]
    assert all(isinstance(share, JoinData) for share in shares)
    for _ in range(3):
        expected = list(whole)
        for index, share in enumerate(shares):
            assert list(share) == [each for number, each in enumerate(expected) if number // block % 3 == index]


def test_a_flow_that_drops_datapoints_is_joined_before_it_is_divided():
    def join():
        even = MapData(range(10), lambda number: [number] if number % 2 == 0 else None)
        return JoinData([even, [[letter] for letter in "abcde"]])

    assert list(join().shard(1, 2)) == list(join())[1::2] == [[2, "b"], [6, "d"]]
