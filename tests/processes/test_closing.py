"""A process may end while its sessions are still being closed."""

from __future__ import annotations

import atexit
import threading

import tensorflow as tf

from tpk.cluster.sessions import in_background
from tpk.strategies import CollectiveStrategy

SESSIONS = 300


def end_while_closing():
    server = tf.compat.v1.train.Server.create_local_server()
    with tf.Graph().as_default() as graph:
        zero = tf.zeros([])
    sessions = [tf.compat.v1.Session(server.target, graph) for _ in range(SESSIONS)]
    for sess in sessions:
        sess.run(zero)
    is_under_way = threading.Event()

    def close():
        for sess in sessions:
            sess.close()
            is_under_way.set()
        print("all are closed", flush=True)

    in_background(close)
    is_under_way.wait()
    raise ValueError("meanwhile")


def test_the_end_of_a_process_waits_for_sessions_that_are_being_closed(launch):
    (outcome,) = launch(end_while_closing, workers=1, timeout=60).wait()
    assert outcome.status == 1, outcome.stderr[-3000:]
    assert "ValueError: meanwhile" in outcome.stderr
    assert "all are closed" in outcome.stdout


def end_without_leaving():
    CollectiveStrategy().join()
    # What the interpreter does before it ends threads, wherever they are.
    atexit._run_exitfuncs()
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tpk-")]


def test_a_process_that_ends_in_the_middle_stops_its_heartbeat_first(launch):
    assert launch(end_without_leaving, timeout=60).returned() == [[], []]
