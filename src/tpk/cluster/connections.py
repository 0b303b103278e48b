"""TCP connections of this process: who listens elsewhere, who may come here, and the end of those that nobody answers.

Without it, a training whose network is cut would wait for a quarter of an hour until the kernel gives a connection up,
and TensorFlow's server on loopback could be reached, and made to run code, from other hosts.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

End = tuple[str, int]
"""A numerical IP address, and a port."""

_DESCRIPTORS = "/dev/fd"


class Connections:
    """Finds connections of this process by where they lead to, whoever has opened them.

    TensorFlow waits for the answer of a host that is dead, or behind a cut link, until the kernel gives the connection
    up: on Linux after a quarter of an hour. A session that is closed meanwhile waits as well. Only when the connection
    has ended, a run that waits fails, by a `tf.errors.UnavailableError`.

    Args:
        addresses: ``"host:port"`` of the others; names are resolved now, as long as there is a network.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._ends = {address: frozenset(_resolve(address)) for address in addresses}

    def hang_up(self, addresses: Collection[str]) -> int:
        """End all connections to some of the addresses; return how many there were.

        What waits for an answer over one of them fails at once. TensorFlow connects anew for what comes later.
        """
        ends = frozenset[End]().union(*(self._ends[address] for address in addresses))
        count = 0
        for connection in _tcp_sockets():
            with connection as held, suppress(OSError):
                if _normal(held.getpeername()) in ends:
                    held.shutdown(socket.SHUT_RDWR)
                    count += 1
        return count


def check_listening(address: str, seconds: float = 2.0) -> None:
    """Raise an `OSError` if nothing listens at ``"host:port"``, or if there is no answer in time.

    TensorFlow would wait for it without an end.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()


def is_refused(address: str) -> bool:
    """Whether a host answers that nothing listens at ``"host:port"``; not so if there is no answer at all."""
    try:
        check_listening(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def are_on_loopback(addresses: Iterable[str]) -> bool:
    """Return whether all addresses, ``"host:port"``, are such as only this host can reach."""
    ends = [set(_resolve(address)) for address in addresses]
    return all(each and all(ipaddress.ip_address(ip).is_loopback for ip, _ in each) for each in ends)


def confine_to_loopback(port: int) -> bool:
    """Let a port at which this process listens be reached by the loopback addresses only, whoever has opened it.

    It is as if no other host saw the port; nor can this one reach it by the addresses that others know. Only Linux,
    from 5.7 on, lets those who are not root do that.

    Returns:
        Whether it was possible.
    """
    is_confined = False
    for each in _tcp_sockets():
        with each as held:
            # Those that were accepted in the moment before, too.
            if held.getsockname()[1] == port:
                try:
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
                except (AttributeError, OSError):
                    return False
                is_confined = True
    return is_confined


def _resolve(address: str) -> Iterator[End]:
    host, _, port = address.rpartition(":")
    # Who cannot be found now is not connected either.
    with suppress(OSError):
        for *_, end in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
            yield _normal(end)


def _normal(end: tuple[object, ...]) -> End:
    """Return an end as it is in all families of addresses: a socket for IPv6 shows an IPv4 host by a mapped address."""
    ip = ipaddress.ip_address(str(end[0]).partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip), int(str(end[1]))


def _tcp_sockets() -> Iterator[socket.socket]:
    """Yield a separate socket for each descriptor of this process that is a TCP socket."""
    # Elsewhere than on Linux and macOS, nobody is freed.
    for name in os.listdir(_DESCRIPTORS) if os.path.isdir(_DESCRIPTORS) else ():
        try:
            copy = os.dup(int(name))
        except OSError:  # Closed in the meantime, as the descriptor of the listing is.
            continue
        try:
            found = socket.socket(fileno=copy)
        except OSError:  # Not a socket.
            os.close(copy)
            continue
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
            yield found
        else:
            found.close()
