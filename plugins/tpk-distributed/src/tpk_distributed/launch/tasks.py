"""The tasks of the processes that ``tpk launch`` starts, and their addresses."""

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
        index: its number among the tasks of its type.
    """

    type: str
    index: int

    @property
    def tag(self) -> str:
        """The tag of its output: the rank of a worker, or ``ps0`` for a parameter server."""
        return str(self.index) if self.type == "worker" else f"{self.type}{self.index}"

    def __str__(self) -> str:
        return f"rank {self.index}" if self.type == "worker" else f"parameter server {self.index}"


@attrs.frozen
class Cluster:
    """The addresses of the processes.

    Attributes:
        workers: the address of each worker, ``host:port``.
        parameter_servers: the address of each parameter server.
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
        """Return the environment variables that tell a process its task."""
        addresses = {"worker": self.workers, "ps": self.parameter_servers}
        cluster = {kind: list(those) for kind, those in addresses.items() if those}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task.type, "index": task.index}})}


@contextmanager
def reserved_cluster(workers: int, parameter_servers: int = 0) -> Iterator[Cluster]:
    """Find a free port for each process, and reserve it while the context is active.

    On Linux, two sockets may be bound to one port if both have ``SO_REUSEADDR`` and neither listens yet. So a server
    that sets this option, as the servers of gRPC and Python do, can take the reserved port, and the system does not
    give it to a process that asks for any port. On other systems, the port is free again when this function returns.

    Args:
        workers: the number of workers.
        parameter_servers: the number of parameter servers.
    """
    with ExitStack() as held:
        # All are open at the same time, so that no two have the same port.
        sockets = [held.enter_context(socket.socket()) for _ in range(workers + parameter_servers)]
        addresses = []
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{each.getsockname()[1]}")
        if sys.platform != "linux":
            held.close()
        yield Cluster(tuple(addresses[:workers]), tuple(addresses[workers:]))
