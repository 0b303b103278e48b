"""Runs in the thread that calls: when one is tried, which stays, and that the results are the same."""

from __future__ import annotations

import itertools
import math
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from hooked_sessions import hooked
from tensorflow.core.protobuf import config_pb2

from tpk.graph.repeated_ops import repeat
from tpk.plugin.progress import Progress
from tpk.session import caller_thread
from tpk.session.caller_thread import TRIED, WARM_UP, compile_for_caller, faster_of, most_steps_in_caller

v1 = tf.compat.v1


def options_of(op):
    return config_pb2.CallableOptions(target=[op.name])


class Threads:
    """An op that keeps in which threads it ran, made by a run in TensorFlow's threads and by one in the caller's."""

    def __init__(self):
        self.idents = []
        with tf.Graph().as_default() as graph:
            noted = tf.numpy_function(lambda: self.idents.append(threading.get_ident()), [], [])
            self.sess = v1.Session(graph=graph)
        self.pooled = self.sess._make_callable_from_options(options_of(noted))
        self.own = compile_for_caller(self.sess, options_of(noted))

    @property
    def last_was_own(self):
        return self.idents[-1] == threading.get_ident()

    def trial(self, pooled_seconds, own_seconds):
        """Return a trial in which the runs take these times, and where it puts what it settles on."""
        chosen = []
        times = itertools.count()
        now = 0.0

        def clock():
            nonlocal now
            if next(times) % 2:
                now += own_seconds if self.last_was_own else pooled_seconds
            return now

        return faster_of(self.pooled, lambda: self.own, chosen.append, clock), chosen


@pytest.mark.parametrize(("own_seconds", "own_stays"), [(4e-5, True), (9.5e-5, False)])
def test_the_faster_thread_stays(own_seconds, own_stays):
    threads = Threads()
    trial, chosen = threads.trial(1e-4, own_seconds)
    runs = 0
    while not chosen:
        trial()
        runs += 1
    chosen[0]()
    assert threads.last_was_own == own_stays
    assert len(threads.idents) == runs + 1 == WARM_UP + 2 * TRIED + 1
    mine = [ident == threading.get_ident() for ident in threads.idents]
    assert mine[: WARM_UP + 4] == [False] * WARM_UP + [False, True, False, True]


def test_long_steps_are_not_tried():
    threads = Threads()
    trial, chosen = threads.trial(3e-3, 0.0)
    for _ in range(WARM_UP):
        assert not chosen
        trial()
    assert chosen == [threads.pooled]
    assert threads.own not in chosen and not any(ident == threading.get_ident() for ident in threads.idents)


# What may be run in one thread


def queue():
    return tf.queue.FIFOQueue(9, [tf.float32], shapes=[[]])


def dequeued(times=1):
    with tf.device("/cpu:0"):
        return tf.add_n([queue().dequeue() for _ in range(times)])


def dataset():
    return v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(1.0).repeat()).get_next()


def updated(values=1.0):
    variable = v1.get_variable("v", [3], use_resource=True)
    return variable.assign_add(tf.random.normal([3]) * values).op


def reference():
    return v1.assign_add(v1.get_variable("r", [], use_resource=False), 1.0)


RUNS = {
    "a variable": (updated, sys.maxsize),
    "a reference variable": (reference, sys.maxsize),
    "a datapoint of a queue": (lambda: updated(dequeued()), 64),
    "a datapoint for each of many towers": (lambda: updated(dequeued(times=9)), 7),
    "a loop": (lambda: repeat([updated()], 3), sys.maxsize),
    "a loop over a queue": (lambda: repeat([updated(dequeued())], 3), 0),
    "a dataset, whose threads are those of the run": (lambda: updated(dataset()), 0),
    "Python": (lambda: tf.numpy_function(lambda: np.float32(1), [], tf.float32), 0),
    "what waits for what the same run may stage": (lambda: tf.raw_ops.Unstage(dtypes=[tf.float32]), 0),
    "a function": (lambda: tf.function(lambda: tf.constant(1.0) + 1.0, autograph=False)(), 0),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_waits_for_another_op_is_left_to_many_threads(name):
    make, most_steps = RUNS[name]
    with tf.Graph().as_default(), v1.Session() as sess:
        assert most_steps_in_caller(sess, tf.nest.flatten(make()), []) == most_steps


def test_what_makes_a_fed_tensor_counts_not():
    with tf.Graph().as_default(), v1.Session() as sess:
        tensor = v1.placeholder_with_default(dequeued(), [])
        op = updated(tensor)
        assert most_steps_in_caller(sess, [op], []) == 64
        assert most_steps_in_caller(sess, [op], [tensor]) == sys.maxsize


@pytest.mark.parametrize(
    "config",
    [
        v1.ConfigProto(inter_op_parallelism_threads=2),
        v1.ConfigProto(session_inter_op_thread_pool=[config_pb2.ThreadPoolOptionProto(num_threads=2)]),
    ],
)
def test_threads_that_the_config_names_are_those_of_the_run(config):
    with tf.Graph().as_default(), v1.Session(config=config) as sess:
        assert most_steps_in_caller(sess, [updated()], []) == 0


# What it computes


def drawn(runs, monkeypatch, **options):
    """Add random numbers to a variable in some runs; return it, and the number of runs in the calling thread."""
    in_caller = []

    def compile_counted(*args):
        call = compile_for_caller(*args)
        return lambda *values: in_caller.append(values) or call(*values)

    monkeypatch.setattr("tpk.session.plan.compile_for_caller", compile_counted)
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(3)
        op = updated()
        sess.run(v1.global_variables_initializer())
        session = hooked(sess, **options)
        for _ in range(runs):
            session.run(op)
        return sess.run("v/Read/ReadVariableOp:0"), len(in_caller)


def test_the_thread_makes_no_difference_to_what_is_computed(monkeypatch):
    monkeypatch.setattr(caller_thread, "GAIN", math.inf)
    monkeypatch.setattr(caller_thread, "SHORT", math.inf)
    runs = WARM_UP + 2 * TRIED + 9
    values, in_caller = drawn(runs, monkeypatch)
    expected, none_in_caller = drawn(runs, monkeypatch, tries_threads=False)
    np.testing.assert_array_equal(values, expected)
    assert in_caller > TRIED  # The runs after the trials, too.
    assert none_in_caller == 0


def test_many_steps_that_wait_for_a_queue_are_made_by_many_threads(monkeypatch):
    """Made by the caller, each would be a call within that of the one before, until the stack is used up."""
    monkeypatch.setattr(caller_thread, "GAIN", math.inf)
    monkeypatch.setattr(caller_thread, "SHORT", math.inf)
    trials, few, many = WARM_UP + 2 * TRIED, 2, 2000
    numbers = np.arange(trials * few + many, dtype=np.float32)
    with tf.Graph().as_default(), v1.Session() as sess:
        queue = tf.queue.FIFOQueue(len(numbers), [tf.float32], shapes=[[]])
        taken = v1.get_variable("taken", initializer=tf.zeros_like(numbers), use_resource=True)
        count = v1.get_variable("count", initializer=0, use_resource=True)
        at = count.assign_add(1) - 1
        op = taken.scatter_nd_update([[at]], [queue.dequeue()]).op
        fill = queue.enqueue_many([numbers])
        sess.run(v1.global_variables_initializer())
        sess.run(fill)
        progress = Progress()
        session = hooked(sess, progress=progress)
        for steps in [few] * trials + [many]:
            progress.offer(steps)
            session.run(op)
        np.testing.assert_array_equal(sess.run("taken/Read/ReadVariableOp:0"), numbers)


def test_a_run_on_several_devices_is_made_by_threads_of_tensorflow_all_the_same():
    idents = []
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as sess:
        with tf.device("/cpu:1"):
            one = tf.random.normal([])
        with tf.device("/cpu:0"):
            noted = tf.numpy_function(lambda _: idents.append(threading.get_ident()), [one], [])
        compile_for_caller(sess, options_of(noted))()
    assert threading.get_ident() not in idents
    assert len(idents) == 1
