from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, HangError
from tpk.plugin import Progress, StepHooks
from tpk.session import HookedSession

v1 = tf.compat.v1


class WaitsAt(tpk.Trainer):
    """Each step takes a number from a queue, which has so many."""

    def __init__(self, numbers):
        super().__init__()
        with self.graph.as_default():
            self.queue = tf.queue.FIFOQueue(100, [tf.float32], [[]], name="numbers")
            self.fill = self.queue.enqueue_many([np.arange(numbers, dtype=np.float32)])
            w = v1.get_variable("w", initializer=0.0)
            self.train_op = w.assign_add(self.queue.dequeue(name="take"), name="sum").op
            self.w = w


class Fill(tpk.Callback):
    def before_train(self, trainer):
        trainer.sess.run(trainer.fill)

    def after_train(self, trainer):
        self.w = trainer.sess.run(trainer.w)


def train(numbers, timeout, callbacks=(), **options):
    trainer, fill = WaitsAt(numbers), Fill()
    options = {"steps_per_epoch": 1, "max_epoch": 4, **options}
    trainer.train(callbacks=[fill, tpk.SessionRunTimeout(timeout), *callbacks], **options)
    return fill.w


class Fetch(tpk.Callback):
    """Has the run made by the ordinary `Session.run`, because it asks for options."""

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(None, options=v1.RunOptions(report_tensor_allocations_upon_oom=True))


@pytest.mark.parametrize("callbacks", [(), (Fetch,)], ids=["compiled", "with options"])
def test_a_step_that_waits_is_an_error_that_names_the_step_and_what_it_waits_for(callbacks):
    with pytest.raises(HangError, match=r"longer than 2000 ms.*in epoch 4, step 1 \(after global step 3\)") as error:
        train(3, 2000, [each() for each in callbacks])
    assert "The ops of a step that may wait: take (QueueDequeueV2)" in str(error.value)
    assert isinstance(error.value.__cause__, tf.errors.DeadlineExceededError)


@pytest.mark.parametrize("fetches", [(), ("cost:0",)], ids=["all in the loop", "the last apart"])
def test_a_run_of_several_steps_has_the_timeout_too(fetches, hook_recorder, monkeypatch):
    monkeypatch.setattr("tpk.input_source.data_thread.STOP_TIMEOUT", 0.1)
    over = threading.Event()

    def data():
        yield from ([np.float32(each)] for each in range(7))
        over.wait(60)

    trainer = tpk.SingleCostTrainer("single", steps_per_run=2)
    trainer.setup_graph(
        [tf.TensorSpec([], tf.float32, "x")],
        tpk.QueueInput(data()),
        lambda x: tf.multiply(x, v1.get_variable("w", initializer=0.5), name="cost"),
        lambda: v1.train.GradientDescentOptimizer(0.1),
    )
    with pytest.raises(HangError, match=r"took longer than 2000 ms.*\(QueueDequeueV2\)"):
        trainer.train(callbacks=[tpk.SessionRunTimeout(2000), hook_recorder(fetches)], steps_per_epoch=4, max_epoch=3)
    over.set()


@pytest.fixture(scope="module")
def server():
    return v1.train.Server.create_local_server()


def test_it_holds_on_a_server_of_tensorflow_too(server):
    with pytest.raises(HangError, match=r"take \(QueueDequeueV2\)"):
        train(3, 2000, session_creator=tpk.NewSessionCreator(target=server.target))


def test_it_holds_for_the_loop_of_a_run_on_a_server_too(server):
    graph = tf.Graph()
    with graph.as_default():
        queue = tf.queue.FIFOQueue(3, [tf.float32], [[]])
        steps = v1.get_variable("steps", initializer=0)
        add = steps.assign_add(1 + 0 * tf.cast(queue.dequeue(), tf.int32), read_value=False)
        fill, init = queue.enqueue_many([[1.0, 2.0]]), v1.global_variables_initializer()
    with v1.Session(server.target, graph=graph) as sess:
        sess.run([init, fill])
        progress = Progress()
        progress.offer(5)
        hooked = HookedSession(sess, StepHooks(), progress, timeout_in_ms=2000)
        with pytest.raises(tf.errors.DeadlineExceededError):
            hooked.run(add)
        assert sess.run(steps) == 2


def test_a_training_in_time_is_what_it_is_without():
    assert train(4, 60_000) == 6


def test_a_timeout_that_a_callback_asks_for_itself_counts_instead():
    class Longer(tpk.Callback):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs(None, options=v1.RunOptions(timeout_in_ms=60_000))

    class Late(tpk.Callback):
        """Gives the number on which the last step waits, after more than its timeout."""

        def before_epoch(self, trainer):
            if self.epoch_num == 4:
                self.late = threading.Timer(0.5, trainer.sess.run, [trainer.queue_op])
                self.late.start()

        def after_train(self, trainer):
            self.late.join()  # The session is closed after this, which would cancel what ends just then.

        def setup_graph(self, trainer):
            trainer.queue_op = trainer.queue.enqueue([10.0])

    assert train(3, 100, [Longer(), Late()]) == 13


def test_what_computes_is_said_to_compute():
    class Computes(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                w = v1.get_variable("w", initializer=0.0)
                self.train_op = tf.while_loop(lambda i: i < 300_000.0, lambda i: i + 1.0, [w])[0].op

    with pytest.raises(HangError, match="No op of a step waits for data or for other processes, so it was computing"):
        Computes().train(callbacks=[tpk.SessionRunTimeout(50)], steps_per_epoch=1, max_epoch=1)


def test_it_implements_no_hook_of_the_step():
    assert not tpk.SessionRunTimeout(1).hook_implementations().keys() & {"before_run", "after_run", "trigger_step"}


def test_other_errors_stay_what_they_are():
    class Fails(tpk.Trainer):
        def run_step(self):
            raise tf.errors.UnavailableError(None, None, "gone")

    with pytest.raises(tf.errors.UnavailableError, match="gone"):
        Fails().train(callbacks=[tpk.SessionRunTimeout(1000)], steps_per_epoch=1, max_epoch=1)


@pytest.mark.parametrize("timeout", [0, -5, 1.5, True, "1000"])
def test_a_timeout_that_makes_no_sense_is_an_error(timeout):
    with pytest.raises(ConfigError, match="SessionRunTimeout: timeout_in_ms must be an integer, 1 or more"):
        tpk.SessionRunTimeout(timeout)
