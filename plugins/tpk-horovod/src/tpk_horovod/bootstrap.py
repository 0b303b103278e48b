"""Rendezvous of the processes of a training.

Whoever is started by `horovodrun`, or by MPI, is told by its environment, as Horovod knows it. Whoever is started by
`tpk launch`, Kubernetes or SLURM is told by `tpk.cluster.spec.Cluster`; then the chief opens Horovod's own
rendezvous server at its address, and the environment of each process is set as `horovodrun` would have set it.

Horovod ends a process the hard way if another one does not come to its rendezvous in time. So the processes meet there
before, and one that does not come is an error that names it.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import psutil

import tpk
from tpk.cluster.spec import Cluster, Timeouts
from tpk.errors import PeerError

logger = logging.getLogger(f"tpk.{__name__}")

_OF_HOROVODRUN = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
_OF_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_OF_A_REQUEST = 10.0


def is_started_by_horovod(hvd: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment tells Horovod itself who trains together.

    Args:
        hvd: the module `horovod.tensorflow`.
        environ: the environment of this process.

    Raises:
        ConfigError: if it was started by MPI, for which Horovod was not built.
    """
    if _OF_HOROVODRUN in environ:
        return True
    by_mpi = [name for name in _OF_MPI if name in environ]
    if by_mpi and "TF_CONFIG" not in environ and "SLURM_STEP_NODELIST" not in environ:
        if hvd.mpi_built():
            return True
        raise tpk.ConfigError(
            f"this process was started by MPI ({by_mpi[0]} is set), but the Horovod that is installed was built "
            "without it. Start the processes by horovodrun or `tpk launch`, or build Horovod with MPI: "
            "see `python -m tpk_horovod.build --help`."
        )
    return False


def time_limits(hvd: Any, timeouts: Timeouts, may_be_joined: bool) -> dict[str, str]:
    """Return the settings of Horovod about how long processes wait for each other.

    Args:
        hvd: the module `horovod.tensorflow`.
        timeouts: how long they wait.
        may_be_joined: whether processes may be waited for that have only just been started.
    """
    silence = timeouts.start if may_be_joined else timeouts.heartbeat
    limits = {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(max(2, int(silence)))}
    if not hvd.mpi_built():
        # On Gloo it finds nothing: the controller keeps its list of ranks empty.
        return {**limits, "HOROVOD_STALL_CHECK_DISABLE": "1"}
    return {**limits, "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, int(timeouts.late_warning)))}


def placement(cluster: Cluster) -> dict[str, str]:
    """Return Horovod's settings that tell who this process is, as `horovodrun` would have set them."""
    hosts = [_host(address) for address in cluster.workers]
    here = hosts[cluster.rank]
    local_rank = hosts[: cluster.rank].count(here)
    # Processes with the same number on their hosts are a group of their own.
    across = [host for host in dict.fromkeys(hosts) if hosts.count(host) > local_rank]
    settings = {
        "HOROVOD_HOSTNAME": here,
        "HOROVOD_RANK": str(cluster.rank),
        "HOROVOD_SIZE": str(cluster.world_size),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(hosts.count(here)),
        "HOROVOD_CROSS_RANK": str(across.index(here)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        _OF_HOROVODRUN: hosts[0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": _port(cluster.workers[0]),
    }
    interface = _interface_of(here)
    return settings if interface is None else {**settings, "HOROVOD_GLOO_IFACE": interface}


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Within the context, the environment has these settings, where it says nothing else, as Horovod reads it."""
    added = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def rendezvous_server(cluster: Cluster) -> Iterator[None]:
    """Within the context, the chief serves Horovod's rendezvous at its address; the others do nothing.

    Raises:
        PeerError: if the chief's port is in use.
    """
    if cluster.rank != 0:
        yield
        return
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host = _host(cluster.address)
    try:
        # A name may be that of a service through which others come, so it need not be an address of this host.
        server = RendezvousHTTPServer((host if _is_loopback(host) else "", cluster.port), RendezvousHandler, 0)
    except OSError as error:
        raise PeerError(
            f"the chief cannot listen at {cluster.address}, where the others look for it: {error}. Is another training "
            "running with the same addresses? Choose another port."
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="horovod-rendezvous", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@attrs.frozen
class Board:
    """Where the processes leave notes for each other: a rendezvous server of Horovod.

    Args:
        host: where the server is.
        port: its port.
        rank: the number of this process.
        names: what messages call the processes, by rank.
        number: how many times this process has joined others before.
    """

    host: str
    port: str
    rank: int
    names: Sequence[str]
    number: int

    @classmethod
    def of_environment(
        cls,
        rank: int,
        world_size: int,
        number: int,
        cluster: Cluster | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Board | None:
        """Return the board that the environment tells of, or None: under MPI there is none.

        Args:
            rank: the number of this process.
            world_size: how many there are.
            number: as for the class.
            cluster: the addresses of the processes, if they are known.
            environ: the environment of this process.
        """
        if _OF_HOROVODRUN not in environ:
            return None
        ranks = range(world_size)
        return cls(
            host=environ[_OF_HOROVODRUN],
            port=environ["HOROVOD_GLOO_RENDEZVOUS_PORT"],
            rank=rank,
            names=[f"rank {each}" if cluster is None else cluster.name_of("worker", each) for each in ranks],
            number=number,
        )

    def meet(self, timeouts: Timeouts) -> None:
        """Wait until all processes are there.

        Args:
            timeouts: how long to wait for the last one, and until the log tells of it.

        Raises:
            PeerError: if they have not come by then; it names those who are missing.
        """
        start = time.monotonic()
        next_report = start + timeouts.late_warning
        clock = threading.Event()
        while True:
            reason = self._look()
            now = time.monotonic()
            if reason is None:
                return
            if now - start > timeouts.start:
                raise PeerError(
                    f"rank {self.rank} has waited for {timeouts.start:.0f} s, but {reason}. Have they all been "
                    "started, and can they reach each other? timeouts=tpk.Timeouts(start=<seconds>) gives them longer."
                )
            if now > next_report:
                next_report += timeouts.late_warning
                logger.warning("waiting for the other processes: %s", reason)
            clock.wait(_SECONDS_BETWEEN_LOOKS)

    def tell_waiting(self, waits: bool) -> None:
        """Tell whether this process waits for others."""
        with suppress(OSError):
            self._request("PUT", "waiting", self.rank, b"yes" if waits else b"no")

    def late(self) -> list[str]:
        """Return the names of the processes that have not told that they wait; none if nobody answers."""
        with suppress(OSError):
            waits = [self._request("GET", "waiting", rank) == b"yes" for rank in range(len(self.names))]
            return [name for name, each in zip(self.names, waits, strict=True) if not each]
        return []

    def _look(self) -> str | None:
        """Say that this process is there; return None if all are, else what is not as it should be."""
        try:
            # Each time, since the chief may have served the meeting before when it was said last.
            self._request("PUT", "here", self.rank, b"yes")
            missing = [name for rank, name in enumerate(self.names) if self._request("GET", "here", rank) is None]
        except OSError as error:
            return f"the chief does not answer at {self.host}:{self.port} ({error})"
        return f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} not come" if missing else None

    def _request(self, method: str, what: str, rank: int, data: bytes | None = None) -> bytes | None:
        url = f"http://{self.host}:{self.port}/tpk_{what}_{self.number}/{rank}"
        request = urllib.request.Request(url, data=data, method=method)
        try:
            with _without_proxies.open(request, timeout=_SECONDS_OF_A_REQUEST) as response:
                content: bytes = response.read()
                return content
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise
        except http.client.HTTPException as error:
            raise OSError(f"what answers there is no rendezvous server: {error!r}") from error


_without_proxies = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _ip_of(host: str) -> str | None:
    with suppress(OSError):
        return socket.gethostbyname(host)
    return None


def _is_loopback(host: str) -> bool:
    return (_ip_of(host) or "").startswith("127.")


def _interface_of(host: str) -> str | None:
    """Return the network interface that has the address of `host`, or None if this machine has none with it."""
    ip = _ip_of(host)
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.family == socket.AF_INET and address.address == ip for address in addresses):
            return str(name)
    return None
