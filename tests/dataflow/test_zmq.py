from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pytest

from tpk.dataflow.memory import ALIGNMENT
from tpk.dataflow.optional import import_optional
from tpk.dataflow.position import Position
from tpk.dataflow.zmq_message import Kind, Message
from tpk.dataflow.zmq_receiver import RemoteDataZMQ
from tpk.dataflow.zmq_sender import send_dataflow_zmq
from tpk.errors import ConfigError, InputError

zmq = pytest.importorskip("zmq")
pytestmark = pytest.mark.timeout(30)

FREE_PORT = "tcp://127.0.0.1:*"


@pytest.fixture(params=["tcp", "ipc"])
def address(request, tmp_path):
    return FREE_PORT if request.param == "tcp" else f"ipc://{tmp_path}/socket"


@pytest.fixture
def threads():
    """Runs senders; when a test is over they must be, too."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


@contextmanager
def receiver(address=FREE_PORT, **options):
    options = {"patience": 10, **options}
    with closing(RemoteDataZMQ(address, **options)) as flow:
        flow.reset_state()
        yield flow


def numbered(first, count):
    return [[np.full((40, 50), number, np.float32), number] for number in range(first, first + count)]


def numbers(datapoints):
    return [number for _, number in datapoints]


def in_another_process(code, *arguments):
    text = "import sys\nfrom tpk.dataflow.zmq_sender import send_dataflow_zmq\n" + textwrap.dedent(code)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", text, *arguments], **pipes)


def test_what_a_thread_sends_arrives_and_ends(address, threads):
    sent = [
        [np.arange(6000, dtype=np.float32).reshape(2, 3, 1000), np.int64(3), "text", b"\0bytes\0"],
        [np.zeros((0, 4)), np.array(2.5), ["a", np.arange(3)], None],
        {"image": np.arange(5000, dtype=np.uint8)[::2], "order": np.asfortranarray(np.eye(50))},
    ]
    with receiver(address) as flow:
        done = threads.submit(send_dataflow_zmq, sent, flow.addresses[0])
        received = list(flow)
        done.result()
    for got, expected in zip(received[:2], sent[:2], strict=True):
        assert [type(value) for value in got] == [type(value) for value in expected]
        np.testing.assert_equal(got, expected)
    np.testing.assert_equal(received[2], sent[2])


def test_received_arrays_are_the_users_own_and_aligned(threads):
    original = np.arange(10000, dtype=np.float32)
    with receiver() as flow:
        threads.submit(send_dataflow_zmq, [[original]] * 3, flow.addresses[0])
        arrays = [array for (array,) in flow]
    for array in arrays:
        assert array.ctypes.data % ALIGNMENT == 0
        array += 1
        np.testing.assert_array_equal(array, original + 1)


def test_what_another_process_sends_arrives(address):
    code = """
        import numpy as np
        send_dataflow_zmq(([np.full((64, 64), i), i] for i in range(20)), sys.argv[1])
    """
    with receiver(address) as flow, in_another_process(code, flow.addresses[0]) as sender:
        received = list(flow)
        assert sender.wait(10) == 0
    assert numbers(received) == list(range(20))
    assert all((array == number).all() for array, number in received)


def test_a_pass_ends_when_all_senders_have_ended(threads):
    with receiver(senders=3) as flow:
        for first in (0, 100, 200):
            threads.submit(send_dataflow_zmq, numbered(first, 10), flow.addresses[0])
        received = numbers(flow)
    assert sorted(received) == [first + place for first in (0, 100, 200) for place in range(10)]
    for first in (0, 100, 200):
        of_one = [number for number in received if first <= number < first + 100]
        assert of_one == sorted(of_one)


def test_more_senders_than_promised_are_heard_to_their_end(threads):
    first_has_come, others_may_end = threading.Event(), threading.Event()

    def slow():
        yield from numbered(100, 1)
        first_has_come.set()
        others_may_end.wait(10)
        yield from numbered(101, 1)

    with receiver() as flow:
        threads.submit(send_dataflow_zmq, slow(), flow.addresses[0])
        iterator = iter(flow)
        received = [next(iterator)]
        assert first_has_come.wait(10)
        ended = threads.submit(send_dataflow_zmq, numbered(0, 2), flow.addresses[0])
        received += [next(iterator), next(iterator)]
        threads.submit(lambda: (ended.result(), others_may_end.set()))
        received += iterator
    assert numbers(received) == [100, 0, 1, 101]


def test_one_sender_serves_several_receivers(threads):
    with receiver() as one, receiver() as other:
        addresses = [*one.addresses, *other.addresses]
        sent = threads.submit(send_dataflow_zmq, numbered(0, 100), addresses)
        shares = list(threads.map(numbers, [one, other]))
        sent.result()
    assert sorted(shares[0] + shares[1]) == list(range(100))
    assert all(shares)


def test_the_sender_may_bind_and_the_receiver_connect(tmp_path, threads):
    addresses = [f"ipc://{tmp_path}/{name}" for name in "ab"]
    for address in addresses:
        threads.submit(send_dataflow_zmq, numbered(0, 5), address, bind=True)
    with receiver(addresses, bind=False, senders=2) as flow:
        assert sorted(numbers(flow)) == sorted([*range(5), *range(5)])


def test_passes_follow_each_other_without_loss(threads):
    with receiver() as flow:

        def send_three_times():
            for first in (0, 10, 20):
                send_dataflow_zmq(numbered(first, 10), flow.addresses[0])

        threads.submit(send_three_times)
        assert [numbers(flow) for _ in range(3)] == [list(range(first, first + 10)) for first in (0, 10, 20)]


def test_the_sender_waits_for_a_receiver_that_is_slow(threads):
    made = []

    def flow():
        for datapoint in numbered(0, 200):
            made.append(datapoint[1])
            # Large, so that the buffers of the system hold few.
            yield [np.zeros(1_000_000, np.uint8), datapoint[1]]

    with receiver(hwm=1) as remote:
        threads.submit(send_dataflow_zmq, flow(), remote.addresses[0], hwm=1)
        received = []
        most_ahead = 0
        for _, number in remote:
            received.append(number)
            most_ahead = max(most_ahead, len(made) - len(received))
    assert received == list(range(200))
    assert most_ahead < 40


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
        flow.patience = 1
        with pytest.raises(InputError, match=r"'the one that dies' has given no sign of life for 1 s.*after 2"):
            next(iterator)


def test_a_slow_sender_is_not_taken_for_dead(threads, caplog):
    release = threading.Event()

    def slow():
        yield [1]
        release.wait(10)
        yield [2]

    with receiver(patience=1) as flow:
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
    with receiver(patience=1, senders=2) as flow, pytest.raises(InputError, match="only 0 of 2 senders came"):
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


def test_a_sender_without_receiver_says_so(tmp_path, threads, caplog):
    address = f"ipc://{tmp_path}/socket"
    warned = threading.Event()

    class Notice(logging.Handler):
        def emit(self, record):
            warned.set()

    notice = Notice()
    logging.getLogger("tpk.dataflow.zmq_sender").addHandler(notice)
    try:
        sent = threads.submit(send_dataflow_zmq, numbered(0, 10), address, hwm=1, patience=0.1)
        assert warned.wait(10)
    finally:
        logging.getLogger("tpk.dataflow.zmq_sender").removeHandler(notice)
    with receiver(address) as flow:
        assert numbers(flow) == list(range(10))
    sent.result()
    assert f"nobody at {address} has taken a datapoint for 0.1 s" in caplog.text


def test_closing_ends_an_iteration_that_waits_in_another_thread(threads):
    flow = RemoteDataZMQ(FREE_PORT, patience=60)
    flow.reset_state()
    waiting = threads.submit(list, flow)
    flow.close()
    assert waiting.result(5) == []


def test_nothing_is_left_behind(tmp_path):
    path = tmp_path / "socket"
    threads_before, files_before = set(threading.enumerate()), os.listdir("/proc/self/fd")
    with receiver(f"ipc://{path}") as flow:
        sender = threading.Thread(target=send_dataflow_zmq, args=(numbered(0, 5), f"ipc://{path}"))
        sender.start()
        assert path.exists()
        assert numbers(flow) == list(range(5))
        sender.join(10)
    assert not path.exists()
    assert set(threading.enumerate()) == threads_before
    assert len(os.listdir("/proc/self/fd")) <= len(files_before)


@pytest.mark.parametrize("moment", ["waiting for room", "in the flow", "receiving"])
def test_ctrl_c_ends_a_process_at_once(moment, tmp_path):
    address = f"ipc://{tmp_path}/socket"
    codes = {
        "waiting for room": "send_dataflow_zmq(announced(1000), sys.argv[1], hwm=1)",
        "in the flow": "send_dataflow_zmq(announced(1, Event().wait), sys.argv[1])",
        "receiving": "announce(); list(RemoteDataZMQ(sys.argv[1]))",
    }
    code = """
        from threading import Event
        from tpk.dataflow.zmq_receiver import RemoteDataZMQ
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
        _, errors = process.communicate(timeout=10)
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / "socket").exists()


def test_an_interrupted_sender_says_so_to_the_receiver():
    code = """
        import threading
        def flow():
            yield [1]
            threading.Event().wait()
        send_dataflow_zmq(flow(), sys.argv[1])
    """
    with receiver() as flow, in_another_process(code, flow.addresses[0]) as sender:
        iterator = iter(flow)
        assert next(iterator) == [1]
        sender.send_signal(signal.SIGINT)
        with pytest.raises(InputError, match=r"failed after 1 datapoints(?s:.*)KeyboardInterrupt"):
            next(iterator)


def test_a_key_opens_the_network(threads):
    with receiver("tcp://0.0.0.0:*", key="secret") as flow:
        port = flow.addresses[0].rsplit(":", 1)[1]
        threads.submit(send_dataflow_zmq, numbered(0, 5), f"tcp://127.0.0.1:{port}", key=b"secret")
        assert numbers(flow) == list(range(5))


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_nothing_is_unpickled_that_is_not_signed(tmp_path, monkeypatch, threads, caplog):
    monkeypatch.chdir(tmp_path)
    with receiver(key="secret", patience=1) as flow, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.connect(flow.addresses[0])
        for key in (None, b"guess"):
            message = Message(Kind.DATAPOINT, b"0" * 16, 0, "stranger", [pickle.dumps(Bomb())])
            stranger.send_multipart(message.frames(key))
        with pytest.raises(InputError, match="2 messages with a wrong key were dropped"):
            list(flow)
    assert not list(tmp_path.iterdir())
    assert "not signed with its key" in caplog.text


@pytest.mark.parametrize(
    "frames",
    [
        [b"hello"],
        [b""],
        [b"x" * 40],
        Message(Kind.DATAPOINT, b"0" * 16, 0, "torn", [b"a", b"b"]).frames(None)[:2],
        Message(Kind.ALIVE, b"0" * 16, 0, "signed").frames(b"key"),
    ],
)
def test_a_foreign_or_torn_message_is_an_error(frames):
    with receiver() as flow, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.connect(flow.addresses[0])
        stranger.send_multipart(frames)
        with pytest.raises(InputError, match="is not from send_dataflow_zmq of this version"):
            list(flow)


@pytest.mark.parametrize(
    "address", ["tcp://*:8877", "tcp://0.0.0.0:1", "tcp://node7:8877", "tcp://127.0.0.1.evil.org:1"]
)
@pytest.mark.parametrize("make", [RemoteDataZMQ, lambda address: send_dataflow_zmq([], address)])
def test_an_open_address_needs_a_key(make, address):
    with pytest.raises(ConfigError, match="give sender and receiver the same key="):
        make(address)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": "localhost:8877"}, "is no address; expected 'tcp://host:port'"),
        ({"address": "inproc://x"}, "is no address"),
        ({"address": []}, "takes one address or more"),
        ({"address": FREE_PORT, "key": ""}, "a key is text or bytes"),
        ({"address": FREE_PORT, "senders": 0}, "senders must be 1 or more"),
        ({"address": FREE_PORT, "patience": 0.1}, "patience must be 1 s or more"),
        ({"address": FREE_PORT, "hwm": 0}, "hwm must be 1 or more"),
        ({"address": "ipc:///no/such/directory/x"}, "RemoteDataZMQ cannot bind to 'ipc:///no/such/directory/x'"),
        ({"address": "ipc:///tmp/" + "x" * 200}, "RemoteDataZMQ cannot bind to 'ipc:///tmp/xxx"),
    ],
)
def test_wrong_options_of_the_receiver(arguments, message):
    with pytest.raises(ConfigError, match=message):
        RemoteDataZMQ(**arguments).reset_state()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hwm": 0}, "hwm must be 1 or more"),
        ({"patience": 0}, "patience must be more than 0"),
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


def test_it_goes_to_another_process_without_its_sockets(threads):
    with receiver() as flow:
        copy = pickle.loads(pickle.dumps(flow))
        assert copy.addresses == (FREE_PORT,)
        with closing(copy):
            copy.reset_state()
            threads.submit(send_dataflow_zmq, [[1]], copy.addresses[0])
            assert list(copy) == [[1]]


def test_it_cannot_be_divided():
    with pytest.raises(ConfigError, match="cannot be divided among 2 workers"):
        RemoteDataZMQ(FREE_PORT).shard(0, 2)


def test_a_resumed_run_goes_on_with_what_comes(threads):
    with receiver() as flow:
        threads.submit(send_dataflow_zmq, numbered(0, 3), flow.addresses[0])
        position = Position(flow)
        assert numbers(position) == [0, 1, 2]
        state = position.state_dict()
    with receiver() as flow:
        resumed = Position(flow)
        resumed.load_state_dict(state)
        threads.submit(send_dataflow_zmq, numbered(3, 2), flow.addresses[0])
        assert numbers(resumed) == [3, 4]


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


def test_a_missing_package_is_an_error_that_says_how_to_install_it():
    with pytest.raises(ConfigError, match=r"Thing needs the package 'no_such_package'.*pip install \"tpk\[zmq\]\""):
        import_optional("no_such_package", "zmq", "Thing")
