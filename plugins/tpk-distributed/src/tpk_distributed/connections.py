"""TCP connections of this process: check whether a process listens, restrict a port, and end dead connections.

Without this module, a training whose network is interrupted would wait for a quarter of an hour until the kernel gives
up on a connection, and other hosts could make TensorFlow's server on loopback run code.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from tpk.errors import ConfigError

End = tuple[str, int]
"""A numerical IP address, and a port."""

_DESCRIPTORS = "/dev/fd"


class Connections:
    """The connections of this process to given addresses, including those that TensorFlow opened.

    TensorFlow waits for a host that is dead or unreachable until the kernel gives up on the connection: on Linux after
    a quarter of an hour. Closing a session then waits as well. A waiting run fails, with a
    `tf.errors.UnavailableError`, only when its connection ends.

    Args:
        addresses: ``"host:port"`` of the other processes; names are resolved now, while the network still works.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._ends = {address: frozenset(_resolve(address)) for address in addresses}

    def hang_up(self, addresses: Collection[str]) -> None:
        """End all connections to some of the addresses.

        Runs that wait for an answer over one of them fail at once. TensorFlow reconnects for later runs.
        """
        ends = frozenset[End]().union(*(self._ends[address] for address in addresses))
        for connection in tcp_sockets():
            with connection as held, suppress(OSError):
                if normal_end(held.getpeername()) in ends:
                    held.shutdown(socket.SHUT_RDWR)


def check_names(addresses: Iterable[str]) -> None:
    """Raise a `ConfigError` if the host of an address, ``"host:port"``, is unknown.

    In a pod of Kubernetes nothing is checked, because a name may be known only when its pod has started.
    """
    for address in addresses:
        if not is_known(address) and "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise ConfigError(
                f"the host of {address} is unknown: {socket.gethostname()} cannot resolve its name. Write another "
                "name, or its IP address."
            )


def is_known(address: str) -> bool:
    """Whether the name of the host of ``"host:port"`` can be resolved here."""
    return any(_resolve(address))


def check_listening(address: str, seconds: float = 2.0) -> None:
    """Raise an `OSError` if nothing listens at ``"host:port"``, or the host does not answer in time.

    TensorFlow would wait for it forever.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()


def is_refused(address: str) -> bool:
    """Whether a host answers that nothing listens at ``"host:port"``; False if the host does not answer."""
    try:
        check_listening(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def are_on_loopback(addresses: Iterable[str]) -> bool:
    """Return whether all addresses, ``"host:port"``, are loopback addresses, which only this host can reach."""
    ends = [set(_resolve(address)) for address in addresses]
    return all(each and all(ipaddress.ip_address(ip).is_loopback for ip, _ in each) for each in ends)


def confine_to_loopback(port: int) -> bool:
    """Restrict a port at which this process listens to loopback addresses.

    Other hosts cannot reach the port, and this host can reach it only by loopback addresses. It works on Linux 5.7 or
    later, or as root.

    Returns:
        Whether the port was restricted.
    """
    is_confined = False
    for each in tcp_sockets():
        with each as held:
            # Includes connections that were accepted just before.
            if held.getsockname()[1] == port:
                try:
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
                except (AttributeError, OSError):
                    return False
                is_confined = True
    return is_confined


def _resolve(address: str) -> Iterator[End]:
    host, _, port = address.rpartition(":")
    # There are no connections to a host whose name cannot be resolved.
    with suppress(OSError):
        for *_, end in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
            yield normal_end(end)


def normal_end(end: tuple[object, ...]) -> End:
    """Return an end with its IPv4 address if a socket for IPv6 shows it as a mapped address."""
    ip = ipaddress.ip_address(str(end[0]).partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip), int(str(end[1]))


def tcp_sockets() -> Iterator[socket.socket]:
    """Yield a separate socket for each descriptor of this process that is a TCP socket."""
    # Only Linux and macOS list the descriptors.
    for name in os.listdir(_DESCRIPTORS) if os.path.isdir(_DESCRIPTORS) else ():
        try:
            copy = os.dup(int(name))
        except OSError:  # Closed in the meantime, such as the descriptor of the listing.
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
