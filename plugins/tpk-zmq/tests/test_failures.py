from __future__ import annotations

import os
import signal
import textwrap
import threading

import pytest
from tpk_zmq import RemoteDataZMQ, send_dataflow_zmq
from zmq_ends import FREE_PORT, in_another_process, numbered, numbers, receiver

from tpk.dataflow import Position
from tpk.errors import ConfigError, InputError


def test_an_error_of_the_senders_flow_arrives_with_its_traceback(threads):
    def broken_flow():
        yield from numbered(0, 3)
        raise ZeroDivisionError("no such image")

    with receiver() as flow:
        sent = threads.submit(send_dataflow_zmq, broken_flow(), flow.addresses[0])
        received = []
        with pytest.raises(
            InputError, match=r"of the sender .* failed after 3 datapoints(?s:.*)in broken_flow(?s:.*)no such im"
        ):
            received.extend(flow)
        with pytest.raises(ZeroDivisionError):
            sent.result()
    assert numbers(received) == [0, 1, 2]


def test_a_datapoint_that_cannot_be_pickled_is_an_error_on_both_sides(threads):
    with receiver() as flow:
        sent = threads.submit(send_dataflow_zmq, [[1], [threading.Lock()]], flow.addresses[0])
        with pytest.raises(InputError, match="datapoint 1, a list, cannot be pickled"):
            list(flow)
        with pytest.raises(InputError, match="datapoint 1, a list, cannot be pickled"):
            sent.result()


def test_a_killed_sender_is_an_error_that_names_it():
    code = """
        def flow():
            yield [1]
            yield [2]
            sys.stdin.read()
        send_dataflow_zmq(flow(), sys.argv[1])
    """
    with receiver() as flow, in_another_process(code, flow.addresses[0]) as sender:
        iterator = iter(flow)
        assert [next(iterator), next(iterator)] == [[1], [2]]
        sender.kill()
        flow.timeout = 1
        with pytest.raises(InputError, match=r"has received nothing for 1 s .*active senders: .*:\d+:"):
            next(iterator)


def test_missing_senders_are_an_error():
    with (
        receiver(timeout=1, senders=2) as flow,
        pytest.raises(InputError, match="active senders: none; finished: 0 of 2"),
    ):
        list(flow)


def test_a_restarted_receiver_gets_the_rest(tmp_path, threads, caplog):
    address = f"ipc://{tmp_path}/socket"
    sent = threads.submit(send_dataflow_zmq, numbered(0, 100), address, hwm=1)
    with receiver(address, hwm=1) as flow:
        iterator = iter(flow)
        assert next(iterator)[1] == 0
        iterator.close()
    with receiver(address, hwm=1) as flow:
        rest = numbers(flow)
    sent.result()
    assert rest == list(range(rest[0], 100))
    assert f"{rest[0]} datapoints of the sender" in caplog.text


def test_closing_ends_an_iteration_that_waits_in_another_thread(threads):
    flow = RemoteDataZMQ(FREE_PORT, timeout=60)
    flow.reset_state()
    waiting = threads.submit(list, flow)
    flow.close()
    with pytest.raises(InputError, match="was closed"):
        waiting.result(60)


def test_nothing_is_left_behind(tmp_path):
    path = tmp_path / "socket"
    threads_before, files_before = set(threading.enumerate()), os.listdir("/proc/self/fd")
    with receiver(f"ipc://{path}") as flow:
        sender = threading.Thread(target=send_dataflow_zmq, args=(numbered(0, 5), f"ipc://{path}"))
        sender.start()
        assert path.exists()
        assert numbers(flow) == list(range(5))
        sender.join(60)
    assert not path.exists()
    # A thread of an earlier test may have ended in the meantime.
    assert set(threading.enumerate()) <= threads_before
    assert len(os.listdir("/proc/self/fd")) <= len(files_before)


@pytest.mark.parametrize("moment", ["waiting for room", "in the flow", "receiving"])
def test_ctrl_c_ends_a_process_at_once(moment, tmp_path):
    address = f"ipc://{tmp_path}/socket"
    codes = {
        "waiting for room": "send_dataflow_zmq(announced(1000), sys.argv[1], hwm=1)",
        "in the flow": "send_dataflow_zmq(announced(1, wait), sys.argv[1])",
        # Only after all imports: an interrupted import can fail in any way.
        "receiving": "flow = RemoteDataZMQ(sys.argv[1]); flow.reset_state(); announce(); list(flow)",
    }
    code = """
        from threading import Event
        from tpk_zmq import RemoteDataZMQ
        def announce():
            print("ready", flush=True)
        def wait():
            # A signal just before a wait does not end it.
            while not Event().wait(1):
                pass
        def announced(count, then=lambda: None):
            for number in range(count):
                if number == 1 or count == 1:
                    announce()
                then()
                yield [number]
    """
    with in_another_process(textwrap.dedent(code) + codes[moment], address) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / "socket").exists()


def test_the_receiver_learns_that_a_sender_was_interrupted():
    code = """
        import threading
        def flow():
            yield [1]
            print("sent", flush=True)
            threading.Event().wait()
        send_dataflow_zmq(flow(), sys.argv[1])
    """
    with receiver() as flow, in_another_process(code, flow.addresses[0]) as sender:
        iterator = iter(flow)
        assert next(iterator) == [1]
        assert sender.stdout.readline() == b"sent\n"
        sender.send_signal(signal.SIGINT)
        with pytest.raises(InputError, match=r"failed after 1 datapoints(?s:.*)KeyboardInterrupt"):
            next(iterator)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": "localhost:8877"}, "expected addresses such as .* not 'localhost"),
        ({"address": "inproc://x"}, "expected addresses"),
        ({"address": []}, r"expected addresses .* not \[\]"),
        ({"address": FREE_PORT, "key": ""}, "key must not be empty"),
        ({"address": FREE_PORT, "senders": 0}, "senders must be an integer, 1 or more"),
        ({"address": FREE_PORT, "timeout": 0}, "timeout must be positive"),
        ({"address": FREE_PORT, "hwm": 0}, "hwm must be an integer, 1 or more"),
        ({"address": "ipc:///no/such/directory/x", "key": "k"}, "RemoteDataZMQ cannot bind to 'ipc:///no/such/direc"),
        ({"address": "ipc:///tmp/" + "x" * 200, "key": "k"}, "RemoteDataZMQ cannot bind to 'ipc:///tmp/xxx"),
    ],
)
def test_invalid_options_of_the_receiver(arguments, message):
    with pytest.raises(ConfigError, match=message):
        RemoteDataZMQ(**arguments).reset_state()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hwm": 0}, "hwm must be an integer, 1 or more"),
        ({"bind": True}, "bind"),
    ],
)
def test_invalid_options_of_the_sender(options, message):
    with receiver() as flow, pytest.raises(ConfigError, match=message):
        send_dataflow_zmq([], flow.addresses[0], **options)


def test_an_address_has_one_owner(address, threads):
    with receiver(address) as flow:
        with pytest.raises(ConfigError, match=r"RemoteDataZMQ cannot bind to .*: Address already in use"):
            RemoteDataZMQ(flow.addresses).reset_state()
        threads.submit(send_dataflow_zmq, [[1]], flow.addresses[0])
        assert list(flow) == [[1]]


def test_an_abandoned_pass_is_followed_by_what_is_sent_next(threads):
    with receiver() as flow:
        position = Position(flow)
        threads.submit(send_dataflow_zmq, numbered(0, 3), flow.addresses[0])
        iterator = iter(position)
        assert next(iterator)[1] == 0
        position.break_off()
        state = position.state_dict()
        assert numbers(iterator) == [1, 2]
    with receiver() as flow:
        resumed = Position(flow)
        resumed.load_state_dict(state)
        threads.submit(send_dataflow_zmq, numbered(3, 2), flow.addresses[0])
        assert numbers(resumed) == [3, 4]
