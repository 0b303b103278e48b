"""The tasks of the processes that ``tpk launch`` starts, and their addresses."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice

import attrs

from tpk.errors import ConfigError
from tpk_distributed.cluster import WORKER, Cluster


@attrs.frozen
class Task:
    """One process of a cluster.

    Attributes:
        job: ``"worker"`` or ``"ps"``; worker 0 is the chief.
        index: its number in the job.
    """

    job: str
    index: int

    @property
    def tag(self) -> str:
        """The tag of its output: the rank of a worker, or ``ps0`` for a parameter server."""
        return str(self.index) if self.job == WORKER else f"{self.job}{self.index}"

    def __str__(self) -> str:
        return f"rank {self.index}" if self.job == WORKER else f"parameter server {self.index}"


@attrs.frozen
class Host:
    """A host on which another launcher starts processes, and tags their output.

    Attributes:
        name: as ``ssh`` takes it.
    """

    name: str
    tag = ""
    job = WORKER

    def __str__(self) -> str:
        return self.name


def tasks_of(cluster: Cluster) -> list[Task]:
    """Return the tasks of all processes: the workers by rank, then the parameter servers."""
    return [Task(job, index) for job, addresses in cluster.jobs.items() for index in range(len(addresses))]


def visible_gpus(tasks: Sequence[Task], count: int, visible: str | None) -> list[str]:
    """Return the value of ``CUDA_VISIBLE_DEVICES`` for each process of a host.

    Args:
        tasks: the processes.
        count: the number of GPUs of each worker; parameter servers have none.
        visible: the value of ``CUDA_VISIBLE_DEVICES`` at the host; None if all GPUs are visible.

    Raises:
        ConfigError: if fewer GPUs are visible than the workers need.
    """
    needed = count * sum(task.job == WORKER for task in tasks)
    gpus = list(map(str, range(needed))) if visible is None else list(filter(None, visible.split(",")))
    if len(gpus) < needed:
        raise ConfigError(f"--gpus {count} needs {needed} GPUs at this host, but CUDA_VISIBLE_DEVICES is {visible!r}.")
    left = iter(gpus)
    return [",".join(islice(left, count if task.job == WORKER else 0)) for task in tasks]


@contextmanager
def reserved_cluster(workers: int, ps: int = 0) -> Iterator[Cluster]:
    """Find a free port of this host for each process, and reserve it while the context is active.

    On Linux, two sockets may be bound to one port if both have ``SO_REUSEADDR`` and neither listens yet. So a server
    that sets this option, as the servers of gRPC and Python do, can take the reserved port, and the system does not
    give it to a process that asks for any port. On other systems, the port is free again when this function returns.

    Args:
        workers: the number of workers.
        ps: the number of parameter servers.
    """
    with ExitStack() as held:
        # All are open at the same time, so that no two have the same port.
        sockets = [held.enter_context(socket.socket()) for _ in range(workers + ps)]
        addresses = []
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{each.getsockname()[1]}")
        if sys.platform != "linux":
            held.close()
        yield Cluster(addresses[:workers], addresses[workers:])
