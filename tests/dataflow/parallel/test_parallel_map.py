"""Parallel maps: what they deliver, in which order, and where a resumed one goes on."""

from __future__ import annotations

import json
import textwrap
import threading
from itertools import islice

import numpy as np
import pytest

from tpk.dataflow import DataFromList, MapData, MultiProcessMapData, MultiThreadMapData
from tpk.dataflow.base import close_dataflow
from tpk.errors import ConfigError, InputError

MAPS = pytest.mark.parametrize("parallel_map", [MultiProcessMapData, MultiThreadMapData])


def source():
    return MapData(DataFromList(list(range(23)), shuffle=True, seed=1), lambda number: [np.full([3], number)])


def endless(flow):
    while True:
        yield from flow


def values(datapoints):
    return [int(datapoint[0][0]) for datapoint in datapoints]


@MAPS
def test_it_equals_the_map_in_this_process(parallel_map):
    # Lambdas, because the workers cannot import this file.
    keep = lambda datapoint: [datapoint[0] * 2] if datapoint[0][0] % 3 else None  # noqa: E731
    flow, reference = parallel_map(source(), 2, keep), MapData(source(), keep)
    for _ in range(2):
        assert values(flow) == values(reference)
    close_dataflow(flow)


def test_a_worker_can_call_a_memoized_function_of_the_script():
    script = {"__name__": "__main__"}
    source = """
        import functools

        @functools.lru_cache(maxsize=8)
        def squares(number):
            return [each**2 for each in range(number)]

        def look_up(datapoint):
            return [squares(5)[datapoint], squares.cache_parameters()["maxsize"]]
    """
    exec(textwrap.dedent(source), script)
    flow = MultiProcessMapData(DataFromList([2, 4], shuffle=False), 1, script["look_up"])
    assert list(flow) == [[4, 8], [16, 8]]
    close_dataflow(flow)


@MAPS
@pytest.mark.parametrize("delivered", [0, 1, 14, 15, 16, 37])
def test_a_resumed_run_goes_on_where_it_was(parallel_map, delivered):
    keep = lambda datapoint: [datapoint[0] * 2] if datapoint[0][0] % 3 else None  # noqa: E731
    stream = endless(MapData(source(), keep))
    values(islice(stream, delivered))
    expected = values(islice(stream, 40))

    flow = parallel_map(source(), 2, keep)
    values(islice(endless(flow), delivered))
    state = json.loads(json.dumps(flow.state_dict()))
    close_dataflow(flow)
    resumed = parallel_map(source(), 2, keep)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert values(islice(endless(resumed), 40)) == expected
    close_dataflow(resumed)


@MAPS
@pytest.mark.parametrize("delivered", [0, 1, 7, 23])
def test_out_of_order_each_datapoint_comes_once_even_if_resumed(parallel_map, delivered):
    plus_one = lambda datapoint: [datapoint[0] + 1]  # noqa: E731
    flow = parallel_map(source(), 3, plus_one, ordered=False)
    assert sorted(values(flow)) == list(range(1, 24))
    first = values(islice(flow, delivered))
    state = json.loads(json.dumps(flow.state_dict()))
    close_dataflow(flow)

    resumed = parallel_map(source(), 3, plus_one, ordered=False)
    resumed.load_state_dict(state)
    assert sorted(first + values(resumed)) == list(range(1, 24))
    assert sorted(values(resumed)) == list(range(1, 24))
    close_dataflow(resumed)


def test_out_of_order_a_slow_datapoint_holds_up_nothing():
    released = threading.Event()

    def wait_for_the_others(number):
        if number == 0:
            released.wait(60)
        return number

    flow = iter(MultiThreadMapData(DataFromList(range(8)), 2, wait_for_the_others, buffer_size=4, ordered=False))
    assert sorted(next(flow) for _ in range(7)) == [1, 2, 3, 4, 5, 6, 7]
    released.set()
    assert list(flow) == [0]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_a_function_that_ends_its_thread_by_force_is_an_error(kind):
    def leaves(datapoint):
        raise kind

    with pytest.raises(InputError, match=rf"MultiThreadMapData: the data code raised {kind.__name__}\(\) in leaves"):
        list(MultiThreadMapData([[0]], 2, leaves))


def test_no_more_is_taken_from_the_flow_than_the_buffer_holds():
    taken = []
    flow = MapData(DataFromList(range(100)), lambda number: taken.append(number) or [number])
    results = iter(MultiThreadMapData(flow, 2, lambda datapoint: datapoint, buffer_size=5))
    next(results)
    assert len(taken) <= 6
    results.close()


@MAPS
def test_a_pass_that_is_given_up_leaves_no_result_for_the_next_one(parallel_map):
    flow, reference = parallel_map(source(), 2, lambda each: each), source()
    values(islice(flow, 3))
    values(islice(reference, 3))
    assert values(flow) == values(reference)
    close_dataflow(flow)


@MAPS
def test_an_error_in_the_function_arrives(parallel_map):
    def fails_for_five(datapoint):
        if datapoint == 5:
            raise ZeroDivisionError("five")
        return datapoint

    flow = parallel_map(DataFromList(range(10)), 2, fails_for_five)
    stream = iter(flow)
    assert [next(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError, match="five"):
        next(stream)
    close_dataflow(flow)


@MAPS
def test_an_error_in_the_flow_beneath_arrives(parallel_map):
    def broken():
        yield [1]
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        list(parallel_map(broken(), 2, lambda each: each))


@MAPS
def test_wrong_options_are_refused(parallel_map):
    with pytest.raises(ConfigError, match="must be positive"):
        parallel_map([[1]], 0, lambda each: each)
    with pytest.raises(ConfigError, match="takes a function that maps a datapoint, not 'f'"):
        parallel_map([[1]], 1, "f")


@MAPS
def test_shares_divide_the_datapoints(parallel_map):
    shares = [parallel_map(source(), 1, lambda each: each).shard(index, 2) for index in range(2)]
    assert sorted(value for share in shares for value in values(share)) == list(range(23))
    for share in shares:
        close_dataflow(share)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("delivered", [0, 1, 13, 100, 199])
def test_threads_that_take_several_datapoints_at_a_time_lose_none(ordered, delivered):
    def build():
        return MultiThreadMapData(
            DataFromList(range(200)), 2, lambda number: number + 1, buffer_size=64, ordered=ordered
        )

    flow = build()
    first = list(islice(flow, delivered))
    resumed = build()
    resumed.load_state_dict(json.loads(json.dumps(flow.state_dict())))
    rest = list(resumed)
    assert sorted(first + rest) == list(range(1, 201))
    assert not ordered or first + rest == list(range(1, 201))


def test_a_position_is_known_when_many_datapoints_have_overtaken_a_slow_one():
    has_overtaken = threading.Event()

    def build():
        return MultiThreadMapData(DataFromList(range(400)), 2, wait_for_others, buffer_size=16, ordered=False)

    def wait_for_others(number):
        if number == 0:
            has_overtaken.wait(60)
        return number

    flow = build()
    delivered = iter(flow)
    first = list(islice(delivered, 300))
    resumed = build()
    resumed.load_state_dict(json.loads(json.dumps(flow.state_dict())))
    has_overtaken.set()
    assert 0 not in first
    assert sorted(first + list(delivered)) == sorted(first + list(resumed)) == list(range(400))


def test_the_results_before_a_failure_come_first():
    flow = MultiThreadMapData(DataFromList(range(100)), 2, lambda number: 37 / (37 - number), buffer_size=64)
    delivered = []
    with pytest.raises(ZeroDivisionError):
        delivered.extend(flow)
    assert delivered == [37 / (37 - number) for number in range(37)]
