from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.graph.step.fetches import FetchDependencies

v1 = tf.compat.v1


@pytest.fixture
def ops():
    """Two sources, an op that takes both, and one that waits for the second."""
    with tf.Graph().as_default():
        one, two = tf.constant(1.0, name="one"), tf.constant([2.0], name="two")
        both = tf.add(one, two, name="both")
        with tf.control_dependencies([two]):
            after = tf.no_op("after")
        yield one.op, two.op, both, after


def test_what_runs_along_is_found_in_every_structure(ops):
    one, two, both, after = ops
    dependencies = FetchDependencies([one, two])
    sparse = tf.SparseTensor([[0]], tf.identity(two.outputs[0]), [1])
    for fetches, expected in [
        (both, [0, 1]),
        (after, [1]),
        ("after", [1]),
        ([one], [0]),
        ({1: after, "x": {"y": (one,)}}, [0, 1]),
        (sparse, [1]),
        ([None, []], []),
    ]:
        assert dependencies.among(fetches) == expected


def test_a_structure_that_is_changed_in_place_is_looked_at_again(ops):
    one, two, _, after = ops
    dependencies = FetchDependencies([one, two])
    inner = {"x": one}
    fetches = [inner]
    assert dependencies.among(fetches) == [0]
    inner["y"] = after
    assert dependencies.among(fetches) == [0, 1]
    inner.pop("x")
    assert dependencies.among(fetches) == [1]


def test_thousands_of_new_structures_of_the_same_things_are_known_once(ops):
    one, *_ = ops
    dependencies = FetchDependencies([one])
    for number in range(2_000):
        assert dependencies.among({f"loss/{number}": one}) == [0]
    assert len(dependencies._known) == 1
