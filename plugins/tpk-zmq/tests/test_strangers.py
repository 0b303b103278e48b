"""Unauthorized processes cannot receive data, send data, or stop a dataflow."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import zmq
from tpk_zmq import RemoteDataZMQ, send_dataflow_zmq
from tpk_zmq.keys import curve_pair, user_key
from tpk_zmq.wire import Message
from zmq.utils.monitor import parse_monitor_message
from zmq_ends import FREE_PORT, in_another_process, numbered, numbers, receiver

from tpk.errors import ConfigError, InputError


class Bomb:
    """Unpickling it creates a directory."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


def bomb():
    return Message("datapoint", "stranger", 0, [pickle.dumps(Bomb())]).frames()


@contextmanager
def stranger(address, kind="DEALER", knows=None):
    """A socket that connects to an address, and a monitor of its connections.

    If `knows` is given, the socket uses it as the public key of the server, with a random key pair.
    """
    with zmq.Context() as context, context.socket(getattr(zmq, kind)) as one:
        one.linger = 0
        if knows is not None:
            one.curve_serverkey = knows
            one.curve_publickey, one.curve_secretkey = zmq.curve_keypair()
        with one.get_monitor_socket() as monitor:
            one.connect(address)
            yield one, monitor
            one.disable_monitor()


def wait_for_refusal(monitor):
    """Wait until ZeroMQ reports that a connection was refused."""
    while True:
        assert monitor.poll(60_000)
        event = parse_monitor_message(monitor.recv_multipart())["event"]
        assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
        if event == zmq.EVENT_DISCONNECTED:
            return


@pytest.mark.parametrize("knows", ["nothing", "another key", "the key of the receiver"])
def test_nothing_from_a_stranger_is_unpickled_and_the_flow_continues(knows, tmp_path, monkeypatch, threads):
    monkeypatch.chdir(tmp_path)
    key = {
        "nothing": None,
        "another key": curve_pair(b"a guess", "server")[0],
        # Only processes with the shared key can know it, but libzmq also checks the client's key.
        "the key of the receiver": curve_pair(user_key("test"), "server")[0],
    }[knows]
    with receiver() as flow, stranger(flow.addresses[0], knows=key) as (one, monitor):
        one.send_multipart(bomb())
        wait_for_refusal(monitor)
        threads.submit(send_dataflow_zmq, numbered(0, 5), flow.addresses[0])
        assert numbers(flow) == list(range(5))
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n" * 20, b"\xff" + b"\0" * 8 + b"\x7f\x03\x00NULL" + b"\0" * 48, b"\0"]
)
def test_bytes_of_another_protocol_do_not_end_the_flow(data, threads):
    with receiver() as flow:
        host, port = flow.addresses[0].removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(data)
            threads.submit(send_dataflow_zmq, numbered(0, 5), flow.addresses[0])
            assert numbers(flow) == list(range(5))


@pytest.mark.parametrize(
    "frames",
    [
        [b"hello"],
        [b""],
        [b"x" * 40],
        Message("datapoint", "torn", 0, [b"a", b"b"]).frames()[:2],
    ],
)
def test_a_message_of_another_protocol_is_an_error(frames, tmp_path):
    with receiver(f"ipc://{tmp_path}/socket") as flow, stranger(flow.addresses[0], "DEALER") as (one, _):
        one.send_multipart(frames)
        with pytest.raises(InputError, match="not a message of this version of tpk-zmq"):
            list(flow)


def test_a_sender_with_another_key_is_ignored():
    code = """
        send_dataflow_zmq([[1]], sys.argv[1], key="another")
    """
    with receiver(key="secret", timeout=1) as flow, in_another_process(code, flow.addresses[0]) as sender:
        try:
            with pytest.raises(InputError, match=r"nothing for 1 s .* finished: 0 of 1.* another key"):
                list(flow)
        finally:
            sender.kill()


@pytest.mark.parametrize("kind", ["ROUTER", "DEALER", "PULL"])
def test_a_stranger_gets_no_data(kind, tmp_path, threads):
    address = f"ipc://{tmp_path}/socket"
    marks = [[f"mark {number}"] for number in range(20)]
    with stranger(address, kind) as (one, monitor):
        sent = threads.submit(send_dataflow_zmq, marks, address, bind=True, key="secret")
        wait_for_refusal(monitor)
        with receiver(address, bind=False, key="secret") as flow:
            assert list(flow) == marks
        sent.result()
        assert not one.poll(0)


@contextmanager
def wire(address):
    """A relay between a sender and a receiver: yield its address for the sender, and the recorded bytes."""
    host, port = address.removeprefix("tcp://").split(":")
    sent = []

    def pass_on(source, target, copy):
        with suppress(ConnectionError):
            while data := source.recv(65536):
                copy.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve():
        with server.accept()[0] as ours, socket.create_connection((host, int(port))) as theirs:
            back = threading.Thread(target=pass_on, args=(theirs, ours, []), daemon=True)
            back.start()
            pass_on(ours, theirs, sent)
            back.join(60)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}", sent
        thread.join(60)
        assert not thread.is_alive()


def test_the_traffic_can_be_neither_read_nor_replayed(threads):
    secret = b"a text that must stay secret" * 100
    with receiver() as flow:
        address = flow.addresses[0]
        with wire(address) as (way, sent):
            threads.submit(send_dataflow_zmq, [[secret, 1], [secret, 2]], way)
            assert [number for _, number in flow] == [1, 2]
    recorded = b"".join(sent)
    assert len(recorded) > 2 * len(secret)
    assert secret[:20] not in recorded
    host, port = address.removeprefix("tcp://").split(":")
    with receiver(address) as flow, socket.create_connection((host, int(port))) as thief:
        thief.sendall(recorded)
        thief.settimeout(60)
        with pytest.raises(ConnectionError):
            while thief.recv(65536):
                pass
            raise ConnectionError("the receiver closed the connection")
        threads.submit(send_dataflow_zmq, [[secret, 3]], address)
        assert [number for _, number in flow] == [3]


def test_many_strangers_do_not_block_the_data(threads):
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00NULL" + b"\0" * 48 + b"\x04\x19\x05READY"
    with receiver() as flow:
        host, port = flow.addresses[0].removeprefix("tcp://").split(":")
        # More than ZeroMQ buffers for a peer that does not read.
        for _ in range(1200):
            with socket.create_connection((host, int(port)), timeout=60) as one:
                one.sendall(greeting)
                try:
                    while one.recv(1000):
                        pass
                except ConnectionError:
                    pass
        threads.submit(send_dataflow_zmq, numbered(0, 5), flow.addresses[0])
        assert numbers(flow) == list(range(5))


def test_a_unix_socket_that_others_can_access_uses_the_users_key(tmp_path, monkeypatch, threads):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with receiver(f"ipc://{tmp_path}/open/socket") as flow, stranger(flow.addresses[0]) as (one, monitor):
        one.send_multipart(bomb())
        wait_for_refusal(monitor)
        threads.submit(send_dataflow_zmq, numbered(0, 5), flow.addresses[0])
        assert numbers(flow) == list(range(5))
    assert not (tmp_path / "exploded").exists()


def test_a_unix_socket_may_have_a_key(tmp_path, threads):
    tmp_path.chmod(0o755)
    with receiver(f"ipc://{tmp_path}/socket", key="secret") as flow, stranger(flow.addresses[0]) as (one, monitor):
        one.send_multipart(bomb())
        wait_for_refusal(monitor)
        threads.submit(send_dataflow_zmq, numbered(0, 5), flow.addresses[0], key=b"secret")
        assert numbers(flow) == list(range(5))


def test_a_zeromq_without_curve_is_an_error(monkeypatch, tmp_path, threads):
    monkeypatch.setattr(zmq, "has", lambda name: False)
    with pytest.raises(ConfigError, match=r"has no CURVE. Install a wheel of pyzmq"):
        RemoteDataZMQ(FREE_PORT).reset_state()
    with receiver(f"ipc://{tmp_path}/socket") as flow:
        threads.submit(send_dataflow_zmq, [[np.arange(3)]], flow.addresses[0])
        assert [array.tolist() for (array,) in flow] == [[0, 1, 2]]
