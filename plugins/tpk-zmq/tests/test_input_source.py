from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest
import tensorflow as tf
from tpk_zmq import ZMQInput, send_dataflow_zmq

import tpk
from tpk.errors import ConfigError, InputError


class Received(tpk.Callback):
    """Records the first input of each step."""

    def __init__(self):
        self.values = []

    def setup_graph(self, trainer):
        self._x = trainer.inputs[0]

    def before_run(self, run_context):
        return self._x

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results.tolist())


def train(source, steps, max_epoch=1, callbacks=(), **options):
    """Train on the received data, and return it."""
    received = Received()
    with tf.Graph().as_default():
        trainer = tpk.SimpleTrainer()
        trainer.setup_graph(
            [tf.TensorSpec([], tf.float32, "x")],
            source,
            lambda x: x * tf.compat.v1.get_variable("w", []),
            lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
        )
        trainer.train(callbacks=[received, *callbacks], steps_per_epoch=steps, max_epoch=max_epoch, **options)
    return received.values


@pytest.fixture
def send(request):
    """Send dataflows in threads, which must finish before the test ends."""
    threads = []

    def run(flow, source):
        with suppress(ZeroDivisionError):
            send_dataflow_zmq(flow, source)

    def start(flow, address):
        threads.append(threading.Thread(target=run, args=(flow, address), daemon=True))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def address(tmp_path):
    return f"ipc://{tmp_path}/socket"


def numbers(count, first=0):
    return [[np.float32(number)] for number in range(first, first + count)]


def test_what_is_sent_arrives_once_and_in_order(address, send):
    send(numbers(20), address)
    assert train(ZMQInput(address, infinite=False), steps=50) == list(range(20))


def test_another_pass_follows_and_a_resumed_run_continues_with_what_is_sent_next(address, send, tmp_path):
    send(numbers(2), address)
    send(numbers(2), address)
    options = {"steps": 4, "callbacks": ["ModelSaver"], "run_dir": tmp_path / "run", "resume": "auto"}
    assert sorted(train(ZMQInput(address), **options)) == [0, 0, 1, 1]
    send(numbers(4, first=10), address)
    assert train(ZMQInput(address), max_epoch=2, **options) == [10, 11, 12, 13]


def test_a_training_run_ends_cleanly_while_nothing_is_sent(address, send, caplog):
    send(numbers(3), address)
    assert train(ZMQInput(address), steps=3) == [0, 1, 2]
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


def test_a_failure_of_the_senders_data_reaches_the_step(address, send):
    def failing():
        yield [np.float32(0)]
        raise ZeroDivisionError("in the sender's data code")

    send(failing(), address)
    with pytest.raises(InputError, match="in the sender's data code"):
        train(ZMQInput(address), steps=2)


def test_an_address_is_checked_at_once():
    with pytest.raises(ConfigError):
        ZMQInput("nowhere")
