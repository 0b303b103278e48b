from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tpk.callbacks.hyper_params.setters import GraphVarParam, ObjAttrParam
from tpk.errors import ConfigError, TrainerStateError


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def start(sess):
    sess.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
    sess.graph.finalize()


@pytest.mark.parametrize("name", ["learning_rate", "learning_rate:0"])
@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("collection", ["variables", "local_variables"])
def test_a_variable_is_set_in_a_finalized_graph(graph, name, use_resource, collection):
    tf.compat.v1.get_variable("learning_rate", initializer=0.5, use_resource=use_resource, collections=[collection])
    param = GraphVarParam(name)
    param.setup_graph()
    with tf.compat.v1.Session() as sess:
        start(sess)
        assert param.get_value() == 0.5
        param.set_value(0.25)
        assert param.get_value() == 0.25
    assert param.readable_name == "learning_rate"


@pytest.mark.parametrize(("initial", "new"), [(3, 4), ([1.0, 2.0], [3.0, 4.0]), (True, False)])
def test_a_variable_of_any_type_and_shape_is_plain_data(graph, initial, new):
    tf.compat.v1.get_variable("v", initializer=tf.constant(initial))
    param = GraphVarParam("v")
    param.setup_graph()
    with tf.compat.v1.Session() as sess:
        start(sess)
        assert param.get_value() == initial
        param.set_value(new)
        assert param.get_value() == new
        assert type(param.get_value()) is type(new)


def test_a_variable_is_set_in_the_session_that_is_the_default(graph):
    tf.compat.v1.get_variable("v", initializer=0.0)
    param = GraphVarParam("v")
    param.setup_graph()
    sessions = [tf.compat.v1.Session(), tf.compat.v1.Session()]
    for value, sess in enumerate(sessions, start=1):
        with sess.as_default():
            sess.run(tf.compat.v1.global_variables_initializer())
            param.set_value(value)
    for value, sess in enumerate(sessions, start=1):
        with sess, sess.as_default():
            assert param.get_value() == value


def test_a_name_that_is_none_of_a_variable_is_an_error_with_the_nearest(graph):
    for name in ("learning_rate", "weights", "tower0/momentum"):
        tf.compat.v1.get_variable(name, initializer=0.5)
    with pytest.raises(ConfigError, match=r"no variable 'learning_rte'. Nearest: 'learning_rate'"):
        GraphVarParam("learning_rte").setup_graph()
    with pytest.raises(ConfigError, match=r"no variable 'momentum'. Nearest: 'tower0/momentum'"):
        GraphVarParam("momentum").setup_graph()


def test_whoever_gave_the_optimizer_a_number_is_told_to_make_a_variable(graph):
    with graph.as_default():
        tf.compat.v1.train.AdamOptimizer(0.01).minimize(tf.compat.v1.get_variable("w", initializer=0.5) ** 2)
    with pytest.raises(ConfigError, match=r"tf\.compat\.v1\.get_variable\('learning_rate', initializer=0\.01"):
        GraphVarParam("learning_rate").setup_graph()


def test_a_tensor_is_no_variable(graph):
    tf.constant(1.0, name="learning_rate")
    with pytest.raises(ConfigError, match=r"no variable 'learning_rate'"):
        GraphVarParam("learning_rate").setup_graph()


def test_a_variable_has_no_value_without_a_session(graph):
    tf.compat.v1.get_variable("v", initializer=0.0)
    param = GraphVarParam("v")
    param.setup_graph()
    with pytest.raises(TrainerStateError, match=r"only while a training runs"):
        param.get_value()
    with pytest.raises(TrainerStateError, match=r"only while a training runs"):
        param.set_value(1.0)


def test_an_attribute_is_set_and_read():
    target = SimpleNamespace(epsilon=1.0)
    param = ObjAttrParam(target, "epsilon")
    param.setup_graph()
    param.set_value(0.5)
    assert target.epsilon == param.get_value() == 0.5
    assert param.readable_name == "epsilon"
    assert ObjAttrParam(target, "epsilon", readable_name="exploration").readable_name == "exploration"
