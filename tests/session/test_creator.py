from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import SessionError
from tpk.session import NewSessionCreator, ReuseSessionCreator, default_session_config

v1 = tf.compat.v1


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        v1.get_variable("global", initializer=1.0)
        v1.get_variable("local", initializer=2.0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
        keys = tf.lookup.KeyValueTensorInitializer(["a"], [3])
        table = v1.lookup.StaticHashTable(keys, -1)
        table.lookup(tf.constant("a"), name="looked_up")
        yield graph


def test_a_new_session_has_variables_and_tables_initialized(graph):
    config = default_session_config()
    config.intra_op_parallelism_threads = 1
    with NewSessionCreator(config=config).create_session(graph) as sess:
        values = sess.run([*v1.global_variables(), *v1.local_variables()])
        assert values == [1.0, 2.0]
        (looked_up,) = [op for op in graph.get_operations() if "LookupTableFind" in op.type]
        assert sess.run(looked_up.outputs[0]) == 3


def test_a_reused_session_keeps_its_values_and_initializes_the_rest(graph):
    with v1.Session(graph=graph) as sess:
        (variable,) = v1.global_variables()
        sess.run(variable.initializer, {variable.initializer.inputs[1]: 10.0})
        creator = ReuseSessionCreator(sess)
        assert creator.create_session(graph) is sess
        assert sess.run([*v1.global_variables(), *v1.local_variables()]) == [10.0, 2.0]
        assert not creator.owns_session


def test_a_session_of_another_graph_is_refused(graph):
    with v1.Session(graph=tf.Graph()) as sess, pytest.raises(SessionError, match="another graph"):
        ReuseSessionCreator(sess).create_session(graph)


def test_a_closed_session_is_refused(graph):
    sess = v1.Session(graph=graph)
    sess.close()
    with pytest.raises(SessionError, match="closed"):
        ReuseSessionCreator(sess).create_session(graph)
