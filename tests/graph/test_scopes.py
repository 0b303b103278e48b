"""Scopes, collections and getters: what surrounds a piece of graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk.graph.tower_options import in_precision
from tpk.graph.variables import by_name

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


def test_each_graph_has_its_own_first_call():
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
    ],
)
def test_a_decorator_without_parentheses_is_an_error(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def names(key):
    return [variable.op.name for variable in v1.get_collection(key)]


def network(x):
    return tpk.layers.dense(tpk.layers.dense(x, 3, name="hidden"), 1, name="out")


def test_a_getter_replaces_the_variables_of_a_layer_but_not_their_names(graph):
    asked = []

    def without_biases(getter, name, *args, **kwargs):
        asked.append(name)
        variable = getter(name, *args, **kwargs)
        return tf.zeros_like(variable) if name.endswith("/bias") else variable

    x = tf.ones([2, 4])
    with v1.variable_scope("net"), tpk.custom_getter_scope(without_biases):
        y = tpk.layers.dense(x, 3, bias_initializer=tf.compat.v1.ones_initializer())
    assert asked == names("trainable_variables") == ["net/dense/kernel", "net/dense/bias"]
    assert y.op.name == "net/dense/BiasAdd"
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        value, kernel = sess.run([y, v1.trainable_variables()[0]])
    np.testing.assert_allclose(value, np.ones([2, 4]) @ kernel, rtol=1e-6, atol=1e-6)


def test_of_several_getters_the_innermost_is_asked_first():
    order = []

    def recording(label):
        def get(getter, *args, **options):
            order.append(label)
            return getter(*args, **options)

        return get

    with tpk.custom_getter_scope(recording("outer")), tpk.custom_getter_scope(recording("inner")):
        v1.get_variable("v", [])
    assert order == ["inner", "outer"]


def test_variables_are_remapped():
    with tpk.remap_variables(lambda variable: variable * 10.0):
        v = v1.get_variable("v", initializer=2.0)
    plain = v1.get_variable("w", initializer=2.0)
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        assert sess.run([v, plain]) == [20.0, 2.0]


def gradients(cost):
    return [grad is not None for grad in tf.gradients(cost, v1.get_collection("variables"))]


def test_frozen_variables_get_no_gradient_through_the_graph_that_got_them():
    x = tf.ones([2, 4])
    with tpk.freeze_variables():
        hidden = tpk.layers.dense(x, 3, name="hidden")
    cost = tf.reduce_sum(tpk.layers.dense(hidden, 1, name="out"))
    assert names("trainable_variables") == names("variables")
    assert gradients(cost) == [False, False, True, True]
    with v1.variable_scope("", reuse=True):
        assert gradients(tf.reduce_sum(tpk.layers.dense(x, 3, name="hidden"))) == [True, True, False, False]


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_frozen_variables_may_be_left_out_of_the_trainable_variables(stop_gradient):
    x = tf.ones([2, 4])
    for reuse in (None, True):
        with v1.variable_scope("", reuse=reuse), tpk.freeze_variables(stop_gradient, skip_collection=True):
            hidden = tpk.layers.batch_normalization(tpk.layers.dense(x, 3, name="hidden"), training=True, name="bn")
    cost = tf.reduce_sum(tpk.layers.dense(hidden, 1, name="out"))
    frozen = ["hidden/kernel", "hidden/bias", "bn/gamma", "bn/beta"]
    assert names("trainable_variables") == ["out/kernel", "out/bias"]
    assert names("model_variables") == frozen
    assert names("variables")[:4] == frozen
    assert any(gradients(cost)[:4]) is not stop_gradient
    with v1.Session() as sess:  # what layers assign to is left alone
        sess.run(v1.global_variables_initializer())
        sess.run(v1.get_collection("update_ops"))


def test_a_non_trainable_variable_is_not_changed_by_freezing():
    with tpk.freeze_variables(skip_collection=True):
        v = v1.get_variable("v", initializer=1.0, trainable=False)
    assert v.assign(2.0) is not None
    assert names("model_variables") == []


def test_freezing_in_a_16_bit_tower_freezes_the_variable():
    def tower(x):
        with tpk.freeze_variables(skip_collection=True):
            return tf.reduce_sum(network(x))

    in_precision(tower, "bfloat16")(tf.ones([2, 4]))
    assert names("model_variables") == names("variables") == ["hidden/kernel", "hidden/bias", "out/kernel", "out/bias"]
    assert names("trainable_variables") == []


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
def test_a_training_leaves_frozen_layers_as_they_were(strategy):
    class Model(tpk.ModelDesc):
        def inputs(self):
            return [tf.TensorSpec([4, 2], tf.float32, "x")]

        def build_graph(self, x):
            with tpk.freeze_variables(skip_collection=True):
                x = tpk.layers.dense(x, 3, name="backbone")
            return tf.reduce_mean(tf.square(tpk.layers.dense(x, 1, name="head") - 1.0), name="cost")

        def optimizer(self):
            return v1.train.MomentumOptimizer(0.1, 0.9)

    values = []

    def look(self):
        variables = by_name(v1.global_variables())
        values.append(self.trainer.sess.run([variables[f"{each}/kernel"] for each in ("backbone", "head")]))

    devices = {} if strategy == "single" else {"devices": 2}
    trainer, model = tpk.SingleCostTrainer(tpk.use(strategy, **devices)), Model()
    source = tpk.TensorInput(lambda: [tf.ones([4, 2])])
    trainer.setup_graph(model.inputs(), source, model.build_graph, model.optimizer)
    looks = tpk.CallbackFactory(before_train=look, after_train=look)
    trainer.train(callbacks=[looks], monitors=[], steps_per_epoch=3, max_epoch=1)
    (backbone, head), (backbone_after, head_after) = values
    np.testing.assert_array_equal(backbone, backbone_after)
    assert not np.array_equal(head, head_after)
