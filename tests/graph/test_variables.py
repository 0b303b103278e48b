from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.graph.variables import make_local, record_variables, saveable_variables

v1 = tf.compat.v1
KEYS = v1.GraphKeys


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def names(variables):
    return [variable.op.name for variable in variables]


def test_variables_are_recorded_in_order_however_they_are_created():
    v1.get_variable("before", [])
    with record_variables() as created:
        a = v1.get_variable("a", [2])
        v1.get_variable("reference", [], use_resource=False)
        tf.Variable(1.0, name="plain")
        v1.get_variable("local", [], collections=[KEYS.LOCAL_VARIABLES], trainable=False)
        v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(a), var_list=[a])
    v1.get_variable("after", [])
    assert names(created)[:4] == ["a", "reference", "plain", "local"]
    assert sorted(names(created)[4:]) == ["a/Adam", "a/Adam_1", "beta1_power", "beta2_power"]


def test_a_variable_that_is_reused_is_not_recorded():
    v1.get_variable("a", [])
    with record_variables() as created, v1.variable_scope(v1.get_variable_scope(), reuse=True):
        v1.get_variable("a", [])
    assert created == []


def test_the_parts_of_a_partitioned_variable_are_recorded():
    with record_variables() as created:
        v1.get_variable("a", [4], partitioner=v1.fixed_size_partitioner(2))
    assert names(created) == ["a/part_0", "a/part_1"]


def test_local_variables_are_initialized_but_neither_trained_nor_saved():
    kept, moved = v1.get_variable("kept", []), v1.get_variable("moved", [], initializer=v1.ones_initializer())
    v1.add_to_collection(KEYS.MODEL_VARIABLES, moved)
    make_local([moved])
    assert v1.global_variables() == v1.trainable_variables() == [kept]
    assert v1.get_collection(KEYS.MODEL_VARIABLES) == []
    assert v1.local_variables() == [moved]
    with v1.Session() as sess:
        sess.run(v1.local_variables_initializer())
        assert sess.run(moved) == 1


def test_a_local_variable_is_listed_once():
    variable = v1.get_variable("v", [], collections=[KEYS.LOCAL_VARIABLES, KEYS.GLOBAL_VARIABLES])
    make_local([variable])
    make_local([variable])
    assert v1.local_variables() == [variable]
    assert v1.global_variables() == []


def test_a_variable_of_a_distribution_strategy_is_saved_by_its_copies():
    with tf.Graph().as_default() as graph, tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        tf.compat.v1.get_variable("w", [2])
        tf.compat.v1.train.create_global_step()
        found = saveable_variables(graph)
    assert [each.op.name for each in found] == ["w", "global_step"]
    assert all(len(each.initializer.inputs) == 2 for each in found)
