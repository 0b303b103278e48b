"""Sessions that other threads can abort."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf
from tpk_distributed.tensorflow_server import SharedSession

v1 = tf.compat.v1


def test_a_run_that_waits_in_vain_can_be_aborted_and_the_session_be_closed():
    local = v1.train.Server.create_local_server()
    with tf.Graph().as_default() as graph:
        never = tf.queue.FIFOQueue(1, [tf.float32]).dequeue()
    sess = SharedSession(local.target, graph, v1.ConfigProto())
    threading.Timer(0.2, sess.abort).start()
    for _ in range(2):
        with pytest.raises(tf.errors.CancelledError):
            sess.run(never)
    sess.close()
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(never)
