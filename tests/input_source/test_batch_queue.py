from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError, InputError
from tpk.input_source import BatchQueueInput

ANY = [tf.TensorSpec([None, 2], tf.float32, "x"), tf.TensorSpec([None], tf.int32, "y")]
THREE = [tf.TensorSpec([3, 2], tf.float32, "x"), tf.TensorSpec([3], tf.int32, "y")]


def points(count):
    return [[np.full(2, number, np.float32), number] for number in range(count)]


def taken(training, steps):
    batches = []
    for _ in range(steps):
        for x, y in training.step():
            assert np.array_equal(x, np.stack([y, y], 1))
            batches.append(y.tolist())
    return batches


@pytest.mark.parametrize("signature", [ANY, THREE])
@pytest.mark.parametrize("towers", [1, 2])
def test_batches_follow_each_other_across_passes(drive, signature, towers):
    source = BatchQueueInput(points(5), 3)
    with drive(source, signature, towers) as training:
        assert (source.size, source.left_out) == (1, 0)
        assert [number for batch in taken(training, 4 // towers) for number in batch] == [
            number % 5 for number in range(12)
        ]


def test_the_last_batch_is_smaller_where_the_signature_allows_it(drive):
    source = BatchQueueInput(points(8), 3, infinite=False)
    with drive(source, ANY) as training:
        assert source.size == 3
        assert taken(training, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()
        training.source.reset_state()
        assert taken(training, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_what_makes_no_whole_batch_is_not_used_where_batches_have_one_size(drive):
    source = BatchQueueInput(points(8), 3, infinite=False)
    with drive(source, THREE) as training:
        assert (source.size, source.left_out) == (2, 2)
        assert taken(training, 2) == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()


def test_a_failure_comes_after_the_whole_batches_before_it(drive):
    flow = [*points(4), [np.zeros(3), 4]]
    with drive(BatchQueueInput(flow, 2), ANY) as training:
        assert taken(training, 2) == [[0, 1], [2, 3]]
        with pytest.raises(InputError, match=r"datapoint 4, component 0 \('x'\)"):
            training.step()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (tf.TensorSpec([], tf.float32, "x"), "'x' of shape .* is not a batch of 3"),
        (tf.TensorSpec(None, tf.float32, "x"), "is not a batch of 3"),
        (tf.TensorSpec([4, 2], tf.float32, "x"), "its first dimension must be 3 or None"),
        (tf.TensorSpec([3, None], tf.float32, "x"), r"may differ in shape, \((None|\?),\)"),
    ],
)
def test_a_signature_that_is_none_of_batches_is_refused(drive, spec, message):
    with pytest.raises(InputError, match=message):
        drive(BatchQueueInput(points(5), 3), [spec])


def test_a_queue_of_other_shapes_is_refused():
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(5, [tf.float32, tf.int32], [[3], []])
        with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
            BatchQueueInput(points(5), 3, queue).setup(ANY)


@pytest.mark.parametrize(("batch_size", "queue_size"), [(0, None), (4, 3)])
def test_a_batch_has_datapoints_and_fits_the_queue(batch_size, queue_size):
    with pytest.raises(ConfigError, match=r"batch_size must be an integer, 1 or more|never holds a batch of 4"):
        BatchQueueInput(points(5), batch_size, queue_size=queue_size)
