from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import TowerError
from tpk.layers.cross_tower import (
    CrossTowerSums,
    check_nothing_is_summed,
    check_sums_are_complete,
    is_summed_across_towers,
    sum_across_towers,
)

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def build(total, tower_func):
    """Build towers, each by a call with its index, in its name scope and on its device."""
    sums = CrossTowerSums(total)
    outputs = []
    for index in range(total):
        with tf.name_scope(f"tower{index}/"), tf.device(f"/device:CPU:{index}"), sums.tower(index):
            outputs.append(tower_func(index))
    return outputs


def run(fetches, feed=None):
    config = v1.ConfigProto(device_count={"CPU": 4})
    with v1.Session(config=config) as sess:
        sess.run(v1.global_variables_initializer())
        return sess.run(fetches, feed)


def value(index):
    return tf.constant([float(10**index), 0.1 * index])


def test_every_tower_gets_the_sum():
    sums = build(3, lambda index: sum_across_towers(value(index), "sum"))
    check_sums_are_complete()
    np.testing.assert_allclose(run(sums), [[111, 0.3]] * 3, rtol=1e-6)
    assert [(each.device, each.shape.as_list()) for each in sums] == [(f"/device:CPU:{i}", [2]) for i in range(3)]


def test_the_sum_is_computed_once_so_all_get_the_same_bits(graph):
    rng = np.random.default_rng(0)
    sums = build(4, lambda index: sum_across_towers(rng.normal(size=1000).astype(np.float32), "sum"))
    assert len([op for op in graph.get_operations() if op.type == "AddV2"]) == 3
    first, *others = run(sums)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_one_sum_may_depend_on_another():
    def tower(index):
        mean = sum_across_towers(float(index), "first") / 3
        return sum_across_towers((index - mean) ** 2, "second")

    np.testing.assert_allclose(run(build(3, tower)), [2.0] * 3)


@pytest.mark.parametrize("total", [0, 1])
def test_where_there_are_no_others_it_is_the_tensor_itself(total):
    tensor = tf.ones([])
    assert not is_summed_across_towers()
    if total:
        assert build(1, lambda index: (sum_across_towers(tensor, "sum"), is_summed_across_towers())) == [
            (tensor, False)
        ]
    else:
        assert sum_across_towers(tensor, "sum") is tensor
    check_nothing_is_summed("async")


def test_a_tower_knows_that_it_sums():
    assert build(2, lambda index: is_summed_across_towers()) == [True, True]
    assert not is_summed_across_towers()


def test_the_gradient_of_a_sum_is_the_sum_of_the_gradients():
    """Each tower takes the gradient of its own cost, as strategies do."""
    xs = [tf.constant([1.0, 2.0]), tf.constant([3.0, 5.0])]
    costs = build(2, lambda i: tf.reduce_sum(sum_across_towers(xs[i] ** 2, "sum") ** 2 * (i + 1)))
    gradients = [tf.gradients(cost, x)[0] for cost, x in zip(costs, xs, strict=True)]
    check_sums_are_complete()
    ys = [tf.constant([1.0, 2.0]), tf.constant([3.0, 5.0])]
    plain = sum(tf.reduce_sum((ys[0] ** 2 + ys[1] ** 2) ** 2 * (i + 1)) for i in range(2))
    found, expected = run([gradients, tf.gradients(plain, ys)])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradients_stay_in_their_tower(graph):
    """A tower does not differentiate the parts of the other towers."""
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    costs = build(3, lambda i: tf.sin(sum_across_towers(tf.cos(w * i), "sum")))
    before = set(graph.get_operations())
    gradients = [tf.gradients(cost, w)[0] for cost in costs]
    sines = [op for op in graph.get_operations() if op not in before and op.type in ("Sin", "Cos")]
    assert len(sines) == 2 * 3
    total = sum(np.cos(i) for i in range(3))
    inner = -sum(i * np.sin(i) for i in range(3))
    np.testing.assert_allclose(np.sum(run(gradients)), 3 * np.cos(total) * inner, rtol=1e-5)


def test_a_sum_that_one_tower_does_not_ask_for_is_an_error():
    sums = build(3, lambda i: sum_across_towers(value(i), "sum") if i != 1 else None)
    with pytest.raises(TowerError, match=r"'tower0/sum' is summed across 3 towers, but built only in tower 0, 2\."):
        check_sums_are_complete()
    with pytest.raises(tf.errors.InvalidArgumentError, match="tower0/sum/needs_every_tower"):
        run(sums[0])


def test_a_gradient_that_one_tower_does_not_take_is_an_error():
    x = tf.ones([])
    costs = build(2, lambda i: sum_across_towers(x * 2, "sum"))
    (gradient,) = tf.gradients(costs[1], x)
    with pytest.raises(
        TowerError, match=r"'tower0/sum/gradient' is summed across 2 towers, but built only in tower 1\."
    ):
        check_sums_are_complete()
    with pytest.raises(tf.errors.InvalidArgumentError, match="needs_every_tower"):
        run(gradient)
    tf.gradients(costs[0], x)
    check_sums_are_complete()
    assert run(gradient) == 4


@pytest.mark.parametrize("other", [np.ones([3], np.float32), np.ones([], np.float32), np.ones([2])])
def test_values_that_do_not_fit_are_an_error(other):
    message = r"'tower0/sum' cannot be summed across towers: it is float\d\d of shape \(.*\) in tower 1, and float32 of"
    with pytest.raises(TowerError, match=message):
        build(2, lambda index: sum_across_towers(other if index else tf.ones([2]), "sum"))


def test_shapes_may_be_known_only_in_the_step():
    fed = v1.placeholder(tf.float32, [None])
    sums = build(2, lambda index: sum_across_towers(fed if index else tf.ones([2]), "sum"))
    np.testing.assert_array_equal(run(sums, {fed: [1, 2]}), [[2, 3]] * 2)


def in_cond(index):
    return tf.cond(tf.ones([]) > 0, lambda: sum_across_towers(value(index), "sum"), lambda: value(index))


def in_loop(index):
    return tf.while_loop(lambda i: i < 1, lambda i: i + sum_across_towers(1, "sum"), [0])


def in_function(index):
    return tf.function(lambda: sum_across_towers(value(index), "sum"), autograph=False)()


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
@pytest.mark.parametrize("inside", [in_cond, in_loop, in_function])
def test_inside_of_control_flow_it_is_an_error(inside, control_flow):
    if control_flow == "v1":
        v1.disable_control_flow_v2()
    try:
        with pytest.raises(TowerError, match=r"sum' cannot be summed across towers inside of a tf\.cond, a tf\.while"):
            build(2, inside)
    finally:
        v1.enable_control_flow_v2()


def test_towers_that_do_not_run_together_refuse_it():
    build(2, lambda i: layers.batch_normalization(tf.ones([2, 3]), name="bn", training=True, sync=True, reuse=i > 0))
    message = r"'tower0/bn/.*' is summed across towers, but the towers of strategy 'async' do not run together\. Leave"
    with pytest.raises(TowerError, match=message):
        check_nothing_is_summed("async")


def test_a_graph_with_sums_is_exported_and_differentiated_where_it_was_built(graph, caplog):
    sums = build(2, lambda index: sum_across_towers(value(index), "sum"))
    exported = v1.train.export_meta_graph()
    assert caplog.records == []
    with tf.Graph().as_default() as other:
        v1.train.import_meta_graph(exported)
        there = other.get_tensor_by_name(sums[0].name)
        np.testing.assert_allclose(run(there), [11, 0.1], rtol=1e-6)
        with pytest.raises(TowerError, match="is a sum across towers that were built in another graph"):
            tf.gradients(there, there.op.inputs[1])


def test_sums_do_not_outlive_their_graph():
    def build_and_forget():
        with tf.Graph().as_default() as graph:
            tensors = [tf.ones([]), tf.ones([])]
            costs = build(2, lambda index: sum_across_towers(tensors[index], "sum"))
            tf.gradients(costs[0], tensors[0])
        return weakref.ref(graph)

    forgotten = build_and_forget()
    gc.collect()
    assert forgotten() is None
