from __future__ import annotations

import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def all_names():
    return [variable.op.name for variable in [*v1.global_variables(), *v1.local_variables()]]


@tpk.auto_reuse_variable_scope
def embed(x, units=3):
    """Its docstring stays."""
    return tpk.layers.dense(x, units, name="embed")


def test_a_second_call_in_a_scope_shares_variables():
    x = tf.ones([2, 4])
    for scope in ("left", "left", "right"):
        with v1.variable_scope(scope):
            embed(x)
    assert all_names() == ["left/embed/kernel", "left/embed/bias", "right/embed/kernel", "right/embed/bias"]
    assert embed.__name__ == "embed"
    assert embed.__doc__ == "Its docstring stays."


def test_each_graph_has_a_first_call_of_its_own():
    embed(tf.ones([2, 4]))
    with tf.Graph().as_default():
        embed(tf.ones([2, 4]))
        assert all_names() == ["embed/kernel", "embed/bias"]


def test_a_further_call_creates_nothing():
    embed(tf.ones([2, 4]))
    with pytest.raises(ValueError, match="does not exist"):
        v1.get_variable_scope().reuse_variables()
        tpk.layers.dense(tf.ones([2, 4]), 1, name="other")
    with pytest.raises(ValueError, match="shape"):
        embed(tf.ones([2, 4]), units=5)


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_towers_share_or_have_their_own_as_ever(strategy):
    def cost(x):
        return tf.reduce_mean(embed(x) - embed(2 * x))

    trainer = tpk.SingleCostTrainer(tpk.use(strategy, devices=2))
    source = tpk.TensorInput(lambda: [tf.ones([2, 4])])
    optimizer = lambda: v1.train.GradientDescentOptimizer(0.1)  # noqa: E731
    trainer.setup_graph([tf.TensorSpec([2, 4], tf.float32, "x")], source, cost, optimizer)
    with trainer.graph.as_default():
        own = ["embed/kernel", "embed/bias"]
        trained = [variable.op.name for variable in v1.trainable_variables()]
        assert trained[:2] == own
        replicates = ["tower1/embed/kernel", "tower1/embed/bias"]
        assert set(all_names()) - {"global_step"} == {*own, *(replicates if strategy == "replicated" else [])}


def test_a_call_is_in_a_name_scope():
    @tpk.under_name_scope()
    def loss(x):
        v1.get_variable("v", [], use_resource=True)
        return tf.identity(x, name="value")

    @tpk.under_name_scope("named")
    def other(x):
        return tf.identity(x, name="value")

    assert [loss(tf.ones([])).op.name, other(tf.ones([])).op.name] == ["loss/value", "named/value"]
    assert all_names() == ["v"]
    with v1.variable_scope("", reuse=True):
        assert loss(tf.ones([])).op.name == "loss_1/value"


def test_a_call_is_in_a_variable_scope():
    @tpk.under_variable_scope()
    def generator(x):
        return tpk.layers.dense(x, 1)

    @tpk.under_variable_scope("net")
    def other(x):
        return tpk.layers.dense(x, 1)

    generator(tf.ones([1, 2]))
    assert other(tf.ones([1, 2])).op.name == "net/dense/BiasAdd"
    assert all_names()[::2] == ["generator/dense/kernel", "net/dense/kernel"]
    with pytest.raises(ValueError, match="already exists"):
        generator(tf.ones([1, 2]))


def test_a_cached_scope_is_the_same_each_time():
    names = []
    for around in ("a", "b"):
        with tf.name_scope(around):
            for top_level in (True, False, True):
                with tpk.cached_name_scope("norms", top_level):
                    names.append(tf.ones([], name="norm").op.name)
    assert names == ["norms/norm", "a/norms/norm", "norms/norm_1", "norms/norm_2", "b/norms/norm", "norms/norm_3"]
    with tpk.cached_name_scope("norms", top_level=False):
        assert tf.ones([], name="norm").op.name == "norms/norm_4"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpk.under_name_scope(lambda x: x), r"write @under_name_scope\(\), with parentheses"),
        (lambda: tpk.under_variable_scope(lambda x: x), r"write @under_variable_scope\(\), with parentheses"),
        (lambda: tpk.under_name_scope("no name"), r"under_name_scope\('no name'\): expected a name of a TensorFlow"),
        (lambda: tpk.under_variable_scope(3), r"under_variable_scope\(3\): expected a name"),
        (lambda: tpk.cached_name_scope(""), r"cached_name_scope\('\(empty\)'\): expected a name"),
    ],
)
def test_what_is_no_name_is_an_error(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
