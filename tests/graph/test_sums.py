from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.graph.sums import sum_in_order

# Each order of adding these gives other bits.
PARTS = [np.float32(1e8), np.float32(1.0), np.float32(-1e8), np.float32(3.0)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_tensors_are_added_one_after_the_other(count):
    expected = PARTS[0]
    for part in PARTS[1:count]:
        expected = np.float32(expected + part)
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        tensors = [tf.compat.v1.placeholder_with_default(tf.fill([5], part), [5]) for part in PARTS[:count]]
        np.testing.assert_array_equal(sess.run(sum_in_order(tensors)), np.full(5, expected))
