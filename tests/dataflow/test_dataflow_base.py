from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tpk.dataflow import BatchData, DataFromList, MapData, ProxyDataFlow, RNGDataFlow
from tpk.dataflow.base import reset_state
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
    with pytest.raises(ConfigError, match="seed of Noise"):
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
