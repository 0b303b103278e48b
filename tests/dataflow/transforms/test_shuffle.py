from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import LocallyShuffleData
from tpk.errors import ConfigError


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
