"""Queues of TensorFlow 1 that a training reads: somebody has to fill them."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1


class Reader(tpk.Trainer):
    """Each step takes a number from a queue that threads of TensorFlow fill."""

    def __init__(self, numbers):
        super().__init__()
        self.seen = []
        with self.graph.as_default():
            self.number = numbers()
            self.train_op = v1.get_variable("w", [], initializer=v1.zeros_initializer()).assign_add(1.0).op

    def run_step(self):
        self.seen.append(self.hooked_sess.run([self.number, self.train_op])[0])


def threads_of_queues():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("QueueRunnerThread")]


def test_queues_are_filled_and_their_threads_end_with_the_training():
    trainer = Reader(lambda: v1.train.range_input_producer(3, shuffle=False).dequeue())
    trainer.train(steps_per_epoch=2, max_epoch=2)
    assert trainer.seen == [0, 1, 2, 0]
    assert threads_of_queues() == []


def test_what_fails_while_a_queue_is_filled_is_raised():
    def numbers():
        queue = v1.FIFOQueue(2, [tf.float32], [[]])
        number = tf.debugging.check_numerics(v1.get_variable("nan", initializer=float("nan")), "not a number")
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(number)]))
        return queue.dequeue()

    with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"):
        Reader(numbers).train(steps_per_epoch=2, max_epoch=2)
