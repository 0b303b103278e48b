from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.monitors import Monitor, Monitors

SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunValues = tf.compat.v1.train.SessionRunValues


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
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(monitors, sess):
    """Do what the hooked session does with one plugin."""
    request = monitors.before_run(None)
    results = None
    if request is not None and request.fetches is not None:
        results = sess.run(request.fetches, request.feed_dict)
    monitors.after_run(None, SessionRunValues(results, None, None))


def test_each_monitor_gets_what_it_asked_for(graph):
    x = tf.compat.v1.placeholder(tf.float32, [], "x")
    plain, structure, feeding = (
        Fetching(tf.constant(1.0)),
        Fetching({"two": tf.constant(2.0)}),
        Fetching(SessionRunArgs(x + 1, {x: 5.0})),
    )
    silent, watching = Fetching(None), Watching()
    monitors = Monitors([plain, silent, structure, watching, feeding])
    with tf.compat.v1.Session() as sess:
        run(monitors, sess)
    assert plain.results == [1.0]
    assert structure.results == [{"two": 2.0}]
    assert feeding.results == [6.0]
    assert silent.results == [None]
    assert watching.values.results is None


def test_the_same_requests_are_the_same_object(graph):
    fetching = Fetching(tf.constant(1.0))
    monitors = Monitors([fetching, Fetching(tf.constant(2.0))])
    first = monitors.before_run(None)
    assert monitors.before_run(None) is first
    fetching.request = tf.constant(3.0)
    assert monitors.before_run(None) is not first


def test_nothing_is_asked_for_if_nobody_asks(graph):
    assert Monitors([Fetching(None), Fetching(None)]).before_run(None) is None


def test_feeds_are_read_anew_each_time(graph):
    x = tf.compat.v1.placeholder(tf.float32, [], "x")
    feeds = {x: 1.0}
    monitors = Monitors([Fetching(SessionRunArgs(x, feeds))])
    assert monitors.before_run(None).feed_dict == {x: 1.0}
    feeds[x] = 2.0
    assert monitors.before_run(None).feed_dict == {x: 2.0}


def test_run_options_are_merged(graph):
    trace = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    timeout = tf.compat.v1.RunOptions(timeout_in_ms=500)
    monitors = Monitors([Fetching(SessionRunArgs(None, None, each)) for each in (trace, timeout)])
    options = monitors.before_run(None).options
    assert (options.trace_level, options.timeout_in_ms) == (tf.compat.v1.RunOptions.FULL_TRACE, 500)


def test_a_monitor_that_feeds_what_another_feeds_is_left_out(graph, caplog):
    x = tf.compat.v1.placeholder(tf.float32, [], "x")
    first, second = Fetching(SessionRunArgs(x, {x: 1.0})), Fetching(SessionRunArgs(x, {x: 2.0}))
    with tf.compat.v1.Session() as sess:
        run(Monitors([first, second]), sess)
    assert (first.results, second.results) == ([1.0], [None])
    assert "monitor Fetching#2 failed in before_run" in caplog.text


def test_a_monitor_that_fails_asks_for_nothing(graph, caplog):
    class Broken(Monitor):
        def before_run(self, run_context):
            raise OSError("gone")

    fetching = Fetching(tf.constant(1.0))
    with tf.compat.v1.Session() as sess:
        run(Monitors([Broken(), fetching]), sess)
    assert fetching.results == [1.0]
    assert "monitor Broken failed in before_run" in caplog.text
