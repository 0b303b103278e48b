from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import SessionError
from tpk.monitors import Monitor
from tpk.plugin import HookManager, Progress
from tpk.session import HookedSession

SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class Fetching(Monitor):
    """Asks for something along with each step, and keeps what it got."""

    def __init__(self, request):
        self.request = request
        self.results = []

    def before_run(self, run_context):
        return self.request

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)


class Watching(Monitor):
    def after_run(self, run_values):
        self.values = run_values


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        yield sess


def step(sess, *monitors, fetches=()):
    """Run a step along with monitors, as a trainer does."""
    hooks = HookManager()
    hooks.register_all(monitors)
    return HookedSession(sess, hooks.compile_step(), Progress()).run(fetches)


def test_each_monitor_gets_its_fetches(sess):
    x = tf.compat.v1.placeholder(tf.float32, [], "x")
    plain, structure, feeding = (
        Fetching(tf.constant(1.0)),
        Fetching({"two": tf.constant(2.0)}),
        Fetching(SessionRunArgs(x + 1, {x: 5.0})),
    )
    silent, watching = Fetching(None), Watching()
    step(sess, plain, silent, structure, watching, feeding)
    assert plain.results == [1.0]
    assert structure.results == [{"two": 2.0}]
    assert feeding.results == [6.0]
    assert silent.results == [None]
    assert watching.values.results is None


def test_a_tensor_fed_by_two_monitors_is_an_error_that_names_the_second(sess):
    x = tf.compat.v1.placeholder(tf.float32, [], "x")
    with pytest.raises(SessionError, match="Fetching#2"):
        step(sess, Fetching(SessionRunArgs(x, {x: 1.0})), Fetching(SessionRunArgs(x, {x: 2.0})))


def test_a_failing_monitor_fetches_nothing(sess, caplog):
    class Broken(Monitor):
        def before_run(self, run_context):
            raise OSError("gone")

    fetching = Fetching(tf.constant(1.0))
    assert step(sess, Broken(), fetching, fetches=tf.constant(3.0)) == 3.0
    assert fetching.results == [1.0]
    assert "monitor Broken failed in before_run" in caplog.text
