from __future__ import annotations

import pickle
import threading
from contextlib import closing

import numpy as np
import pytest
from tpk_zmq import RemoteDataZMQ, send_dataflow_zmq
from zmq_ends import FREE_PORT, in_another_process, numbered, numbers, receiver

from tpk.dataflow import Position
from tpk.errors import ConfigError


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


def test_received_arrays_are_writable_and_aligned(threads):
    original = np.arange(10000, dtype=np.float32)
    with receiver() as flow:
        threads.submit(send_dataflow_zmq, [[original]] * 3, flow.addresses[0])
        arrays = [array for (array,) in flow]
    for array in arrays:
        assert array.ctypes.data % 64 == 0
        array += 1
        np.testing.assert_array_equal(array, original + 1)


def test_what_another_process_sends_arrives(address):
    code = """
        import numpy as np
        send_dataflow_zmq(([np.full((64, 64), i), i] for i in range(20)), sys.argv[1])
    """
    with receiver(address) as flow, in_another_process(code, flow.addresses[0]) as sender:
        received = list(flow)
        assert sender.wait(300) == 0
    assert numbers(received) == list(range(20))
    assert all((array == number).all() for array, number in received)


def test_a_pass_ends_when_all_senders_have_finished(threads):
    with receiver(senders=3) as flow:
        for first in (0, 100, 200):
            threads.submit(send_dataflow_zmq, numbered(first, 10), flow.addresses[0])
        received = numbers(flow)
    assert sorted(received) == [first + place for first in (0, 100, 200) for place in range(10)]
    for first in (0, 100, 200):
        of_one = [number for number in received if first <= number < first + 100]
        assert of_one == sorted(of_one)


def test_additional_senders_are_received_until_they_finish(threads):
    first_has_come, others_may_end = threading.Event(), threading.Event()

    def slow():
        yield from numbered(100, 1)
        first_has_come.set()
        others_may_end.wait(60)
        yield from numbered(101, 1)

    with receiver() as flow:
        threads.submit(send_dataflow_zmq, slow(), flow.addresses[0])
        iterator = iter(flow)
        received = [next(iterator)]
        assert first_has_come.wait(60)
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


def test_the_sender_waits_for_a_slow_receiver(threads):
    made = []

    def flow():
        for datapoint in numbered(0, 200):
            made.append(datapoint[1])
            # Large, so that the operating system buffers only a few.
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


def test_a_key_allows_connections_from_the_network(threads):
    with receiver("tcp://0.0.0.0:*", key="secret") as flow:
        port = flow.addresses[0].rsplit(":", 1)[1]
        threads.submit(send_dataflow_zmq, numbered(0, 5), f"tcp://127.0.0.1:{port}", key=b"secret")
        assert numbers(flow) == list(range(5))


def test_it_is_pickled_without_its_sockets(threads):
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


def test_a_resumed_run_continues_with_what_is_sent_next(threads):
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
