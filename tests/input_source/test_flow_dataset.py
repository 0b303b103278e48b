from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator
from tpk.errors import ConfigError
from tpk.input_source import dataflow_to_dataset

FLOW = [[np.full(2, number, np.float32), number] for number in range(5)]


@pytest.mark.tf2_only("iterates a tf.data.Dataset in eager mode")
def test_each_iteration_is_a_pass_in_eager_mode():
    dataset = dataflow_to_dataset(FLOW, [tf.TensorSpec([2], tf.float32), tf.int32])
    for _ in range(2):
        assert [int(number) for _, number in dataset] == list(range(5))
    assert dataset.element_spec == (tf.TensorSpec([2], tf.float32), tf.TensorSpec(None, tf.int32))
    batch, _ = next(iter(dataset.batch(5)))
    assert np.array_equal(batch, np.stack([x for x, _ in FLOW]))


def test_it_belongs_to_the_graph_around():
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        dataset = dataflow_to_dataset(FLOW, [tf.float32, tf.int32]).repeat()
        _, number = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        assert [sess.run(number) for _ in range(7)] == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.tf2_only("iterates a tf.data.Dataset in eager mode")
def test_the_datapoints_may_be_dicts():
    flow = [{"y": 1, "x": 2.0}]
    dataset = dataflow_to_dataset(flow, [tf.TensorSpec([], tf.float32, "x"), tf.TensorSpec([], tf.int32, "y")])
    assert [(float(x), int(y)) for x, y in dataset] == [(2.0, 1)]


@pytest.mark.tf2_only("iterates a tf.data.Dataset in eager mode")
def test_a_wrong_datapoint_is_named():
    dataset = dataflow_to_dataset(DataFromGenerator(lambda: [[1], [0.5]]), [tf.int32])
    with pytest.raises(tf.errors.OpError, match="datapoint 1, component 0 \\('component_0'\\)"):
        list(dataset)


@pytest.mark.tf2_only("iterates a tf.data.Dataset in eager mode")
def test_a_pass_that_was_left_is_not_resumed():
    dataset = dataflow_to_dataset(FLOW, [tf.float32, tf.int32])
    assert [int(number) for _, number in dataset.take(2)] == [0, 1]
    assert [int(number) for _, number in dataset] == list(range(5))


@pytest.mark.parametrize(
    ("flow", "signature", "message"),
    [
        (3, [tf.int32], "takes an iterable of datapoints"),
        (FLOW, [], "not an empty list"),
        (FLOW, [tf.float32, "nonsense"], "component 1 must be given as a tf.TensorSpec or a dtype, not 'nonsense'"),
    ],
)
def test_what_it_takes(flow, signature, message):
    with pytest.raises(ConfigError, match=message):
        dataflow_to_dataset(flow, signature)
