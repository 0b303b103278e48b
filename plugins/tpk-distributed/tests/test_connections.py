from __future__ import annotations

import socket

import pytest
from tpk_distributed.connections import Connections, are_on_loopback, confine_to_loopback, is_refused


@pytest.fixture
def listener():
    """Something that accepts connections, at IPv4 addresses in any case, and never answers."""
    both = socket.has_dualstack_ipv6()
    with socket.create_server(
        ("", 0), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both
    ) as server:
        yield server.getsockname()[1]


def connect(host, port, family=socket.AF_INET):
    connection = socket.socket(family)
    connection.settimeout(120)
    connection.connect((host, port))
    return connection


def has_ended(connection):
    connection.settimeout(0.0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_run_that_waits_for_an_answer_is_aborted(listener, name):
    with connect("127.0.0.1", listener) as waiting:
        Connections([f"{name}:{listener}"]).hang_up([f"{name}:{listener}"])
        assert waiting.recv(1) == b""


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_a_connection_of_ipv6_to_an_address_of_ipv4_is_found(listener):
    with (
        connect("::ffff:127.0.0.1", listener, socket.AF_INET6) as mapped,
        connect("::1", listener, socket.AF_INET6) as other,
    ):
        Connections([f"127.0.0.1:{listener}"]).hang_up([f"127.0.0.1:{listener}"])
        assert has_ended(mapped)
        assert not has_ended(other)


def test_other_connections_are_left_alone(listener):
    with socket.create_server(("127.0.0.1", 0)) as server, connect("127.0.0.1", listener) as ended:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with connect(*server.getsockname()) as other:
            connections = Connections([f"127.0.0.1:{listener}", address])
            connections.hang_up([f"127.0.0.1:{listener}"])
            assert has_ended(ended)
            assert not has_ended(other)


def test_nothing_is_connected_to_a_host_that_nobody_knows(listener):
    address = f"no-such-host.invalid:{listener}"
    with connect("127.0.0.1", listener) as other:
        Connections([address]).hang_up([address])
        assert not has_ended(other)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["127.0.0.1:2222", "127.0.0.5:2222", "localhost:2223"], True),
        (["[::1]:2222"], True),
        (["127.0.0.1:2222", "192.0.2.7:2222"], False),
        (["localhost:2222", "no-such-host.invalid:2222"], False),
    ],
)
def test_addresses_that_only_this_host_can_reach(addresses, expected):
    assert are_on_loopback(addresses) is expected


def test_a_port_that_cannot_be_confined_is_told(listener, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unused = closed.getsockname()[1]
    assert not confine_to_loopback(unused)
    monkeypatch.delattr(socket, "SO_BINDTODEVICE", raising=False)
    assert not confine_to_loopback(listener)


@pytest.mark.skipif(not hasattr(socket, "SO_BINDTODEVICE"), reason="needs Linux")
def test_a_port_that_is_confined_is_still_reached_by_loopback(listener):
    with connect("127.0.0.1", listener) as before:
        assert confine_to_loopback(listener)
        before.sendall(b"x")
        connect("127.0.0.1", listener).close()


def test_only_an_address_where_nobody_listens_is_refused():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # So that no other process takes the port.
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert is_refused(address)
        bound.listen()
        assert not is_refused(address)
