from __future__ import annotations

import logging

import numpy as np
import pytest

from tpk.dataflow import PrintData
from tpk.dataflow.describe import describe
from tpk.errors import ConfigError


def test_structure_shapes_dtypes_and_ranges_are_described():
    datapoint = [np.array([[1.5, 4]], np.float32), {"label": 3, "name": "x" * 50}, (1, 2, 3, 4, 5), np.int64(2), b"ab"]
    assert describe(datapoint, max_items=5).splitlines() == [
        "list of 5",
        "  0: array of float32, shape (1, 2), from 1.5 to 4",
        "  1: dict of 2",
        "    'label': int: 3",
        f"    'name': str of length 50: '{'x' * 40}'…",
        "  2: tuple of 5",
        *(f"    {index}: int: {index + 1}" for index in range(5)),
        f"  3: int64: {np.int64(2)!r}",
        "  4: bytes of length 2: b'ab'",
    ]


def test_no_more_is_shown_than_asked_for():
    assert describe([[[1, 2], 3, 4, 5]], max_depth=2, max_items=2).splitlines() == [
        "list of 1",
        "  0: list of 4",
        "    0: list of 2",
        "    1: int: 3",
        "    … 2 more",
    ]


def test_numbers_that_are_not_finite_are_counted():
    assert "from nan to nan, 2 of 3 not finite" in describe(np.array([1, np.nan, np.inf]))


def test_an_empty_array_and_any_object_can_be_described():
    assert describe(np.zeros((0, 2))) == "array of float64, shape (0, 2)"
    assert describe(None) == "NoneType: None"
    assert describe(np.array([None])) == "array of object, shape (1,)"


def test_the_first_datapoints_are_logged_once_and_all_pass_through(caplog):
    flow = PrintData([[1], [2], [3]], num=2, name="numbers")
    with caplog.at_level(logging.INFO, "tpk.dataflow.describe"):
        assert list(flow) == list(flow) == [[1], [2], [3]]
    assert [record.getMessage() for record in caplog.records] == [
        "numbers, datapoint 0: list of 1\n  0: int: 1",
        "numbers, datapoint 1: list of 1\n  0: int: 2",
    ]


@pytest.mark.parametrize("argument", ["num", "max_depth", "max_items"])
def test_numbers_are_at_least_1(argument):
    with pytest.raises(ConfigError, match=f"PrintData: {argument} must be an integer, 1 or more, not 0"):
        PrintData([], **{argument: 0})
