from __future__ import annotations

import logging

import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.graph.gradients import compute_gradients
from tpk.graph.reports.overview import log_model_overview, model_overview

v1 = tf.compat.v1

SIGNATURE = [tf.TensorSpec([None, 4], tf.float32, "x")]


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def network(x):
    x = layers.dense(x, 8, name="hidden")
    x = layers.batch_normalization(x, name="norm")
    x = layers.dropout(x, 0.5, training=True)
    return tf.reduce_mean(layers.dense(x, 1, name="out"), name="cost")


def adam():
    return tpk.MovingAverageOptimizer(v1.train.AdamOptimizer(v1.get_variable("rate", [], trainable=False)))


def set_up(strategy, build=network, optimizer=adam):
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2, 4])]), build, optimizer)
    return trainer


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server", "async"])
def test_variables_of_the_model_and_of_training_are_separated_with_every_strategy(strategy):
    trainer = set_up(strategy if strategy == "single" else tpk.use(strategy, devices=["/cpu:0", "/cpu:1"]))
    overview = model_overview(trainer.graph)
    assert {each.name: each.shape for each in overview.trainable} == {
        "hidden/kernel": (4, 8),
        "hidden/bias": (8,),
        "norm/gamma": (8,),
        "norm/beta": (8,),
        "out/kernel": (8, 1),
        "out/bias": (1,),
    }
    assert [each.name for each in overview.non_trainable] == ["norm/moving_mean", "norm/moving_variance"]
    others = {each.name for each in overview.others}
    assert {"rate", "beta1_power", "hidden/kernel/Adam", "hidden/kernel/ExponentialMovingAverage"} <= others
    assert "global_step" in others, "dropout reads it, but it is not part of the model"
    assert not any("tower" in name for name in others)


def test_variables_that_costs_read_belong_to_the_model():
    def build(x):
        frozen = v1.get_variable("frozen", [4, 3], trainable=False)
        v1.get_variable("on_the_side", [5], trainable=False)
        w = v1.get_variable("w", [3, 1], use_resource=False)
        return tf.reduce_mean(x @ frozen @ w)

    overview = model_overview(set_up("single", build, lambda: v1.train.GradientDescentOptimizer(0.1)).graph)
    assert [(each.name, each.trainable) for each in overview.variables] == [("frozen", False), ("w", True)]
    assert [each.name for each in overview.others if each.name != "global_step"] == ["on_the_side"]


def test_without_costs_the_collections_tell(graph):
    v1.get_variable("w", [2])
    v1.get_variable("statistic", [2], trainable=False, collections=["variables", "model_variables"])
    counter = v1.get_variable("counter", [], tf.int64, trainable=False)
    v1.add_to_collection("update_ops", v1.assign_add(counter, 1))
    v1.get_variable("other", [2], trainable=False)
    v1.get_variable("local", [2], collections=["local_variables"], trainable=False)
    overview = model_overview(graph)
    assert [each.name for each in overview.variables] == ["w", "statistic", "counter"]
    assert [each.name for each in overview.others] == ["other"]


def test_the_table_has_a_row_for_each_variable_and_the_totals(graph):
    with tf.device("/cpu:0"):
        v1.get_variable("conv/kernel", [3, 3, 64, 128])
    v1.get_variable("scale", [], tf.float16)
    v1.get_variable("statistic", [1000], tf.float64, trainable=False, collections=["variables", "model_variables"])
    w = v1.get_variable("w/Momentum", [3, 3, 64, 128], trainable=False)
    v1.get_variable("rate", [], trainable=False)
    assert w.shape.num_elements() == 73728
    assert str(model_overview(graph)).splitlines() == [
        "name         shape            elements       size  device  trainable",
        "conv/kernel  (3, 3, 64, 128)    73,728  288.0 KiB  CPU:0   yes",
        "scale        ()                      1        2 B  -       yes",
        "statistic    (1000,)             1,000    7.8 KiB  -       no",
        "trainable: 2 variables, 73,729 elements, 288.0 KiB",
        "not trainable: 1 variable, 1,000 elements, 7.8 KiB",
        "optimizer and other state: 2 variables, 73,729 elements, 288.0 KiB",
    ]


def test_a_variable_of_unknown_shape_is_not_added_up(graph):
    for name, initial in (("unknown", None), ("partly", [None, 3])):
        v1.Variable(tf.zeros([2, 3]), shape=tf.TensorShape(initial), validate_shape=False, name=name)
    lines = str(model_overview(graph)).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["unknown", "<unknown>", "-", "-", "-", "yes"],
        ["partly", "(None,", "3)", "-", "-", "-", "yes"],
    ]
    assert lines[3] == "trainable: 2 variables, 0 elements, 0 B, and 2 of unknown shape"


def test_many_and_long_names_make_a_table_of_120_columns_with_a_row_each(graph):
    scope = "a_network/with_a_long_name/and_many/blocks_within_blocks/that_have"
    with tf.device("/job:worker/replica:0/task:11/device:GPU:3"):
        for number in range(300):
            v1.get_variable(f"{scope}/layer_{number}/kernel", [1, 7, 7, 1024, 2048, 3], use_resource=True)
    lines = str(model_overview(graph)).splitlines()
    assert len(lines) == 1 + 300 + 3
    assert max(map(len, lines)) <= 120
    assert len({line.rfind("yes") for line in lines[1:301]}) == 1, "the columns are aligned"
    assert all(f"layer_{number}/kernel" in line for number, line in enumerate(lines[1:301]))


def test_the_log_has_the_table(graph, caplog):
    v1.get_variable("w", [2])
    with caplog.at_level(logging.INFO):
        log_model_overview(graph)
    (message,) = caplog.messages
    assert message.startswith("the variables of the model:\nname  shape")
    assert message.endswith("optimizer and other state: none")


# What nothing trains.


def costs(graph, *, of_game):
    """Two costs, which both reach both variables, but only read the shape of a third one."""
    first, second = (v1.get_variable(f"{name}/w", [], use_resource=True) for name in ("first", "second"))
    lost = v1.get_variable("lost/w", [3], use_resource=True)
    size = tf.cast(tf.size(lost), tf.float32)
    named = [tf.identity(first * second * size, name="f"), tf.identity(second + (first if of_game else 0), name="g")]
    for cost, variables in zip(named, ([first, lost], [second, lost]), strict=True):
        compute_gradients(v1.train.GradientDescentOptimizer(0.1), cost, variables if of_game else [first, second, lost])


def warnings_of(graph, caplog):
    caplog.clear()
    log_model_overview(graph)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("of_game", [True, False], ids=["each trains a part", "each trains all that it reaches"])
def test_only_variables_that_no_cost_reaches_are_named_once(graph, caplog, of_game):
    costs(graph, of_game=of_game)
    assert warnings_of(graph, caplog) == ["no gradient of f:0, nor of g:0, so not trained: lost/w"]


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server", "async"])
def test_all_towers_together_make_one_warning(strategy, caplog):
    def build(x):
        v1.get_variable("unused", [])
        v1.get_variable("fixed", [], trainable=False)
        return network(x)

    trainer = set_up(strategy if strategy == "single" else tpk.use(strategy, devices=["/cpu:0", "/cpu:1"]), build)
    assert warnings_of(trainer.graph, caplog) == ["no gradient of cost:0, so not trained: unused"]


def test_objectives_that_train_different_parts_cause_no_warning(caplog):
    def build(x):
        faked = layers.dense(x, 4, name="generator/layer")
        score = tf.reduce_mean(layers.dense(faked, 1, name="discriminator/layer"))
        return {"generator": tf.identity(score, "generator_cost"), "discriminator": -score}

    objectives = [
        tpk.Objective(lambda: v1.train.GradientDescentOptimizer(0.1), name=name, variables=f"{name}/")
        for name in ("discriminator", "generator")
    ]
    trainer = tpk.MultiObjectiveTrainer()
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2, 4])]), build, objectives)
    assert not caplog.messages
    assert not warnings_of(trainer.graph, caplog)


def test_a_variable_whose_copies_in_the_towers_have_gradients_is_trained(graph, caplog):
    for name in ("w", "unused"):
        v1.get_variable(name, [])
    for tower in ("tower0", "tower1"):
        with v1.variable_scope(tower):
            local = {"collections": ["local_variables"], "trainable": False}
            own = [v1.get_variable(name, [], **local) for name in ("w", "unused")]
            compute_gradients(v1.train.GradientDescentOptimizer(0.1), tf.square(own[0], name="cost"), own)
    assert warnings_of(graph, caplog) == ["no gradient of cost:0, so not trained: unused"]


def test_without_recorded_gradients_there_is_no_warning(graph, caplog):
    w = v1.get_variable("w", [])
    v1.get_variable("unused", [])
    v1.train.GradientDescentOptimizer(0.1).minimize(w * w)
    assert not warnings_of(graph, caplog)
