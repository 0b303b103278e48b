from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from zmq_ends import FREE_PORT, in_another_process, numbered, numbers, receiver

from tpk.dataflow.position import Position
from tpk.dataflow.zmq.receiver import RemoteDataZMQ
from tpk.dataflow.zmq.sender import send_dataflow_zmq
from tpk.errors import ConfigError, InputError

zmq = pytest.importorskip("zmq")


def test_an_error_of_the_senders_flow_arrives_with_its_traceback(threads):
    def broken_flow():
        yield from numbered(0, 3)
        raise ZeroDivisionError("no such image")

    with receiver() as flow:
        sent = threads.submit(send_dataflow_zmq, broken_flow(), flow.addresses[0], name="node7")
        received = []
        with pytest.raises(
            InputError, match=r"'node7' failed after 3 datapoints(?s:.*)in broken_flow(?s:.*)no such im"
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
        send_dataflow_zmq(flow(), sys.argv[1], name="the one that dies")
    """
    with receiver() as flow, in_another_process(code, flow.addresses[0]) as sender:
        iterator = iter(flow)
        assert [next(iterator), next(iterator)] == [[1], [2]]
        sender.kill()
        flow.timeout = 1
        with pytest.raises(InputError, match=r"'the one that dies' has given no sign of life for 1 s.*after 2"):
            next(iterator)


def test_a_slow_sender_is_not_taken_for_dead(threads, caplog):
    release = threading.Event()

    def slow():
        yield [1]
        release.wait(60)
        yield [2]

    with receiver(timeout=1) as flow:
        threads.submit(send_dataflow_zmq, slow(), flow.addresses[0], name="slow one")
        iterator = iter(flow)
        assert next(iterator) == [1]
        threading.Timer(2.2, release.set).start()
        assert list(iterator) == [[2]]
    assert "alive, but slow: slow one" in caplog.text


def test_a_sender_that_begins_again_takes_the_place_of_the_dead_one(threads, caplog):
    code = """
        def flow():
            yield [0]
            sys.stdin.read()
        send_dataflow_zmq(flow(), sys.argv[1], name="a")
    """
    with receiver() as flow, in_another_process(code, flow.addresses[0]) as sender:
        iterator = iter(flow)
        assert next(iterator) == [0]
        sender.kill()
        sender.wait()
        threads.submit(send_dataflow_zmq, [[1], [2]], flow.addresses[0], name="a")
        assert list(iterator) == [[1], [2]]
    assert "the sender 'a' began again, after 1 datapoints" in caplog.text


def test_nobody_comes():
    with receiver(timeout=1, senders=2) as flow, pytest.raises(InputError, match="only 0 of 2 senders came"):
        list(flow)


def test_a_receiver_that_is_started_anew_gets_the_rest(tmp_path, threads, caplog):
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


def test_a_sender_without_receiver_says_so(tmp_path, threads, caplog, when_logged):
    address = f"ipc://{tmp_path}/socket"
    warned = threading.Event()

    when_logged(f"nobody at {address} has taken a datapoint", warned.set)
    sent = threads.submit(send_dataflow_zmq, numbered(0, 10), address, hwm=1, warn_after=0.1)
    assert warned.wait(60)
    with receiver(address) as flow:
        assert numbers(flow) == list(range(10))
    sent.result()
    assert f"nobody at {address} has taken a datapoint for 0.1 s" in caplog.text


def test_closing_ends_an_iteration_that_waits_in_another_thread(threads):
    flow = RemoteDataZMQ(FREE_PORT, timeout=60)
    flow.reset_state()
    waiting = threads.submit(list, flow)
    flow.close()
    assert waiting.result(60) == []


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
    # One of an earlier test may have ended since.
    assert set(threading.enumerate()) <= threads_before
    assert len(os.listdir("/proc/self/fd")) <= len(files_before)


@pytest.mark.parametrize("moment", ["waiting for room", "in the flow", "receiving"])
def test_ctrl_c_ends_a_process_at_once(moment, tmp_path):
    address = f"ipc://{tmp_path}/socket"
    codes = {
        "waiting for room": "send_dataflow_zmq(announced(1000), sys.argv[1], hwm=1)",
        "in the flow": "send_dataflow_zmq(announced(1, Event().wait), sys.argv[1])",
        # Once all is imported: an import that is interrupted may end in any way.
        "receiving": "flow = RemoteDataZMQ(sys.argv[1]); flow.reset_state(); announce(); list(flow)",
    }
    code = """
        from threading import Event
        from tpk.dataflow.zmq.receiver import RemoteDataZMQ
        def announce():
            print("ready", flush=True)
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


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_signal_that_does_not_wake_the_waiting_is_seen_all_the_same(tmp_path):
    """As one that comes just before it begins; here, another thread gets it."""

    class Arrived(BaseException):
        pass

    def arrive(signum, frame):
        raise Arrived

    def flow():
        yield [0]
        thread.start()
        yield [1]

    def signal_here():
        status = Path(f"/proc/self/task/{os.getpid()}/stat")
        while not (
            "zmq" in sys._current_frames()[threading.main_thread().ident].f_code.co_filename
            and status.read_text().rpartition(")")[2].split()[0] == "S"
        ):
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    thread = threading.Thread(target=signal_here)
    before = signal.signal(signal.SIGUSR1, arrive)
    try:
        with pytest.raises(Arrived):
            send_dataflow_zmq(flow(), f"ipc://{tmp_path}/socket", hwm=1)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join(60)


def test_an_interrupted_sender_says_so_to_the_receiver():
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
        ({"address": "localhost:8877"}, "is no address; expected 'tcp://host:port'"),
        ({"address": "inproc://x"}, "is no address"),
        ({"address": []}, "takes one address or more"),
        ({"address": FREE_PORT, "key": ""}, "a key is text or bytes"),
        ({"address": FREE_PORT, "senders": 0}, "senders must be an integer, 1 or more"),
        ({"address": FREE_PORT, "timeout": 0.1}, "timeout must be 1 s or more"),
        ({"address": FREE_PORT, "hwm": 0}, "hwm must be 1 or more"),
        ({"address": "ipc:///no/such/directory/x", "key": "k"}, "RemoteDataZMQ cannot bind to 'ipc:///no/such/direc"),
        ({"address": "ipc:///tmp/" + "x" * 200, "key": "k"}, "RemoteDataZMQ cannot bind to 'ipc:///tmp/xxx"),
    ],
)
def test_wrong_options_of_the_receiver(arguments, message):
    with pytest.raises(ConfigError, match=message):
        RemoteDataZMQ(**arguments).reset_state()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hwm": 0}, "hwm must be 1 or more"),
        ({"warn_after": 0}, "warn_after must be positive"),
        ({"bind": True}, "bind"),
    ],
)
def test_wrong_options_of_the_sender(options, message):
    with receiver() as flow, pytest.raises(ConfigError, match=message):
        send_dataflow_zmq([], flow.addresses[0], **options)


def test_an_address_has_one_owner(address, threads):
    with receiver(address) as flow:
        with pytest.raises(ConfigError, match=r"RemoteDataZMQ cannot bind to .*: Address already in use"):
            RemoteDataZMQ(flow.addresses).reset_state()
        threads.submit(send_dataflow_zmq, [[1]], flow.addresses[0])
        assert list(flow) == [[1]]


def test_a_pass_that_is_given_up_is_followed_by_what_comes_next(threads):
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
