from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import DataFromGenerator, MapData, MapDataComponent, SelectComponent
from tpk.errors import ConfigError, InputError


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
    with pytest.raises(InputError, match=rf"the datapoint has no component {component!r}; it .*{has}") as caught:
        list(MapDataComponent([{0: 0, 1: 1, "x": 1, "y": 1}, datapoint], abs, component))
    assert caught.value.__notes__ == ["MapDataComponent: datapoint 1, abs"]


def test_an_error_of_the_function_comes_as_it_is_with_the_number_of_the_datapoint():
    def fails(value):
        return {1: 1}[value]

    with pytest.raises(KeyError, match="mine") as caught:
        list(MapDataComponent([[1], ["mine"]], fails))
    (note,) = caught.value.__notes__
    assert note.startswith("MapDataComponent: datapoint 1, test_an_error")
    assert note.endswith("fails")


def test_an_error_of_the_flow_beneath_gets_no_such_note():
    def datapoints():
        yield [1]
        yield [2]
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        list(MapData(DataFromGenerator(datapoints), lambda datapoint: None))
    assert not hasattr(caught.value, "__notes__")


def test_the_first_datapoint_that_is_dropped_is_logged_where_the_length_is_then_wrong(caplog):
    caplog.set_level(logging.WARNING)
    list(MapData(DataFromGenerator(lambda: [1, 2]), lambda datapoint: None))
    assert not caplog.records
    flow = MapData([1, 2, 3], lambda datapoint: None if datapoint > 1 else datapoint)
    assert list(flow) == list(flow) == [1]
    (record,) = caplog.records
    assert "dropped datapoint 1, so a pass delivers fewer datapoints than the length of the flow" in record.getMessage()


@pytest.mark.parametrize("kind", [MapData, MapDataComponent])
def test_a_function_is_one(kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__}: func must be a function"):
        kind([], 3)


def test_a_flow_with_a_function_that_can_be_sent_can_be_sent():
    assert list(pickle.loads(pickle.dumps(MapDataComponent([[1.5]], int)))) == [[1]]


@pytest.mark.parametrize(
    ("datapoint", "components", "selected"),
    [
        (["a", "b", "c"], [2, 0], ["c", "a"]),
        (("a", "b"), [-1], ["b"]),
        ({"x": 1, "y": 2}, ["y"], {"y": 2}),
        (np.array([1, 2, 3]), [1], [2]),
    ],
)
def test_components_are_selected_in_the_order_given(datapoint, components, selected):
    flow = SelectComponent([datapoint], components)
    assert list(flow) == [selected]
    assert len(flow) == 1


@pytest.mark.parametrize(
    ("datapoint", "components", "message"),
    [
        ([1], [0, 1], "has no component 1; it has 1 components"),
        ({"x": 1}, ["x", "y"], r"has no component 'y'; it has the keys \['x'\]"),
        (3, [0], "has no component 0; it is of type int"),
    ],
)
def test_a_component_that_cannot_be_selected_is_named(datapoint, components, message):
    there = dict.fromkeys(components, 1)
    with pytest.raises(InputError, match=message) as caught:
        list(SelectComponent([there, datapoint], components))
    assert caught.value.__notes__ == ["SelectComponent: datapoint 1, Selection"]


@pytest.mark.parametrize("components", ["x", 0, []])
def test_what_is_selected_is_a_list(components):
    with pytest.raises(ConfigError, match="SelectComponent: components must be a list"):
        SelectComponent([], components)
