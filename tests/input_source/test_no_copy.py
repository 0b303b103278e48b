"""Large arrays enter the graph without a copy, and live as long as the graph needs them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, MultiProcessRunner, ProxyDataFlow, RepeatedData, aligned_empty
from tpk.input_source import FeedInput, QueueInput, StagingInput

SIGNATURE = [tf.TensorSpec([1000], tf.float32, "x")]
SOURCES = {
    "feed": FeedInput,
    "queue": QueueInput,
    "staged queue": lambda flow, **options: StagingInput(QueueInput(flow, **options), devices=["/cpu:0"]),
}


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture(params=SOURCES)
def make_source(request):
    return SOURCES[request.param]


@pytest.fixture
def addresses(drive):
    """Returns where the graph has the array in a step."""

    class Addresses(drive):
        def finish_graph(self):
            self.fetches = tf.numpy_function(lambda x: np.int64(address(x)), self.towers[0], tf.int64)

    return Addresses


def test_the_graph_has_the_very_memory_of_an_aligned_array(make_source, addresses):
    array = aligned_empty((1000,), np.float32)
    array[:] = 1
    with addresses(make_source([[array]]), SIGNATURE) as training:
        assert training.step() == address(array)


def test_a_flow_can_say_that_it_does_not_write_to_its_arrays_again(make_source, addresses):
    array = aligned_empty((1000,), np.float32)
    array[:] = 1
    flow = DataFromGenerator(lambda: iter([[array]]))
    with addresses(make_source(RepeatedData(flow, 2)), SIGNATURE) as training:
        assert training.step() != address(array)
    flow.refills_arrays = False
    with addresses(make_source(RepeatedData(flow, 2)), SIGNATURE) as training:
        assert training.step() == address(array)


def test_what_worker_processes_deliver_enters_the_graph_without_a_copy(make_source, addresses):
    flow = MultiProcessRunner(DataFromGenerator(lambda: ([np.full(1000, n, np.float32)] for n in range(100))), 1)
    received = set()

    class Received(ProxyDataFlow):
        refills_arrays = None

        def __iter__(self):
            for datapoint in self.flow:
                received.add(address(datapoint[0]))
                yield datapoint

    with addresses(make_source(Received(flow)), SIGNATURE) as training:
        assert training.step() in received


def test_an_array_that_is_not_aligned_arrives_all_the_same(make_source, drive):
    array = aligned_empty((1001,), np.float32)[1:]
    array[:] = 3
    with drive(make_source([[array]]), SIGNATURE) as training:
        ((x,),) = training.step()
        assert address(x) != address(array)
        assert np.array_equal(x, array)


def test_an_array_lives_as_long_as_the_graph_needs_it_and_no_longer(make_source, drive):
    alive = []

    def arrays():
        for number in range(20):
            array = aligned_empty((1000,), np.float32)
            array[:] = number
            alive.append(weakref.ref(array))
            yield [array]
            del array

    flow = DataFromGenerator(arrays)
    flow.refills_arrays = False
    with drive(make_source(flow, infinite=False), SIGNATURE) as training:
        for number in range(20):
            ((x,),) = training.step()
            assert np.all(x == number)
            del x
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()
    gc.collect()
    # TensorFlow lets go of what a run was fed when the next run begins.
    assert [number for number, array in enumerate(alive) if array() is not None] in ([], [19])
