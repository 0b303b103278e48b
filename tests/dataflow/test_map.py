from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import MapData, MapDataComponent
from tpk.errors import InputError


@given(st.lists(st.integers()))
def test_map_applies_the_function_in_order(numbers):
    flow = MapData([[number] for number in numbers], lambda datapoint: [datapoint[0] + 1])
    assert list(flow) == [[number + 1] for number in numbers]
    assert len(flow) == len(numbers)


def test_none_drops_the_datapoint():
    flow = MapData([[1], [2], [3]], lambda datapoint: None if datapoint[0] == 2 else datapoint)
    assert list(flow) == [[1], [3]]


@pytest.mark.parametrize(
    ("datapoint", "component", "mapped"),
    [
        ([1, 2], 0, [10, 2]),
        ([1, 2], -1, [1, 20]),
        ((1, 2), 1, [1, 20]),
        ({"x": 1, "y": 2}, "y", {"x": 1, "y": 20}),
    ],
)
def test_one_component_is_mapped_and_the_original_left_alone(datapoint, component, mapped):
    before = type(datapoint)(datapoint)
    assert list(MapDataComponent([datapoint], lambda value: 10 * value, component)) == [mapped]
    assert datapoint == before


def test_a_component_mapped_to_none_drops_the_datapoint():
    assert list(MapDataComponent([[1], [2]], lambda value: None if value == 1 else value)) == [[2]]


@pytest.mark.parametrize(
    ("datapoint", "component", "has"),
    [
        ([1], 1, "1 components"),
        ([1], "x", "1 components"),
        ({"x": 1}, "y", r"the keys \['x'\]"),
        (3, 0, "type int"),
    ],
)
def test_a_missing_component_is_named_with_what_there_is(datapoint, component, has):
    with pytest.raises(InputError, match=rf"datapoint 1 has no component {component!r}, but .*{has}"):
        list(MapDataComponent([{0: 0, 1: 1, "x": 1, "y": 1}, datapoint], abs, component))


def test_an_error_of_the_function_comes_as_it_is():
    with pytest.raises(KeyError, match="mine"):
        list(MapDataComponent([[1]], lambda value: {}["mine"]))
