from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.reports.summary_ops import (
    MOVING_SUMMARY_OPS_KEY,
    add_activation_summary,
    add_moving_summary,
    add_param_summary,
    add_tensor_summary,
    without_summaries,
)
from tpk.tower import PredictTowerContext, TowerFunc, TrainTowerContext

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def started_session():
    sess = v1.Session()
    sess.run(v1.global_variables_initializer())
    return sess


def evaluate_summaries():
    """Return the values of all summaries, by tag."""
    with started_session() as sess:
        summary = v1.Summary.FromString(sess.run(v1.summary.merge_all()))
    return {value.tag: value for value in summary.value}


def tags():
    return list(evaluate_summaries())


def updates():
    return v1.get_collection(MOVING_SUMMARY_OPS_KEY)


def weighted_average(values, decay):
    weights = decay ** np.arange(len(values) - 1, -1, -1.0)
    return np.average(values, weights=weights)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_averages_are_those_of_the_definition_from_the_first_step_on(decay):
    x = v1.placeholder(tf.float32, [], "x")
    add_moving_summary(x, tf.negative(x, name="y"), decay=decay)
    merged = v1.summary.merge_all()
    values = np.random.default_rng(0).normal(size=8)
    with started_session() as sess:
        for step in range(1, 9):
            # The averages that are shown include the step along with which they are evaluated.
            serialized, _ = sess.run([merged, updates()], {x: values[step - 1]})
            shown = {each.tag: each.simple_value for each in v1.Summary.FromString(serialized).value}
            expected = weighted_average(values[:step], decay)
            assert shown == {
                "x/EMA-summary": pytest.approx(expected, rel=1e-4),
                "y/EMA-summary": pytest.approx(-expected, rel=1e-4),
            }


def test_they_equal_tensorflows_own_moving_averages():
    from tensorflow.python.training.moving_averages import assign_moving_average  # the one tensorpack used

    x = v1.placeholder(tf.float32, [], "x")
    (average,) = add_moving_summary(x, decay=0.9)
    theirs = assign_moving_average(v1.get_variable("theirs", [], trainable=False), x, 0.9, zero_debias=True)
    with started_session() as sess:
        for value in (3.0, -1.0, 4.0, 1.0):
            ours, expected = sess.run([average, theirs], {x: value})
            assert ours == pytest.approx(expected, rel=1e-4)


def test_one_call_is_one_variable_and_one_update():
    scalars = [tf.constant(float(i), name=f"scalar{i}") for i in range(3)]
    assert len(add_moving_summary(*scalars)) == 3
    (variable,) = v1.global_variables()
    assert variable.op.name == "EMA/scalar0.scalar1.scalar2/sums_and_weight"
    assert v1.trainable_variables() == []
    (update,) = updates()
    assert isinstance(update, tf.Operation)
    assert len(v1.get_collection(v1.GraphKeys.SUMMARIES)) == 1


def test_dtypes_and_variables_are_taken():
    integer = tf.constant(3, name="integer")
    double = tf.constant(0.5, tf.float64, name="double")
    half = tf.constant(0.25, tf.float16, name="half")
    variable = v1.get_variable("temperature", initializer=2.0)
    averages = add_moving_summary(integer, double, half, variable)
    with started_session() as sess:
        assert sess.run(averages) == pytest.approx([3, 0.5, 0.25, 2])
    assert "temperature/EMA-summary" in tags()


def test_the_averages_are_named_without_the_main_tower():
    with v1.name_scope("tower0"), v1.variable_scope("model"):
        add_moving_summary(tf.constant(1.0, name="cost"))
    assert tags() == ["model/cost/EMA-summary"]
    assert v1.global_variables()[0].op.name == "EMA/model/cost/sums_and_weight"


def test_summarizing_the_same_twice_is_two_summaries():
    cost = tf.constant(1.0, name="cost")
    add_moving_summary(cost)
    add_moving_summary(cost, decay=0.5)
    add_tensor_summary(cost, ["scalar"])
    v1.summary.scalar("cost", cost)
    assert tags() == ["cost/EMA-summary", "cost/EMA-summary_1", "cost-summary", "cost_1"]


def test_a_scope_around_the_call_changes_nothing():
    regularizer_calls = []
    with v1.variable_scope("scope", regularizer=regularizer_calls.append, initializer=v1.ones_initializer()):
        (average,) = add_moving_summary(tf.constant(5.0, name="cost"))
    assert regularizer_calls == []
    with started_session() as sess:
        assert sess.run(average) == 5


def test_collections_can_be_chosen():
    cost = tf.constant(1.0, name="cost")
    add_moving_summary(cost, collection="mine", summary_collections=["shown"])
    add_moving_summary(cost, collection=None)
    assert len(v1.get_collection("mine")) == len(v1.get_collection("shown")) == 1
    assert updates() == []
    assert len(v1.get_collection(v1.GraphKeys.SUMMARIES)) == 1


def test_a_reusing_scope_adds_nothing(graph):
    cost = tf.constant(1.0, name="cost")
    with v1.variable_scope("", reuse=True):
        assert add_moving_summary(cost) == []
    assert v1.global_variables() == updates() == []


def test_nothing_is_added_without_summaries(graph):
    v1.get_variable("w", [2, 2])
    activation = tf.zeros([2, 2], name="activation")
    before = len(graph.get_operations())
    with without_summaries():
        assert add_moving_summary(activation[0, 0]) == []
        add_tensor_summary(activation, ["mean"])
        add_activation_summary(activation)
        add_param_summary((".*", ["rms"]))
    added = [op.type for op in graph.get_operations()[before:]]
    assert set(added) <= {"Const", "StridedSlice"}, "only the slice that the test itself made"
    add_tensor_summary(activation, ["mean"])
    assert tags() == ["activation-mean"]


def test_no_tensors_are_no_summary():
    assert add_moving_summary() == []
    assert updates() == []


@pytest.mark.parametrize("decay", [-0.1, 1, 1.5, float("nan")])
def test_a_decay_out_of_range_is_an_error(decay):
    with pytest.raises(ConfigError, match="decay"):
        add_moving_summary(tf.constant(1.0), decay=decay)


def test_a_tensor_that_is_not_a_scalar_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match=r"'losses:0' has the shape \(3,\)"):
        add_moving_summary(tf.zeros([3], name="losses"))
    with pytest.raises(ConfigError, match="'unknown:0' has the shape <unknown>"):
        add_moving_summary(v1.placeholder(tf.float32, name="unknown"))
    with pytest.raises(ConfigError, match=r"takes tensors of a graph, got 0\.5"):
        add_moving_summary(0.5)
    with pytest.raises(ConfigError, match="type 'scalar' takes scalars, but 'losses_1:0'"):
        add_tensor_summary(tf.zeros([3], name="losses"), ["scalar"])


def test_each_type_of_summary_has_the_right_value():
    x = tf.constant([[0.0, 3.0], [0.0, -4.0]], name="x")
    add_tensor_summary(x, ["histogram", "sparsity", "mean", "rms"])
    add_tensor_summary(tf.constant(2, name="n"), ["scalar", "mean"], name="number")
    shown = evaluate_summaries()
    assert shown["x-sparsity"].simple_value == 0.5
    assert shown["x-mean"].simple_value == -0.25
    assert shown["x-rms"].simple_value == 2.5
    assert shown["x-histogram"].histo.num == 4
    assert shown["number-summary"].simple_value == shown["number-mean"].simple_value == 2


def test_an_unknown_type_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        ConfigError, match="type must be one of 'scalar', 'histogram', 'sparsity', 'mean', 'rms', not 'median'"
    ):
        add_tensor_summary(tf.zeros([2]), ["mean", "median"])


@pytest.mark.parametrize(
    ("summarize", "function"),
    [
        (add_moving_summary, "add_moving_summary"),
        (lambda x: add_tensor_summary(x, ["scalar"]), "add_tensor_summary"),
        (lambda x: add_activation_summary(tf.identity([x], name="activations"), name="x"), "add_tensor_summary"),
    ],
    ids=["moving", "tensor", "activation"],
)
def test_a_summary_inside_a_branch_is_an_error(control_flow, summarize, function):
    def branch():
        x = tf.ones([], name="x")
        summarize(x)
        return x

    flag = v1.placeholder_with_default(True, [])
    message = f"^{function}: the summary of .*x is created inside a tf.cond.*Return the tensor from there"
    with pytest.raises(ConfigError, match=message):
        tf.cond(flag, branch, lambda: tf.zeros([]))
    with without_summaries():
        tf.cond(flag, branch, lambda: tf.zeros([]))
    summarize(tf.cond(flag, lambda: tf.ones([]), lambda: tf.zeros([]), name="y"))
    assert tags()


def test_activations_share_a_scope():
    with v1.name_scope("tower0"):
        for name in ("conv0", "conv1"):
            add_activation_summary(tf.zeros([2, 3], name=name), ["sparsity"])
    add_activation_summary(tf.zeros([2]), name="hidden")
    assert tags() == [
        "activation-summary/conv0-sparsity",
        "activation-summary/conv1-sparsity",
        "activation-summary/hidden-sparsity",
        "activation-summary/hidden-rms",
        "activation-summary/hidden-histogram",
    ]


def test_a_scalar_is_not_an_activation(caplog):
    add_activation_summary(tf.constant(1.0, name="cost"))
    assert "cost:0 is a scalar" in caplog.text
    assert v1.summary.merge_all() is None


def test_parameters_are_found_by_their_whole_names():
    for name in ("conv0/kernel", "conv0/bias", "conv1/kernel", "conv1/kernel_old"):
        v1.get_variable(name, [2, 2])
    v1.get_variable("conv2/kernel", [2], trainable=False)
    add_param_summary((".*/kernel", ["rms", "histogram"]), ("conv0/b.*", ["mean"]))
    assert tags() == [
        "param-summary/conv0/kernel-rms",
        "param-summary/conv0/kernel-histogram",
        "param-summary/conv1/kernel-rms",
        "param-summary/conv1/kernel-histogram",
        "param-summary/conv0/bias-mean",
    ]


def test_a_wrong_expression_for_parameters_is_an_error():
    with pytest.raises(ConfigError, match="add_param_summary: '\\*' is not a regular expression"):
        add_param_summary(("*", ["rms"]))


def test_only_the_main_training_tower_is_summarized():
    def tower(x):
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
        add_moving_summary(tf.multiply(weight, x, name="cost"))

    func = TowerFunc(tower, [tf.TensorSpec([], tf.float32, "x")])
    for context in (
        TrainTowerContext(ns_name="tower0", index=0, total=2),
        TrainTowerContext(ns_name="tower1", index=1, total=2),
        PredictTowerContext(ns_name="validation"),
    ):
        with context:
            func(tf.constant(2.0))
    assert [variable.op.name for variable in v1.global_variables()] == [
        "weight",
        "EMA/cost/sums_and_weight",
    ]
    assert len(updates()) == 1
    assert tags() == ["cost/EMA-summary"]
