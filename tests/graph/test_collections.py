from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph import backup_collection, freeze_collection, restore_collection
from tpk.graph.scopes import check_can_be_collected

v1 = tf.compat.v1


def test_additions_to_a_frozen_collection_are_discarded():
    with tf.Graph().as_default():
        v1.add_to_collection("frozen", "before")
        with pytest.raises(ValueError, match="mine"), freeze_collection(["frozen", "new"]):
            for key in ("frozen", "new", "free"):
                v1.add_to_collection(key, "inside")
            assert v1.get_collection("frozen") == ["before", "inside"]
            raise ValueError("mine")
        assert v1.get_collection("frozen") == ["before"]
        assert v1.get_collection("new") == []
        assert v1.get_collection("free") == ["inside"]


def contents(*keys):
    return [v1.get_collection(key) for key in keys]


def test_collections_are_restored_to_their_previous_items():
    with tf.Graph().as_default():
        for key in ("one", "two"):
            v1.add_to_collection(key, "before")
        some, everything = backup_collection(["one", "new"]), backup_collection()
        for key in ("one", "two", "new"):
            v1.add_to_collection(key, "since")
        restore_collection(some)
        assert contents("one", "two", "new") == [["before"], ["before", "since"], []]
        restore_collection(everything)
        assert contents("one", "two") == [["before"], ["before"]]
        v1.add_to_collection("one", "later")
        assert some["one"] == everything["one"] == ("before",)


def test_a_string_instead_of_a_list_of_names_is_an_error():
    with pytest.raises(ConfigError, match=r"backup_collection takes a list of names, got 'losses'. Write \['losses'\]"):
        backup_collection("losses")


def collect():
    check_can_be_collected("the cost", "Take it out.")
    return tf.zeros([])


# AutoGraph makes a StagingError of an error that it does not know.
as_it_is = tf.autograph.experimental.do_not_convert

AROUND = {
    "the first branch": ("a tf.cond", lambda: tf.cond(tf.ones([]) > 0, collect, lambda: tf.zeros([]))),
    "the second branch": ("a tf.cond", lambda: tf.cond(tf.ones([]) > 0, lambda: tf.zeros([]), collect)),
    "a switch": ("a tf.cond", lambda: tf.switch_case(tf.ones([], tf.int32), [lambda: tf.zeros([]), collect])),
    "the body of a loop": ("a tf.while_loop", lambda: tf.while_loop(lambda x: x > 0, lambda x: collect(), [1.0])),
    "the condition of a loop": ("a tf.while_loop", lambda: tf.while_loop(lambda x: collect() > 0, lambda x: x, [1.0])),
    "a map": ("a tf.while_loop", lambda: tf.map_fn(as_it_is(lambda x: collect()), tf.ones([2]))),
    "a function": ("the function '.*'", lambda: tf.function(collect, autograph=False)()),
    "a function in a branch": (
        "(a tf.cond|the function '.*')",
        lambda: tf.cond(tf.ones([]) > 0, tf.function(collect, autograph=False), lambda: tf.zeros([])),
    ),
    "a branch in a loop": (
        "a tf.cond",
        lambda: tf.map_fn(as_it_is(lambda x: tf.cond(x > 0, collect, lambda: tf.zeros([]))), tf.ones([2])),
    ),
}


@pytest.mark.parametrize(("around", "build"), AROUND.values(), ids=AROUND)
def test_tensors_inside_control_flow_cannot_be_collected(control_flow, around, build):
    message = f"the cost is created inside {around}, so it cannot be used outside.* Take it out."
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=message):
        build()


def test_tensors_outside_control_flow_can_be_collected(control_flow):
    with tf.Graph().as_default():
        tf.cond(tf.ones([]) > 0, lambda: tf.zeros([]), lambda: tf.ones([]))
        with tf.xla.experimental.jit_scope(), tf.device("/cpu:0"), tf.control_dependencies([collect()]):
            collect()
        with tf.init_scope():
            collect()


def test_a_function_without_an_outer_graph_has_its_own_collections():
    v1.wrap_function(collect, [])
    tf.function(collect, autograph=False)()
    with pytest.raises(ConfigError, match=r"a tf\.cond"):
        v1.wrap_function(lambda: tf.cond(tf.ones([]) > 0, collect, collect), [])
