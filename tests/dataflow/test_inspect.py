from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

from tpk.dataflow import (
    BatchData,
    DataFromGenerator,
    DataFromList,
    JoinData,
    MapData,
    MultiProcessRunner,
    PrintData,
    ProxyDataFlow,
    TestDataSpeed,
    measure_speed,
)
from tpk.dataflow.base import shard
from tpk.dataflow.inspect import describe
from tpk.errors import ConfigError, InputError


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
    with caplog.at_level(logging.INFO, "tpk.dataflow.inspect"):
        assert list(flow) == list(flow) == [[1], [2], [3]]
    assert [record.getMessage() for record in caplog.records] == [
        "numbers, datapoint 0: list of 1\n  0: int: 1",
        "numbers, datapoint 1: list of 1\n  0: int: 2",
    ]


def test_long_lists_and_deep_ones_are_cut(caplog):
    with caplog.at_level(logging.INFO, "tpk.dataflow.inspect"):
        list(PrintData([[[1, 2], [3], [4]]], name="nested", max_depth=1, max_list=2))
    assert caplog.messages == ["nested, datapoint 0: list of 3\n  0: list of 2\n  1: list of 1\n  … 1 more"]


def test_at_least_one_datapoint_is_shown():
    with pytest.raises(ConfigError, match="PrintData: num must be an integer, 1 or more, not 0"):
        PrintData([], num=0)


class Clock:
    """Time goes on only where a flow says that it took some."""

    now = 100.0

    def __call__(self):
        return self.now

    def takes(self, seconds):
        def func(datapoint):
            self.now += seconds
            return datapoint

        return func


def slow_flow(clock):
    images = MapData(DataFromList([[np.zeros(250_000, np.float32)]] * 4), clock.takes(0.3))
    labels = MapData([[np.int64(1), "a"]] * 4, clock.takes(0.1))
    return MapData(JoinData([images, labels]), clock.takes(0.6))


def test_each_stage_has_its_share_of_the_time():
    clock = Clock()
    report = measure_speed(slow_flow(clock), size=8, seconds=None, clock=clock)
    assert report.datapoints == 8
    assert report.seconds == pytest.approx(8)
    assert report.datapoints_per_second == pytest.approx(1)
    assert report.megabytes_per_second == pytest.approx(1.000008)
    stages = [(stage.depth, stage.name, stage.datapoints, round(stage.share, 6)) for stage in report.stages]
    assert stages == [
        (0, "MapData", 8, 0.6),
        (1, "JoinData", 8, 0),
        (2, "MapData", 8, 0.3),
        (3, "DataFromList", 8, 0),
        (2, "MapData", 8, 0.1),
        (3, "list", 8, 0),
    ]


def test_the_table_can_be_read():
    clock = Clock()
    table = str(measure_speed(BatchData(slow_flow(clock), 2), size=2, seconds=None, clock=clock)).splitlines()
    assert table[0] == "2 batches in 4.000 seconds: 0.5 batches/s, 1.0 MB/s"
    assert table[1].split() == ["stage", "datapoints", "seconds", "share"]
    assert table[3].split() == ["MapData", "4", "2.400", "60.0%"]
    assert len({line.index(cell) for line, cell in zip(table[1:4], ["share", " 0.0%", "60.0%"], strict=True)}) == 1


def test_the_time_is_a_limit_too():
    clock = Clock()
    report = measure_speed(slow_flow(clock), seconds=2.5, clock=clock)
    assert report.datapoints == 3


def test_the_warm_up_does_not_count():
    clock = Clock()
    first = iter([10.0])
    flow = MapData([[0]] * 5, lambda datapoint: clock.takes(next(first, 1.0))(datapoint))
    report = measure_speed(flow, size=3, warmup=1, clock=clock)
    assert (report.datapoints, report.seconds) == (3, 3)
    assert report.stages[0].seconds == 3


def test_a_flow_that_is_measured_stays_where_it_is():
    flow = MapData(DataFromList([[number] for number in range(30)], shuffle=True, seed=1), list)
    measure_speed(flow, size=40)
    assert list(flow) == list(MapData(DataFromList([[number] for number in range(30)], shuffle=True, seed=1), list))


def test_one_that_can_be_iterated_once_is_measured_to_its_end():
    assert measure_speed(iter([[1]] * 5), size=100).datapoints == 5


def test_a_stage_that_divides_its_flow_among_workers_gets_shares():
    delivered = []

    class Parallel(MapData):
        def __iter__(self):
            for index in range(2):
                for datapoint in shard(self.flow, index, 2):
                    delivered.append(datapoint)
                    yield datapoint

    clock = Clock()
    flow = MapData([[number] for number in range(4)], clock.takes(0.5))
    report = measure_speed(Parallel(flow, list), size=4, clock=clock)
    assert delivered == [[0], [2], [1], [3]]
    # The stages in workers are measured for as long as the whole.
    assert report.seconds == 2
    assert [(stage.name, stage.datapoints, stage.seconds, stage.in_worker) for stage in report.stages] == [
        ("Parallel", 4, 2, False),
        ("MapData", 4, 2, True),
        ("list", 4, 0, True),
    ]
    *_, worker, source, note = str(report).splitlines()
    assert worker.split() == ["MapData", "*", "4", "2.000", "100.0%"] and source.split()[:2] == ["list", "*"]
    assert note.startswith("* runs in workers")


def test_a_stage_in_workers_that_can_be_iterated_once_is_not_measured():
    class Parallel(MapData):
        def __iter__(self):
            yield from self.flow.untimed

    report = measure_speed(Parallel(iter([[1]] * 4), list), size=4)
    assert [stage.datapoints for stage in report.stages] == [4, 0]
    assert "elsewhere" in str(report)


def test_stages_in_real_workers_are_measured():
    flow = MultiProcessRunner(BatchData(MapData([[number] for number in range(8)], list), 2), 1)
    report = measure_speed(flow, size=20)
    assert [stage.name for stage in report.stages] == ["MultiProcessRunner", "BatchData", "MapData", "list"]
    assert [stage.in_worker for stage in report.stages] == [False, True, True, True]
    assert report.unit == "batches" and all(stage.datapoints for stage in report.stages)


def test_nothing_is_an_error():
    with pytest.raises(InputError, match="measure_speed: list delivered no datapoint"):
        measure_speed([])
    with pytest.raises(InputError, match="no datapoint after 5"):
        measure_speed(iter([1] * 5), warmup=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": None, "seconds": None}, "must have a limit"),
        ({"size": 0}, "size must be an integer, 1 or more, not 0"),
        ({"warmup": -1}, "warmup must be an integer, 0 or more, not -1"),
        ({"seconds": 0}, "seconds must be positive, not 0"),
    ],
)
def test_limits_are_numbers(arguments, message):
    with pytest.raises(ConfigError, match=f"measure_speed.*{message}"):
        measure_speed([[1]], **arguments)
    with pytest.raises(ConfigError, match="measure_speed takes an iterable"):
        measure_speed(3)


def test_within_a_flow_it_logs_and_delivers(caplog):
    caplog.set_level("INFO")
    flow = TestDataSpeed(DataFromList([[1], [2]]), size=10)
    assert list(flow) == list(flow) == [[1], [2]]
    assert flow.report.datapoints == 10
    assert caplog.text.count("The speed of DataFromList:\n10 datapoints in") == 1


def test_a_flow_without_end_is_measured():
    assert TestDataSpeed(DataFromGenerator(lambda: itertools.repeat([1])), size=7, warmup=3).start().datapoints == 7


@pytest.mark.parametrize("argument", ["size", "warmup"])
def test_the_numbers_of_a_speed_test_are_none_below(argument):
    with pytest.raises(ConfigError, match=f"TestDataSpeed: {argument} must be"):
        TestDataSpeed([], **{argument: -1})


def test_a_stage_that_shows_nothing_beneath_is_measured_as_it_is():
    class Closed(ProxyDataFlow):
        sources = ()

    report = measure_speed(BatchData(Closed([[1]] * 4), 2), size=2)
    assert [(stage.name, stage.datapoints) for stage in report.stages] == [("BatchData", 2), ("Closed", 4)]
