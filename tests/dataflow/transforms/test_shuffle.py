from __future__ import annotations

import logging
import pickle
from itertools import islice

import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import (
    CacheData,
    DataFromGenerator,
    DataFromList,
    LocallyShuffleData,
    MapData,
    MultiThreadRunner,
    Position,
)
from tpk.errors import ConfigError, InputError


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 2**32))
def test_each_epoch_is_a_permutation_within_the_buffer(count, buffer_size, seed):
    flow = LocallyShuffleData(range(count), buffer_size, seed)
    assert len(flow) == count
    for _ in range(2):
        delivered = list(flow)
        assert sorted(delivered) == list(range(count))
        assert all(place > item - buffer_size for place, item in enumerate(delivered))


def test_a_buffer_of_one_changes_nothing():
    assert list(LocallyShuffleData(range(9), 1)) == list(range(9))


def test_same_seed_same_stream_and_epochs_differ():
    flow, same = (LocallyShuffleData(range(100), 10, seed=3) for _ in range(2))
    epochs = [list(flow) for _ in range(2)]
    assert epochs == [list(same) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != list(range(100))


def test_a_buffer_has_room():
    with pytest.raises(ConfigError, match="buffer_size"):
        LocallyShuffleData([], 0)


def counting(calls, size=5):
    def datapoints():
        calls.append(None)
        yield from range(size)

    return DataFromGenerator(datapoints)


def test_the_flow_is_iterated_once():
    calls = []
    flow = CacheData(counting(calls))
    assert [list(flow) for _ in range(3)] == [list(range(5))] * 3
    assert len(calls) == 1


def test_what_was_kept_of_a_pass_that_was_left_early_is_not_all_there_is():
    flow = CacheData(counting([]))
    assert list(islice(flow, 2)) == [0, 1]
    assert list(flow) == list(flow) == list(range(5))


def test_nothing_is_kept_of_a_pass_that_failed():
    calls = []

    def datapoints():
        calls.append(None)
        yield from range(3)
        if len(calls) == 1:
            raise OSError("the disk")
        yield 3

    flow = CacheData(DataFromGenerator(datapoints))
    with pytest.raises(OSError, match="the disk"):
        list(flow)
    assert list(flow) == list(flow) == [0, 1, 2, 3]
    assert len(calls) == 2


def test_closing_it_in_the_first_pass_loses_nothing():
    flow = CacheData(MultiThreadRunner(lambda: DataFromList(range(10)), 2))
    assert list(islice(flow, 3)) == [0, 1, 2]
    flow.close()
    assert list(flow) == list(flow) == list(range(10))
    flow.close()


def test_closing_it_after_the_first_pass_keeps_its_datapoints():
    made = []
    flow = CacheData(MapData(range(5), lambda number: made.append(number) or [number]))
    first = list(flow)
    flow.close()
    assert list(flow) == first
    assert made == list(range(5))


def test_from_the_second_pass_on_it_is_shuffled():
    flow = CacheData(range(50), shuffle=True, seed=1)
    first, second, third = list(flow), list(flow), list(flow)
    assert first == list(range(50)) == sorted(second) == sorted(third)
    assert len({tuple(first), tuple(second), tuple(third)}) == 3


def test_the_length_is_known_once_all_is_kept():
    flow = CacheData(counting([]))
    with pytest.raises(TypeError):
        len(flow)
    list(flow)
    assert len(flow) == 5


def test_a_copy_for_another_process_keeps_its_own():
    flow = CacheData(range(5000))
    list(flow)
    sent = pickle.dumps(flow)
    assert len(sent) < 1000
    assert list(pickle.loads(sent)) == list(range(5000))


def test_a_resumed_run_says_how_much_it_makes_again(caplog):
    position = Position(CacheData(range(5)))
    list(position)
    next(iter(position))
    resumed = Position(CacheData(range(5)))
    resumed.load_state_dict(position.state_dict())
    with caplog.at_level(logging.INFO):
        assert list(resumed) == [1, 2, 3, 4]
    assert "kept 5 datapoints again" in caplog.text


def test_a_resumed_run_does_not_go_on_with_other_data():
    position = Position(CacheData(range(5)))
    list(position)
    resumed = Position(CacheData(range(4)))
    resumed.load_state_dict(position.state_dict())
    with pytest.raises(InputError, match=r"CacheData kept 5 datapoints of range .* finds 4 now"):
        list(resumed)


def test_a_pass_from_memory_that_is_broken_off_leaves_what_is_kept():
    def build():
        return Position(CacheData(DataFromList(range(20), shuffle=True, seed=3)))

    position = build()
    kept = list(position)
    next(iter(position))
    position.break_off()
    resumed = build()
    resumed.load_state_dict(position.state_dict())
    assert list(resumed) == list(position) == kept
