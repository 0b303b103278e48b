from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError, InputError
from tpk.input_source import StagingInput, ZMQInput

pytest.importorskip("zmq")


@pytest.fixture(autouse=True)
def home_of_the_key(tmp_path, monkeypatch):
    """Where the key of the user is made: not in the home of whoever tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def send():
    """Send flows in threads of their own, which end with the test."""
    from tpk.dataflow.zmq.sender import send_dataflow_zmq

    threads = []

    def run(flow, addresses):
        with suppress(ZeroDivisionError):
            send_dataflow_zmq(flow, addresses)

    def begin(flow, addresses):
        thread = threading.Thread(target=run, args=(flow, addresses), daemon=True)
        thread.start()
        threads.append(thread)
        return thread

    yield begin
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_what_is_sent_arrives_once_and_in_order(drive, send):
    signature = [tf.TensorSpec([3], tf.float32, "x"), tf.TensorSpec([], tf.int32, "y")]
    flow = [[np.full(3, number, np.float32), number] for number in range(20)]
    with drive(ZMQInput("tcp://127.0.0.1:*", infinite=False), signature) as training:
        send(flow, training.source.addresses)
        for number in range(20):
            ((x, y),) = training.step()
            assert (x.tolist(), y) == ([number] * 3, number)
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()


def test_another_pass_follows_and_there_is_no_position(drive, specs, send):
    source = ZMQInput("tcp://127.0.0.1:*")
    with drive(StagingInput(source), specs("x")) as training:
        for _ in range(2):
            send([[0], [1]], source.addresses).join()
        assert training.first_components(4) == [0, 1, 0, 1]
        assert training.source.state_dict() == {}
    assert source.size is None
    with pytest.raises(InputError, match="ZMQInput keeps no position"):
        source.load_state_dict({"datapoints": 3})


def test_a_training_ends_while_nobody_sends(drive, specs, caplog):
    with drive(ZMQInput("tcp://127.0.0.1:*"), specs("x")):
        pass
    assert caplog.records == []


def test_a_failure_of_the_senders_data_reaches_the_step(drive, specs, send):
    def failing():
        yield [0]
        raise ZeroDivisionError("in the sender's data code")

    with drive(ZMQInput("tcp://127.0.0.1:*"), specs("x")) as training:
        send(failing(), training.source.addresses)
        training.step()
        with pytest.raises(InputError, match="in the sender's data code"):
            training.step()


def test_an_address_is_checked_at_once():
    with pytest.raises(ConfigError):
        ZMQInput("nowhere")


def test_no_other_source_loads_zeromq():
    code = """
        import sys
        from tpk.dataflow import BatchData, MultiProcessRunner
        from tpk.input_source import BatchQueueInput, FeedInput, QueueInput, StagingInput, TensorInput, TFDatasetInput

        sys.exit(", ".join(name for name in sys.modules if "zmq" in name) or 0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
