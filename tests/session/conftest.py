from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tpk.session import plan
from tpk.session.plan import compile_run

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("hooked_sessions")
v1 = tf.compat.v1


@pytest.fixture
def graph():
    """`a` and `b` are fed; `total` is their sum; `bump` counts in `counter`."""
    with tf.Graph().as_default() as graph:
        v1.placeholder(tf.float32, [None, 2], name="a")
        v1.placeholder_with_default(np.ones((1, 2), np.float32), [None, 2], name="b")
        tf.add(graph.get_tensor_by_name("a:0"), graph.get_tensor_by_name("b:0"), name="total")
        tf.identity(graph.get_tensor_by_name("b:0"), name="same_b")
        v1.placeholder(tf.int32, [], name="whole")
        v1.placeholder(tf.string, [None], name="words")
        v1.placeholder(tf.bool, name="anything")
        tf.identity(graph.get_tensor_by_name("whole:0") * 2, name="twice")
        tf.identity(graph.get_tensor_by_name("words:0"), name="same_words")
        tf.identity(graph.get_tensor_by_name("anything:0"), name="same_thing")
        v1.sparse_placeholder(tf.float32, name="sparse")
        tf.constant(7.0, name="seven")
        tf.constant([b"x", b"y"], name="letters")
        tf.constant([[1.0], [2.0]], name="pair")
        tf.constant([4, 2], name="rows")
        counter = v1.get_variable("counter", initializer=0)
        counter.assign_add(1, name="bump", read_value=False)
        yield graph


@pytest.fixture
def sess(graph):
    with v1.Session(graph=graph) as sess:
        sess.run(v1.global_variables_initializer())
        yield sess


@pytest.fixture
def compiled(monkeypatch):
    """The options of each run that a hooked session compiles."""
    options = []
    monkeypatch.setattr(plan, "compile_run", lambda sess, run: options.append(run) or compile_run(sess, run))
    return options
