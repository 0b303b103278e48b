"""The processes that ``tpk launch`` starts: which there are, where each one listens, and how it is told."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import attrs


@attrs.frozen
class Task:
    """One process of a cluster, in TensorFlow's terms.

    Attributes:
        type: ``"worker"`` or ``"ps"``; worker 0 is the chief.
        index: its number among those of its type.
    """

    type: str
    index: int

    @property
    def tag(self) -> str:
        """What its output is tagged by: the rank of a worker, ``ps0`` of a parameter server."""
        return str(self.index) if self.type == "worker" else f"{self.type}{self.index}"

    def __str__(self) -> str:
        return f"rank {self.index}" if self.type == "worker" else f"parameter server {self.index}"


@attrs.frozen
class Cluster:
    """Which processes there are, and where each one listens.

    Attributes:
        workers: the address, ``host:port``, of each worker.
        parameter_servers: that of each parameter server.
    """

    workers: tuple[str, ...]
    parameter_servers: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[Task]:
        """All tasks: the workers by rank, then the parameter servers."""
        return [
            *(Task("worker", index) for index in range(len(self.workers))),
            *(Task("ps", index) for index in range(len(self.parameter_servers))),
        ]

    def environment(self, task: Task) -> dict[str, str]:
        """Return the environment variables that tell a process which of the tasks is its own."""
        addresses = {"worker": self.workers, "ps": self.parameter_servers}
        cluster = {kind: list(those) for kind, those in addresses.items() if those}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task.type, "index": task.index}})}


@contextmanager
def reserved_cluster(workers: int, parameter_servers: int = 0, host: str = "127.0.0.1") -> Iterator[Cluster]:
    """Find a free port for each process, and keep others from taking it.

    On Linux, a port stays reserved as long as the context lasts: two sockets may be bound to one port if both have
    ``SO_REUSEADDR`` and neither listens yet, so that a server that sets it, as gRPC's and Python's HTTP server do, can
    take the port that is held here, while nobody is given it who asks for any. Elsewhere it is free again once this
    has returned.

    Args:
        workers: how many workers there are.
        parameter_servers: how many parameter servers.
        host: the address of this host.
    """
    with ExitStack() as held:
        # All at once, so that no two of them are the same.
        sockets = [held.enter_context(socket.socket()) for _ in range(workers + parameter_servers)]
        addresses = []
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((host, 0))
            addresses.append(f"{host}:{each.getsockname()[1]}")
        if sys.platform != "linux":
            held.close()
        yield Cluster(tuple(addresses[:workers]), tuple(addresses[workers:]))
