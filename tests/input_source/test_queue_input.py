from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, DataFromIterable, aligned_empty
from tpk.errors import ConfigError, InputError
from tpk.input_source import QueueInput


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
        assert reached.wait(60)


def test_a_queue_that_is_full_does_not_hold_up_the_end(drive, specs):
    with drive(QueueInput(DataFromGenerator(counting), queue_size=1), specs("number")) as training:
        training.step()


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
        training.join_thread("QueueInput")
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
        assert raised.wait(60)
        training.join_thread("QueueInput")
    (record,) = caplog.records
    assert "failed ahead of what was used" in record.message
    assert "never reached by a step" in caplog.text


def test_a_failure_that_a_step_raised_is_not_logged_again(drive, specs, caplog):
    with drive(QueueInput([[0, 1]]), specs("number")) as training, pytest.raises(InputError):
        training.step()
    assert caplog.records == []


def test_data_code_that_does_not_return_is_left_behind_with_a_warning(drive, specs, caplog, monkeypatch):
    monkeypatch.setattr("tpk.input_source.data_thread.STOP_TIMEOUT", 0.01)
    asked, go_on = threading.Event(), threading.Event()

    def datapoints():
        yield [0]
        asked.set() or go_on.wait(60)  # on one line, since it is shown wherever in it the thread is
        yield [1]

    with drive(QueueInput(DataFromIterable(datapoints())), specs("number")) as training:
        training.step()
        assert asked.wait(60)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "go_on.wait(60)" in record.message
    go_on.set()
    training.join_thread("QueueInput")


def test_reset_state_waits_for_the_data_code(drive, specs, caplog, when_logged, monkeypatch):
    monkeypatch.setattr("tpk.input_source.data_thread.STOP_TIMEOUT", 0.01)
    passes = []

    class Flow:
        def __iter__(self):
            passes.append(len(passes))
            yield [passes[-1]]
            if passes[-1] == 0:
                released.wait(60)
            yield from counting()

    released = threading.Event()

    when_logged("did not finish its datapoint", released.set)
    with drive(QueueInput(Flow()), specs("number")) as training:
        training.step()
        training.source.reset_state()
        assert released.is_set()
        assert training.first_components(3) == [1, 0, 1]
    assert "did not finish its datapoint" in caplog.text


def test_a_closed_session_ends_the_thread(drive, specs, caplog):
    with drive(QueueInput(DataFromGenerator(counting)), specs("number")) as training:
        training.step()
        training.sess.close()
        training.join_thread("QueueInput")
    assert caplog.records == []


def test_a_source_that_never_started_can_be_stopped_and_reset(drive, specs):
    training = drive(QueueInput([[0]]), specs("number"))
    training.source.reset_state()
    training.callbacks[0].after_train(None)


def test_data_that_waits_for_the_training_to_use_what_it_has_made_gets_on(drive, specs):
    asked, used = threading.Event(), threading.Event()

    def datapoints():
        for number in range(50):
            if number == 40:  # The queue is more than half full; the next one depends on the steps with all of these.
                asked.set()
                assert used.wait(30)
            yield [number]

    with drive(QueueInput(DataFromGenerator(datapoints), queue_size=50), specs("number")) as training:
        assert asked.wait(60)
        assert training.first_components(40) == list(range(40))
        used.set()
        assert training.first_components(10) == list(range(40, 50))
