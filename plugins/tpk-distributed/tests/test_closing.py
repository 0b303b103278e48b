"""A process may end while its sessions are still being closed."""

from __future__ import annotations

import threading

import tensorflow as tf
from tpk_distributed.tensorflow_server import in_background

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
    (outcome,) = launch(end_while_closing, workers=1).wait()
    assert outcome.status == 1, outcome.stderr[-3000:]
    assert "ValueError: meanwhile" in outcome.stderr
    assert "all are closed" in outcome.stdout
