"""Hosts for a test: network namespaces, joined by a switch, whose cables can be pulled out.

Each host has one network interface, ``eth0``, and the switch is a namespace with a bridge, so that nothing shows in the
network of the machine; with the namespaces, all of it is gone. It takes iproute2 and the right to make namespaces.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000


class Network:
    """A few hosts.

    Attributes:
        hosts: the names of their namespaces.
        addresses: the address of each.
    """

    def __init__(self, count: int) -> None:
        self._switch = f"tpk-{os.getpid()}-switch"
        self.hosts = [f"tpk-{os.getpid()}-{number}" for number in range(count)]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]

    def build(self) -> None:
        """Make the hosts and the switch."""
        ip("netns", "add", self._switch)
        ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._switch, "link", "set", "bridge", "up")
        for number, (host, address) in enumerate(zip(self.hosts, self.addresses, strict=True)):
            ip("netns", "add", host)
            port = f"port{number}"
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", port, "netns", self._switch)
            self.connect(number)
            ip("-n", self._switch, "link", "set", port, "up")
            ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                ip("-n", host, "link", "set", interface, "up")

    def connect(self, number: int) -> None:
        """Have the switch pass on what comes from a host, or is for it."""
        ip("-n", self._switch, "link", "set", f"port{number}", "master", "bridge")

    def disconnect(self, number: int) -> None:
        """Have the switch drop all that; no host notices."""
        ip("-n", self._switch, "link", "set", f"port{number}", "nomaster")

    def switch_off(self, number: int) -> None:
        """Switch off the network interface of a host, which notices that."""
        ip("-n", self.hosts[number], "link", "set", "eth0", "down")

    def processes(self) -> list[str]:
        """Return the ids of the processes at the hosts."""
        return [pid for host in self.hosts for pid in ip("netns", "pids", host).split()]

    def remove(self) -> None:
        """Remove what there is of it."""
        for each in [*self.hosts, self._switch]:
            if Path("/run/netns", each).exists():
                ip("netns", "delete", each)


@contextmanager
def network(count: int) -> Iterator[Network]:
    """Make hosts, and remove them.

    Raises:
        OSError: if that is not possible here; its text tells why.
        AssertionError: if a process is left at one of them.
    """
    made = Network(count)
    try:
        made.build()
        yield made
        assert not made.processes(), f"left at the hosts: {made.processes()}"
    finally:
        made.remove()


def enter(host: str) -> None:
    """Move this process to a host; threads that run already stay where they are."""
    with Path("/run/netns", host).open() as namespace:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"could not enter {host}")


def ip(*arguments: str) -> str:
    """Run ``ip``, and return what it writes."""
    command = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if command is None:
        raise OSError("there is no command ip; iproute2 has it")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
