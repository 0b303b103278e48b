"""Hosts for a test: namespaces of this machine, joined by a switch, whose cables can be pulled out.

Each host has one network interface, ``eth0``, and the switch is a namespace with a bridge, so that nothing shows in the
network of the machine; with the namespaces, all of it is gone. A process that has entered a host also has that host's
name, finds the others by name, and shares no ``/tmp`` and no ``/dev/shm`` with processes outside. It takes iproute2 and
the right to make namespaces. A test enters by `enter`, or starts a command with `Network.command`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CLONE_NEWNET, CLONE_NEWUTS, CLONE_NEWNS = 0x40000000, 0x04000000, 0x00020000

# $1: the directory that stays; $2: the names of the hosts.
OWN_DIRECTORIES = """
mount --make-rprivate /
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /mnt
mkdir -p "/mnt/tmp" "/mnt/$1"
mount --bind "$1" "/mnt/$1"
mount --rbind /mnt/tmp /tmp
umount -l /mnt
mount --bind "$2" /etc/hosts
"""


class Network:
    """A few hosts.

    Attributes:
        hosts: the names of their namespaces, which are their host names.
        addresses: the address of each.
    """

    def __init__(self, count: int) -> None:
        self._switch = f"tpk-{os.getpid()}-switch"
        self.hosts = [f"tpk-{os.getpid()}-{number}" for number in range(count)]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]

    def build(self) -> None:
        """Make the hosts and the switch."""
        names = [f"{address} {host}\n" for host, address in zip(self.hosts, self.addresses, strict=True)]
        for host in self.hosts:
            path = hosts_file(host)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("127.0.0.1 localhost\n" + "".join(names))
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

    def cut(self, one: int, other: int) -> None:
        """Have two hosts send to each other what no host takes; neither notices."""
        for here, there in ((one, other), (other, one)):
            entry = (self.addresses[there], "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0")
            ip("-n", self.hosts[here], "neighbour", "replace", *entry)

    def lose(self, share: float) -> None:
        """Have each host drop a share of the packets that it receives.

        Raises:
            OSError: if iptables is missing. (The kernels of many containers do not have netem.)
        """
        drop = ("-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
        for host in self.hosts:
            ip("netns", "exec", host, "iptables", "-A", "INPUT", *drop)

    def command(self, number: int, *command: object, directory: Path | str = "") -> list[str]:
        """Return a command that runs another one at a host; for the directory see `enter`."""
        return [sys.executable, __file__, self.hosts[number], str(directory), *map(str, command)]

    def processes(self) -> list[str]:
        """Return the ids of the processes at the hosts."""
        built = [host for host in self.hosts if Path("/run/netns", host).exists()]
        return [pid for host in built for pid in ip("netns", "pids", host).split()]

    def remove(self) -> None:
        """Remove what there is of it, and kill the processes that are left at the hosts."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for each in [*self.hosts, self._switch]:
            if Path("/run/netns", each).exists():
                ip("netns", "delete", each)
            shutil.rmtree(hosts_file(each).parent, ignore_errors=True)


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
        end = time.monotonic() + 60
        while left := made.processes():  # Those that were just killed take a moment.
            assert time.monotonic() < end, f"left at the hosts: {left}"
            time.sleep(0.1)
    finally:
        made.remove()


def enter(host: str, directory: str = "") -> None:
    """Move this process to a host; threads that run already stay where they are.

    Args:
        host: the host.
        directory: the only one in ``/tmp`` that all hosts share; by default the working directory.
    """
    library = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", host).open() as namespace:
        if library.setns(namespace.fileno(), CLONE_NEWNET) or library.unshare(CLONE_NEWUTS | CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), f"could not enter {host}")
    socket.sethostname(host)
    subprocess.run(
        ["sh", "-ec", OWN_DIRECTORIES, "sh", directory or os.getcwd(), hosts_file(host)], check=True, timeout=120
    )


def hosts_file(host: str) -> Path:
    """Return the file with the names that a host knows; ``ip netns exec`` shows it as ``/etc/hosts``, too."""
    return Path("/etc/netns", host, "hosts")


def ip(*arguments: str) -> str:
    """Run ``ip``, and return what it writes."""
    command = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if command is None:
        raise OSError("there is no command ip; iproute2 has it")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    enter(sys.argv[1], sys.argv[2])
    os.execvp(sys.argv[3], sys.argv[3:])
