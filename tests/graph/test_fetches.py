"""Which ops run for a structure of fetches."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.graph import fetches
from tpk.graph.fetches import FetchDependencies, ops_run_for

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


def test_ops_that_run_with_a_fetch_are_found_in_every_structure(ops):
    one, two, both, after = ops
    dependencies = FetchDependencies([one, two])
    sparse = tf.SparseTensor([[0]], tf.identity(two.outputs[0]), [1])
    for request, expected in [
        (both, [0, 1]),
        (after, [1]),
        ("after", [1]),
        ([one], [0]),
        ({1: after, "x": {"y": (one,)}}, [0, 1]),
        (sparse, [1]),
        ([None, []], []),
    ]:
        assert dependencies.among(request) == expected


def test_a_structure_that_is_changed_in_place_is_looked_at_again(ops):
    one, two, _, after = ops
    dependencies = FetchDependencies([one, two])
    inner = {"x": one}
    request = [inner]
    assert dependencies.among(request) == [0]
    inner["y"] = after
    assert dependencies.among(request) == [0, 1]
    inner.pop("x")
    assert dependencies.among(request) == [1]


def test_thousands_of_new_structures_of_the_same_things_are_known_once(ops, monkeypatch):
    one, *_ = ops
    searches = []
    monkeypatch.setattr(fetches, "ops_run_for", lambda targets: searches.append(targets) or ops_run_for(targets))
    dependencies = FetchDependencies([one])
    for number in range(2_000):
        assert dependencies.among({f"loss/{number}": one}) == [0]
    assert len(searches) == 1
