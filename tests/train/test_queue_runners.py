"""Queues of TensorFlow 1 that a training reads: somebody has to fill them."""

from __future__ import annotations

import threading
import time

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


def test_a_queue_that_the_script_fills_does_not_hold_the_end():
    class Fills(tpk.Callback):
        def before_train(self, trainer):
            trainer.sess.run(fill)

    def numbers():
        nonlocal fill
        by_hand = v1.FIFOQueue(9, [tf.int32], [[]])
        fill = by_hand.enqueue_many([[5, 6, 7]])
        queue = v1.FIFOQueue(2, [tf.int32], [[]])
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(by_hand.dequeue())] * 2))
        return queue.dequeue()

    fill = None
    trainer = Reader(numbers)
    began = time.monotonic()
    trainer.train(callbacks=[Fills()], steps_per_epoch=3, max_epoch=1)
    assert sorted(trainer.seen) == [5, 6, 7]
    assert threads_of_queues() == []
    assert time.monotonic() - began < 60
