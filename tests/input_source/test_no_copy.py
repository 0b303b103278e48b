"""Large arrays enter the graph without a copy, and live as long as the graph needs them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, aligned_empty
from tpk.input_source import FeedInput, QueueInput, StagingInput

SIGNATURE = [tf.TensorSpec([1000], tf.float32, "x")]
SOURCES = {
    "feed": FeedInput,
    "queue": QueueInput,
    "staged feed": lambda flow, **options: StagingInput(FeedInput(flow, **options), devices=["/cpu:0"]),
    "staged queue": lambda flow, **options: StagingInput(QueueInput(flow, **options), devices=["/cpu:0"]),
}


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture(params=SOURCES)
def make_source(request):
    return SOURCES[request.param]


def test_the_graph_has_the_very_memory_of_an_aligned_array(make_source, drive):
    array = aligned_empty((1000,), np.float32)
    array[:] = 1
    with drive(make_source([[array]]), SIGNATURE) as training:
        ((x,),) = training.step()
        assert address(x) == address(array)


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

    with drive(make_source(DataFromGenerator(arrays), infinite=False), SIGNATURE) as training:
        for number in range(20):
            ((x,),) = training.step()
            assert np.all(x == number)
            del x
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()
    gc.collect()
    # TensorFlow lets go of what a run was fed when the next run begins.
    assert [number for number, array in enumerate(alive) if array() is not None] in ([], [19])
