"""Flows that hold datapoints back, on top of one that writes all of them into one and the same array."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tpk.dataflow import (
    BatchData,
    CacheData,
    ConcatData,
    DataFlow,
    DataFromGenerator,
    DataFromIterable,
    DataFromList,
    FakeData,
    JoinData,
    LocallyShuffleData,
    MapData,
    MultiProcessMapData,
    MultiProcessRunner,
    MultiThreadMapData,
    MultiThreadRunner,
    RepeatedData,
    SelectComponent,
)
from tpk.dataflow.base import close_dataflow, may_refill

COUNT = 40


def refilling(wrap=lambda array: [array], size=10_000):
    def datapoints():
        array = np.empty(size)
        for number in range(COUNT):
            array[:] = number
            yield wrap(array)

    return DataFromGenerator(datapoints)


def numbers(flow):
    return [[set(array.tolist()) for array in _arrays(datapoint)] for datapoint in flow]


def _arrays(datapoint):
    if isinstance(datapoint, np.ndarray):
        return [datapoint]
    parts = datapoint.values() if isinstance(datapoint, dict) else datapoint
    return [array for part in parts for array in _arrays(part)]


EACH = [[{number}] for number in range(COUNT)]


class Special(np.ndarray):
    pass


@pytest.mark.parametrize("size", [10, 10_000])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda array: [array],
        lambda array: (array,),
        lambda array: {"a": [array]},
        lambda array: [array.view(Special)],
    ],
    ids=["list", "tuple", "nested", "subclass"],
)
def test_what_is_cached_or_shuffled_is_what_was_delivered(wrap, size):
    cached = CacheData(refilling(wrap, size))
    assert numbers(cached) == EACH
    assert numbers(cached) == EACH
    shuffled = numbers(LocallyShuffleData(refilling(wrap, size), 8))
    assert sorted(shuffled, key=lambda sets: min(sets[0])) == EACH


def test_what_is_made_ahead_in_threads_or_processes_is_what_was_delivered():
    assert numbers(MultiThreadRunner(refilling, 1, num_prefetch=8)) == EACH
    assert numbers(MultiThreadMapData(refilling(), 2, lambda each: each, buffer_size=8)) == EACH
    for parallel in (MultiProcessRunner(refilling(), 1), MultiProcessMapData(refilling(), 1, lambda each: each)):
        assert numbers(parallel) == EACH
        close_dataflow(parallel)


def test_what_the_function_of_a_thread_map_returns_is_what_it_returned():
    own = threading.local()

    def in_the_buffer_of_its_thread(datapoint):
        if not hasattr(own, "buffer"):
            own.buffer = np.empty(10_000)
        own.buffer[:] = datapoint[0]
        return [own.buffer]

    assert numbers(MultiThreadMapData([[n] for n in range(COUNT)], 2, in_the_buffer_of_its_thread)) == EACH


def test_a_list_or_a_text_in_a_batch_is_what_was_delivered():
    (batch,) = BatchData(refilling(), COUNT, use_list=True)
    assert [set(array.tolist()) for array in batch[0]] == [{number} for number in range(COUNT)]

    def texts():
        text = np.empty(1, "U3")
        for number in range(COUNT):
            text[:] = str(number)
            yield [text]

    ((batch,),) = BatchData(DataFromGenerator(texts), COUNT)
    assert batch[:, 0].tolist() == [str(number) for number in range(COUNT)]


class Own(DataFlow):
    refills_arrays = False

    def __iter__(self):
        yield [np.zeros(3)]


UNKNOWN = DataFromGenerator(lambda: [])


@pytest.mark.parametrize(
    ("flow", "may"),
    [
        ([[1]], False),
        (DataFromList([[1]]), False),
        (DataFromList(np.zeros([3, 3])), True),
        (DataFromIterable([[1]]), False),
        (DataFromIterable(iter([[1]])), True),
        (DataFromGenerator([[1]]), False),
        (UNKNOWN, True),
        (iter([[1]]), True),
        (Own(), False),
        (FakeData([[3]]), False),
        (MapData([[1]], list), True),
        (SelectComponent([[1]], [0]), False),
        (SelectComponent(UNKNOWN, [0]), True),
        (RepeatedData(Own(), 2), False),
        (RepeatedData(UNKNOWN, 2), True),
        (ConcatData([Own(), UNKNOWN]), True),
        (JoinData([Own(), Own()]), False),
        (BatchData(UNKNOWN, 2), False),
        (LocallyShuffleData(UNKNOWN, 2), False),
        (CacheData(UNKNOWN), False),
        (MultiProcessRunner(UNKNOWN, 2), False),
        (MultiProcessMapData(UNKNOWN, 2, list), False),
        (MultiThreadRunner(lambda: UNKNOWN, 2), False),
        (MultiThreadMapData(UNKNOWN, 2, list), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DataFlow) else repr(value)[:8],
)
def test_which_flows_may_write_to_an_array_again(flow, may):
    assert may_refill(flow) is may
