"""How the launchers of several hosts meet, and how each notices that another one has failed."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from tpk.errors import ConfigError, PeerError
from tpk_distributed.cluster import Cluster
from tpk_distributed.connections import check_names, normal_end

_SECONDS_BETWEEN_TRIES = 0.2


@attrs.define(eq=False)
class Link:
    """A connection to another launcher. Each of the two tells the other how its processes have ended.

    Attributes:
        name: the name of the other launcher's host in messages.
        stream: the connection.
    """

    name: str
    stream: socket.socket

    def tell(self, status: int, failure: str = "") -> None:
        """Tell the other launcher the exit status of this one, and if it is not 0, which process has failed."""
        with contextlib.suppress(OSError):
            _send(self.stream, [status, failure])

    def end(self) -> tuple[int, str]:
        """Read what the other launcher tells: see `tell`."""
        with contextlib.suppress(OSError, ValueError):
            status, failure = _receive(self.stream)
            return int(status), str(failure)
        return 1, f"the launcher at {self.name} is gone"


@attrs.frozen
class Meeting:
    """The launchers of all hosts that start one training.

    Attributes:
        nodes: the number of hosts.
        node_rank: the number of this host, from 0.
        master: ``"host:port"`` where the launcher of the first host listens until all have come.
        seconds: how long to wait for the others.
    """

    nodes: int
    node_rank: int
    master: str
    seconds: float = 300.0

    @contextlib.contextmanager
    def exchange(self, own: Cluster) -> Iterator[tuple[Cluster, int, list[Link]]]:
        """Yield the cluster of all hosts, the rank of the first worker of this host, and links to other launchers.

        The first host is linked to all others, and each of these only to the first.

        Args:
            own: the processes of this host; only the first one has parameter servers.

        Raises:
            ConfigError: if the name of the first host is unknown, if that cannot listen, or if two hosts have the same
                number, or expect other numbers.
            PeerError: if the others do not come in time.
        """
        check_names([self.master])
        with contextlib.ExitStack() as opened:
            if self.node_rank == 0:
                yield self._gather(opened, _ports(own.workers), _ports(own.ps))
            else:
                yield self._ask(opened, _ports(own.workers))

    def _gather(
        self, opened: contextlib.ExitStack, ports: list[int], ps_ports: list[int]
    ) -> tuple[Cluster, int, list[Link]]:
        host, _, port = self.master.rpartition(":")
        links: dict[int, Link] = {}
        places = {0: (host, ports)}
        end = time.monotonic() + self.seconds
        with contextlib.ExitStack() as listening:
            server = listening.enter_context(_listening(int(port), self.master))
            while len(places) < self.nodes:
                server.settimeout(max(end - time.monotonic(), 0.01))
                try:
                    stream, address = server.accept()
                except TimeoutError:
                    missing = ", ".join(str(rank) for rank in range(self.nodes) if rank not in places)
                    raise PeerError(
                        f"no launcher with --node-rank {missing} has come to {self.master} within {self.seconds:g} s."
                    ) from None
                opened.enter_context(stream)
                there = normal_end(address)[0]
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # Not a launcher.
                    stream.settimeout(10)
                    told = _receive(stream)
                    rank = int(told["node_rank"])
                    if told["nodes"] != self.nodes or rank in places or not 0 < rank < self.nodes:
                        error = f"node {rank} of {told['nodes']} has come from {there}, but it is not expected"
                        _send(stream, {"error": f"{error}: there are {self.nodes}, and each comes once."})
                        continue
                    places[rank] = (f"[{there}]" if ":" in there else there, told["ports"])
                    links[rank] = Link(f"node {rank} ({there})", stream)
        workers = [f"{host}:{port}" for _, (host, ports) in sorted(places.items()) for port in ports]
        cluster = Cluster(workers, [f"{host}:{port}" for port in ps_ports])
        for rank, link in links.items():
            first = sum(len(places[before][1]) for before in range(rank))
            _send(link.stream, {"workers": workers, "ps": cluster.ps, "first": first})
        return cluster, 0, list(links.values())

    def _ask(self, opened: contextlib.ExitStack, ports: list[int]) -> tuple[Cluster, int, list[Link]]:
        host, _, port = self.master.rpartition(":")
        end = time.monotonic() + self.seconds
        while True:
            try:
                stream = opened.enter_context(socket.create_connection((host.strip("[]"), int(port)), timeout=5))
                _send(stream, {"nodes": self.nodes, "node_rank": self.node_rank, "ports": ports})
                stream.settimeout(max(end - time.monotonic(), 1))
                told = _receive(stream)
                break
            except (OSError, ValueError) as error:
                if time.monotonic() > end:
                    raise PeerError(
                        f"the launcher of the first host does not answer at {self.master}: {error}. Is it started "
                        "with --node-rank 0, and can its port be reached?"
                    ) from error
                time.sleep(_SECONDS_BETWEEN_TRIES)
        if "error" in told:
            raise ConfigError(told["error"])
        return Cluster(told["workers"], told["ps"]), told["first"], [Link(f"node 0 ({self.master})", stream)]


def _ports(addresses: Sequence[str]) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in addresses]


def _listening(port: int, master: str) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    try:
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at port {port}, where the other hosts expect it: {error}. Choose another: --master {master}"
        ) from error


def _send(stream: socket.socket, value: Any) -> None:
    stream.sendall(json.dumps(value).encode() + b"\n")


def _receive(stream: socket.socket) -> Any:
    """Return the first value that comes."""
    line = b""
    while b"\n" not in line:
        data = stream.recv(65536)
        if not data:
            raise ConnectionError("the connection is closed")
        line += data
    return json.loads(line.partition(b"\n")[0])
