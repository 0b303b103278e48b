"""The tasks of the processes that ``tpk launch`` starts, and their addresses."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice

import attrs

from tpk.errors import ConfigError
from tpk_distributed.cluster import WORKER, Cluster

_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


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


def environments(
    cluster: Cluster, tasks: Sequence[Task], common: Mapping[str, str], gpus: int | None
) -> list[dict[str, str]]:
    """Return the environment variables of each process of a host.

    Args:
        cluster: the processes of all hosts.
        tasks: those of this host.
        common: the environment variables that all of them have.
        gpus: the number of GPUs of each worker; parameter servers have none. None if all processes see all GPUs.

    Raises:
        ConfigError: if fewer GPUs are visible than the workers need.
    """
    own = [{**common, "TF_CONFIG": cluster.as_tf_config(task.job, task.index)} for task in tasks]
    if gpus is not None:
        visible = common.get(_VISIBLE_GPUS)
        needed = gpus * sum(task.job == WORKER for task in tasks)
        free = list(map(str, range(needed))) if visible is None else list(filter(None, visible.split(",")))
        if len(free) < needed:
            raise ConfigError(f"--gpus {gpus} needs {needed} GPUs at this host, but {_VISIBLE_GPUS} is {visible!r}.")
        left = iter(free)
        for task, variables in zip(tasks, own, strict=True):
            variables[_VISIBLE_GPUS] = ",".join(islice(left, gpus if task.job == WORKER else 0))
    return own


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
