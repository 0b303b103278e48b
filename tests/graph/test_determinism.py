from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

from tpk import layers
from tpk.errors import ConfigError
from tpk.graph import random
from tpk.graph.determinism import (
    STATEFUL_RANDOM_OPS,
    check_updates_are_ordered,
    deterministic_ops,
    stateful_random_ops,
    sum_in_order,
    unordered_updates,
    warn_of_stateful_random_ops,
)

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        yield graph


def minimize(cost, optimizer=None):
    return (optimizer or v1.train.MomentumOptimizer(0.1, 0.9)).minimize(cost)


def test_all_that_the_training_runs_is_found_and_nothing_else():
    x = v1.get_variable("x", [4], initializer=v1.random_normal_initializer())
    tf.random.normal([4], name="unused")
    with tf.control_dependencies([tf.random.shuffle([1, 2], name="control")]):
        noisy = tf.nn.dropout(x + tf.random.normal([4], name="noise"), 0.5, name="drop")
    categories = tf.random.categorical([[0.5, 0.5]], 1, seed=3)
    train_op = minimize(tf.reduce_sum(noisy))
    assert stateful_random_ops([train_op, {"more": categories}, x]) == [
        "categorical/Multinomial",
        "control",
        "drop/random_uniform/RandomUniform",
        "noise/RandomStandardNormal",
    ]


def test_random_ops_of_tpk_are_not_stateful():
    hidden = layers.dropout(layers.dense(tf.ones([3, 4]), 5), 0.5, training=True)
    noisy = hidden + random.normal([3, 5]) + random.truncated_normal([3, 5]) + random.uniform([3, 5])
    noisy += tf.cast(random.shuffle([1, 2, 3, 4, 5]), tf.float32)
    flag = v1.placeholder(tf.bool, [])
    train_op = minimize(tf.reduce_sum(layers.dropout(noisy, 0.5, training=flag)))
    assert stateful_random_ops(train_op) == []
    assert unordered_updates(train_op) == []


def test_branches_loops_and_functions_are_searched():
    x = v1.get_variable("x", [2])

    @tf.function(autograph=False)
    def inner():
        return tf.random.uniform([2], name="deep")

    @tf.function(autograph=False)
    def outer():
        return inner() * 2

    with tf.name_scope("of"):
        y = tf.cond(v1.placeholder(tf.bool, []), lambda: tf.random.normal([2], name="a"), lambda: tf.zeros([2]))
        z = tf.while_loop(lambda i, _: i < 3, lambda i, z: (i + 1, z + tf.random.normal([2], name="b")), [0, x])[1]
        z += outer()
    names = stateful_random_ops(minimize(tf.reduce_sum(x * y * z)))
    found = [(name.split("/")[:2], name.split("/")[-2:]) for name in names]
    assert (["of", "cond"], ["a", "RandomStandardNormal"]) in found
    assert (["of", "while"], ["b", "RandomStandardNormal"]) in found
    assert len(found) == 3 and found[0][1] == ["deep", "RandomUniform"]


def test_data_is_the_business_of_its_source():
    dataset = tf.data.Dataset.range(5).map(lambda _: tf.random.normal([], seed=2)).shuffle(5)
    batch = v1.data.make_one_shot_iterator(dataset).get_next()
    assert stateful_random_ops(batch) == []


def test_every_stateful_op_with_a_seed_is_known():
    from tensorflow.python.framework import op_def_registry

    definitions = [op_def_registry.get(name) for name in dir(tf.raw_ops)]
    seeded = {
        definition.name
        for definition in definitions
        if definition and definition.is_stateful and any("seed" in attr.name for attr in definition.attr)
    }
    rnns = {name for name in seeded if name.startswith("CudnnRNN")}
    assert seeded - rnns - {"AllCandidateSampler"} == STATEFUL_RANDOM_OPS - {"FractionalMaxPool", "FractionalAvgPool"}


def test_one_warning_names_them(caplog):
    with caplog.at_level(logging.WARNING, "tpk"):
        warn_of_stateful_random_ops([random.normal([2])])
        assert not caplog.records
        warn_of_stateful_random_ops([tf.add_n([tf.random.normal([2], name=f"noise{index}") for index in range(7)])])
    (record,) = caplog.records
    names = ", ".join(f"noise{index}/RandomStandardNormal" for index in range(5))
    assert record.getMessage().startswith("7 stateful random ops")
    assert f"not in checkpoints: {names} and 2 more. A resumed training" in record.getMessage()


@pytest.mark.parametrize("optimizer", [v1.train.AdamOptimizer(), v1.train.RMSPropOptimizer(0.1, momentum=0.5)])
def test_a_usual_training_is_ordered(optimizer):
    hidden = tf.nn.embedding_lookup(v1.get_variable("table", [5, 4]), [1, 1, 3])
    hidden = layers.batch_normalization(layers.dense(hidden, 4), training=True)
    train_op = minimize(tf.reduce_sum(hidden**2), optimizer)
    assert unordered_updates([train_op, v1.get_collection(v1.GraphKeys.UPDATE_OPS)]) == []


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "ref"])
def test_unordered_updates_are_found(use_resource):
    with v1.variable_scope("", use_resource=use_resource):
        ordered, racing, read = (v1.get_variable(name, [2]) for name in ("ordered", "racing", "read"))
        for _ in range(2):
            x = layers.batch_normalization(tf.ones([3, 2]), training=True, name="twice", reuse=v1.AUTO_REUSE)
    first = ordered.assign_add([1.0, 1.0])
    with tf.control_dependencies([first]):
        second = v1.scatter_add(ordered, [1], [3.0])
    assert unordered_updates([first, second, x]) == []
    races = [racing.assign_add([0.1, 0.2]), v1.scatter_add(racing, [1], [3.0])]
    assert unordered_updates([first, second, races]) == ["racing"]
    assert unordered_updates(races[:1]) == []
    if use_resource:  # A reference is read by whatever takes it, and so cannot be told from an update.
        assert unordered_updates([read.read_value(), read.assign([0.0, 0.0])]) == ["read"]
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        assert unordered_updates(updates) == ["twice/moving_mean", "twice/moving_variance"]


def test_loops_of_tensorflow_1_are_no_endless_ones():
    x = v1.get_variable("x", [2], initializer=v1.zeros_initializer())
    v1.disable_control_flow_v2()
    try:
        total = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * x * tf.random.normal([2])), [0, x])[1]
        train_op = minimize(tf.reduce_sum(total))
    finally:
        v1.enable_control_flow_v2()
    assert stateful_random_ops(train_op) == ["while/random_normal/RandomStandardNormal"]
    assert unordered_updates(train_op) == []


def test_unordered_updates_are_an_error_in_deterministic_trainings():
    racing = v1.get_variable("racing", [2])
    check_updates_are_ordered([racing.assign_add([1.0, 1.0])])
    with pytest.raises(ConfigError, match="deterministic training was requested, but racing: updated while"):
        check_updates_are_ordered([racing.assign_add([0.1, 0.2]), racing.assign_add([1.0, 1.0])])


def test_ops_are_deterministic_or_errors_and_only_within():
    def unseeded():
        with v1.Session() as sess:
            return sess.run(tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32))

    unseeded()
    with deterministic_ops():
        with pytest.raises(tf.errors.InvalidArgumentError, match="random ops must have a seed"):
            unseeded()
        with deterministic_ops():
            pass
        with pytest.raises(tf.errors.InvalidArgumentError, match="random ops must have a seed"):
            unseeded()
    unseeded()


def test_the_flag_is_set_back_after_an_error():
    with pytest.raises(KeyError), deterministic_ops():
        raise KeyError
    with tf.Graph().as_default():
        tf.random.normal([2])


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
