from __future__ import annotations

import itertools
import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, DataFromIterable, aligned_empty
from tpk.errors import ConfigError, InputError
from tpk.input_source import QueueInput
from tpk.input_source.queue import _LARGE


def counting(limit=None):
    number = 0
    while limit is None or number < limit:
        yield [number]
        number += 1


def test_the_thread_reads_ahead_as_far_as_the_queue_has_room(drive, specs):
    reached = threading.Event()

    def datapoints():
        for number in range(100):
            if number == 4:  # three in the queue, and one waits for room
                reached.set()
            yield [number]

    with drive(QueueInput(DataFromGenerator(datapoints), queue_size=3), specs("number")) as training:
        assert not reached.is_set()
        assert training.first_components(1) == [0]
        assert reached.wait(10)


def test_a_queue_that_is_full_does_not_hold_up_the_end(drive, specs):
    with drive(QueueInput(DataFromGenerator(counting), queue_size=1), specs("number")) as training:
        training.step()


def test_the_end_does_not_wait_for_datapoints_that_wait_for_room_together(drive, specs):
    ahead = threading.Event()

    def datapoints():
        for number in itertools.count():
            if number == 20 + 4:  # Besides what the queue holds, five are enqueued at once, and wait.
                ahead.set()
            yield [number]

    with drive(QueueInput(DataFromGenerator(datapoints), queue_size=20), specs("number")) as training:
        assert ahead.wait(60)
        assert training.first_components(3) == [0, 1, 2]


@pytest.mark.parametrize("limit", [18, 20, 21])
def test_what_comes_before_a_failure_is_used_in_order_however_many_are_enqueued_at_once(drive, specs, limit):
    def datapoints():
        yield from counting(limit)
        raise OSError("the disk is gone")

    # From ten on, five are enqueued at once; of the last, there may be fewer.
    with drive(QueueInput(DataFromGenerator(datapoints), queue_size=20), specs("number")) as training:
        assert training.first_components(limit) == list(range(limit))
        with pytest.raises(OSError, match="the disk is gone"):
            training.step()


def test_a_datapoint_does_not_wait_for_others_while_a_step_waits_for_it(drive, specs):
    taken = threading.Semaphore(1)

    def datapoints():
        for number in range(30):  # Each is made of what the step before has computed, so to say.
            assert taken.acquire(timeout=60)
            yield [number]

    source = QueueInput(DataFromGenerator(datapoints), queue_size=20, infinite=False)
    with drive(source, specs("number")) as training:
        for number in range(30):
            assert training.first_components(1) == [number]
            taken.release()


def test_large_datapoints_are_enqueued_one_by_one(drive):
    made, has_read_ahead = [], threading.Event()

    def datapoints():
        for number in itertools.count():
            made.append(number)
            if number == 20:  # That many are in the queue, and it waits for room.
                has_read_ahead.set()
            yield [np.full([_LARGE], number % 100, np.int8)]

    source = QueueInput(DataFromGenerator(datapoints), queue_size=20)
    with drive(source, [tf.TensorSpec([_LARGE], tf.int8, "large")]) as training:
        assert has_read_ahead.wait(60)
        assert training.first_components(1)[0][0] == 0
    # For the one that was taken, and for the one that makes room for the end, there is one more each.
    assert len(made) <= 20 + 1 + 2


def test_a_queue_of_the_users_is_used(drive, specs):
    class OwnQueue(QueueInput):
        def _setup(self):
            self.queue = tf.queue.RandomShuffleQueue(20, 0, [tf.int32], shapes=[[]], seed=1)
            return super()._setup()

    with drive(OwnQueue(DataFromGenerator(lambda: counting(20)), infinite=False), specs("number")) as training:
        assert sorted(training.first_components(20)) == list(range(20))
        assert training.source.queue.queue_ref.op.type == "RandomShuffleQueueV2"


def test_a_queue_of_another_graph_is_refused(drive, specs):
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(3, [tf.int32])
    with pytest.raises(InputError, match="trainer's graph"):
        drive(QueueInput([[1]], queue=queue), specs("number"))


@pytest.mark.parametrize(("dtypes", "names"), [([tf.float32], None), ([tf.int32], ["number"])])
def test_a_queue_that_does_not_fit_is_refused(specs, dtypes, names):
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(3, dtypes, names=names)
        with pytest.raises(InputError, match=r"must have the dtypes of the signature, \['int32'\]"):
            QueueInput([[1]], queue=queue).setup(specs("number"))


def test_a_queue_has_room():
    with pytest.raises(ConfigError, match="queue_size"):
        QueueInput([[1]], queue_size=0)


def test_dequeued_tensors_have_the_shapes_of_the_signature(drive):
    signature = [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec(None, tf.int32, "y")]
    training = drive(QueueInput([[np.zeros((2, 3)), 1]]), signature)
    assert [tensor.shape.rank for tensor in training.towers[0]] == [2, None]
    assert training.towers[0][0].shape.as_list() == [None, 3]


def test_an_aligned_array_enters_the_queue_without_a_copy(drive):
    array = aligned_empty((1000,), np.float32)
    array[:] = 1
    with drive(QueueInput([[array]], infinite=False), [tf.TensorSpec([1000], tf.float32, "x")]) as training:
        training.source._thread.join()
        array[:] = 2
        assert np.array_equal(training.step()[0][0], array)


def test_the_graph_does_not_write_into_the_arrays_of_the_data():
    array = aligned_empty((1000,), np.float32)
    array[:] = 1
    source = QueueInput([[array]])
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        source.setup([tf.TensorSpec([1000], tf.float32, "x")])
        (x,) = source.get_input_tensors()
        tripled = (x + 1) * 1.5
        source.start(sess)
        for _ in range(5):
            assert np.all(sess.run(tripled) == 3)
        source.stop()
    assert np.all(array == 1)


class Ends(BaseException):
    pass


@pytest.mark.parametrize("kind", [Ends, tf.errors.CancelledError])
def test_whatever_the_data_code_raises_ends_the_step(drive, specs, kind):
    raised = kind(None, None, "mine") if issubclass(kind, tf.errors.OpError) else kind("mine")

    def datapoints():
        yield [0]
        raise raised

    with drive(QueueInput(datapoints()), specs("number")) as training:
        training.step()
        with pytest.raises(kind) as caught:
            training.step()
    assert caught.value is raised


def test_an_error_of_another_source_is_not_translated(drive, specs):
    def datapoints():
        yield [0]
        raise ZeroDivisionError

    with drive(QueueInput(datapoints()), specs("number")) as training:
        training.step()
        with pytest.raises(ZeroDivisionError):
            training.step()
        (callback,) = training.callbacks
        other = tf.errors.OutOfRangeError(None, None, "End of sequence [[{{node IteratorGetNext}}]]")
        assert callback.translate_error(other) is None
        assert callback.translate_error(ValueError("no error of a run")) is None


def test_an_error_is_translated_whichever_way_the_step_was_run(drive, specs):
    def datapoints():
        yield [0]
        raise ZeroDivisionError

    with drive(QueueInput(datapoints()), specs("number"), towers=2) as training:
        call = training.sess.make_callable(training.towers)
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            call()
        assert isinstance(training.callbacks[0].translate_error(caught.value), ZeroDivisionError)


def test_the_end_of_a_finite_source_is_not_translated(drive, specs):
    with drive(QueueInput([[0]], infinite=False), specs("number")) as training:
        training.step()
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            training.step()
        assert training.callbacks[0].translate_error(caught.value) is None


def test_a_failure_ahead_of_the_training_is_logged_and_not_lost(drive, specs, caplog):
    raised = threading.Event()

    def datapoints():
        yield [0]
        raised.set()
        raise ZeroDivisionError("never reached by a step")

    with drive(QueueInput(datapoints()), specs("number")) as training:
        training.step()
        assert raised.wait(10)
        training.source._thread.join()
    (record,) = caplog.records
    assert "failed ahead of what was used" in record.message
    assert "never reached by a step" in caplog.text


def test_a_failure_that_a_step_raised_is_not_logged_again(drive, specs, caplog):
    with drive(QueueInput([[0, 1]]), specs("number")) as training, pytest.raises(InputError):
        training.step()
    assert caplog.records == []


def test_data_code_that_does_not_return_is_left_behind_with_a_warning(drive, specs, caplog):
    asked, go_on = threading.Event(), threading.Event()

    def datapoints():
        yield [0]
        asked.set()
        go_on.wait(60)
        yield [1]

    with drive(QueueInput(DataFromIterable(datapoints()), stop_timeout=0.01), specs("number")) as training:
        training.step()
        assert asked.wait(60)
        thread = training.source._thread
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "go_on.wait(60)" in record.message
    go_on.set()
    thread.join()


def test_reset_state_waits_for_the_data_code(drive, specs, caplog):
    passes = []

    class Flow:
        def __iter__(self):
            passes.append(len(passes))
            yield [passes[-1]]
            if passes[-1] == 0:
                released.wait(60)
            yield from counting()

    released = threading.Event()

    class Release(logging.Handler):
        def emit(self, record):
            released.set()

    handler = Release()
    logging.getLogger("tpk.input_source.hang_watcher").addHandler(handler)
    try:
        with drive(QueueInput(Flow(), stop_timeout=0.01), specs("number")) as training:
            training.step()
            training.source.reset_state()
            assert released.is_set()
            assert training.first_components(3) == [1, 0, 1]
    finally:
        logging.getLogger("tpk.input_source.hang_watcher").removeHandler(handler)
    assert "has not finished its datapoint" in caplog.text


def test_a_closed_session_ends_the_thread(drive, specs, caplog):
    with drive(QueueInput(DataFromGenerator(counting)), specs("number")) as training:
        training.step()
        training.sess.close()
        training.source._thread.join()
    assert caplog.records == []


def test_a_source_that_never_started_can_be_stopped_and_reset(drive, specs):
    training = drive(QueueInput([[0]]), specs("number"))
    training.source.reset_state()
    training.callbacks[0].after_train(None)
