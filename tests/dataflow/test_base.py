from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest

from tpk.dataflow import (
    BatchData,
    DataFlow,
    DataFromGenerator,
    DataFromIterable,
    DataFromList,
    MapData,
    Position,
    ProxyDataFlow,
    RepeatedData,
    RNGDataFlow,
)
from tpk.dataflow.base import reset_state, shard
from tpk.errors import ConfigError


class Noise(RNGDataFlow):
    def __iter__(self):
        rng = self.epoch_rng()
        for _ in range(5):
            yield [float(rng.random())]


def test_importing_dataflows_does_not_import_tensorflow():
    code = "import sys, tpk.dataflow; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_same_seed_gives_the_same_stream_and_each_epoch_another_part_of_it():
    first, second = Noise(seed=7), Noise(seed=7)
    epochs = [list(first) for _ in range(3)]
    assert epochs == [list(second) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert list(Noise(seed=8)) != epochs[0]


def test_a_drawn_seed_is_kept_so_that_the_stream_can_be_had_again():
    drawn = Noise()
    assert Noise().seed != drawn.seed
    assert list(Noise(seed=drawn.seed)) == list(drawn)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ConfigError, match="Noise: seed must be an integer"):
        Noise(seed=seed)


def test_a_numpy_integer_is_a_seed():
    assert list(Noise(seed=np.int64(3))) == list(Noise(seed=3))


def test_a_proxy_delivers_the_flow_beneath_with_its_length():
    flow = ProxyDataFlow([[1], [2]])
    assert list(flow) == [[1], [2]]
    assert len(flow) == 2


def test_a_proxy_of_a_flow_without_length_has_none():
    with pytest.raises(TypeError):
        len(ProxyDataFlow(iter([[1]])))


def test_reset_state_reaches_the_innermost_flow():
    calls = []

    class Source(ProxyDataFlow):
        def reset_state(self):
            calls.append("reset")

    reset_state(BatchData(MapData(Source([[1]]), lambda datapoint: datapoint), 1))
    assert calls == ["reset"]
    reset_state([[1]])  # a plain list has nothing to reset


def test_closing_a_flow_closes_what_it_keeps_as_an_attribute():
    closed = []

    class Source(DataFlow):
        def __iter__(self):
            yield [1]

        def close(self):
            closed.append("closed")

    class Mixing(ProxyDataFlow):
        def __init__(self, flow, other):
            super().__init__(flow)
            self.other = other

    Mixing(Source(), Source()).close()
    assert closed == ["closed", "closed"]


def test_what_cannot_be_iterated_is_refused():
    with pytest.raises(ConfigError, match=r"BatchData takes an iterable of datapoints, not 3"):
        BatchData(3, 2)


def test_a_generator_function_in_place_of_its_generator_gets_a_hint():
    def datapoints():
        yield [1]

    with pytest.raises(ConfigError, match="DataFromGenerator"):
        MapData(datapoints, lambda datapoint: datapoint)


def test_checking_a_flow_does_not_start_an_iteration():
    class Loader:
        def __iter__(self):
            raise AssertionError("started")

    ProxyDataFlow(Loader())


def test_a_sequence_without_iter_is_a_flow():
    class Pairs:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            if index >= 3:
                raise IndexError(index)
            return [index]

    assert list(ProxyDataFlow(Pairs())) == [[0], [1], [2]]
    assert sorted(DataFromList(Pairs(), shuffle=True)) == [[0], [1], [2]]


class Touched(Sequence):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, size):
        self.size = size
        self.made = []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        self.made.append(index)
        return [index]


class TouchedLikeTorch:
    """What Python iterates by index, because it defines nothing else."""

    __init__, __len__, __getitem__ = Touched.__init__, Touched.__len__, Touched.__getitem__


@pytest.mark.parametrize("kind", [Touched, TouchedLikeTorch])
@pytest.mark.parametrize(
    "above",
    [
        lambda items: items,
        DataFromIterable,
        lambda items: DataFromGenerator(DataFromIterable(items)),
        lambda items: MapData(items, lambda datapoint: datapoint),
        lambda items: RepeatedData(DataFromIterable(items), 1),
    ],
    ids=["alone", "DataFromIterable", "DataFromGenerator", "MapData", "RepeatedData"],
)
def test_the_share_of_a_sequence_touches_its_own_items_only(kind, above):
    items = kind(7)
    share = shard(above(items), 1, 3)
    assert list(share) == [[1], [4]]
    assert items.made == [1, 4]
    assert len(share) == 2


def test_batches_of_a_sequence_are_made_of_their_own_items_only():
    items = Touched(10)
    share = BatchData(items, 2, remainder=True).shard(1, 2)
    assert [batch[0].tolist() for batch in share] == [[2, 3], [6, 7]]
    assert items.made == [2, 3, 6, 7]


def test_the_share_of_an_array_has_its_rows():
    assert [row.tolist() for row in shard(np.arange(10).reshape(5, 2), 0, 2)] == [[0, 1], [4, 5], [8, 9]]


def test_the_share_of_a_mapping_has_what_iterating_it_delivers():
    class Columns(dict):
        def __getitem__(self, name):
            raise AssertionError("iterated, it delivers names")

    assert list(shard(Columns(a=1, b=2, c=3), 1, 2)) == ["b"]


@pytest.mark.parametrize("flow", [range(23), DataFromGenerator(lambda: iter(range(23)))], ids=["sequence", "generator"])
@pytest.mark.parametrize("block", [1, 2])
def test_the_share_of_a_share_has_every_so_many_of_its_datapoints(flow, block):
    for index in range(2):
        of_one = list(shard(flow, index, 2))
        within = [list(shard(shard(flow, index, 2), inner, 3, block)) for inner in range(3)]
        assert within == [
            [each for number, each in enumerate(of_one) if number // block % 3 == inner] for inner in range(3)
        ]


def test_a_share_of_a_sequence_goes_on_without_what_was_delivered():
    position = Position(shard(Touched(9), 1, 2))
    assert next(iter(position)) == [1]
    items = Touched(9)
    resumed = Position(shard(items, 1, 2))
    resumed.load_state_dict(position.state_dict())
    assert list(resumed) == [[3], [5], [7]]
    assert items.made == [3, 5, 7]
    assert list(resumed) == [[1], [3], [5], [7]]


def test_the_share_of_a_very_long_sequence_takes_no_room_for_what_is_not_delivered():
    share = BatchData(Touched(2**62), 3).shard(1, 2)
    assert [batch[0].tolist() for batch in islice(share, 2)] == [[3, 4, 5], [9, 10, 11]]
    assert len(share) == 2**62 // 6
