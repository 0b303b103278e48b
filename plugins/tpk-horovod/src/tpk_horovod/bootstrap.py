"""Rendezvous of the processes of a training run.

For processes started by `horovodrun` or MPI, Horovod reads the environment that these set. For processes started by
`tpk launch`, Kubernetes or SLURM, `tpk_distributed.Cluster` describes the cluster; the chief then runs Horovod's own
rendezvous server at its address, and each process gets the environment that `horovodrun` would have set.

If a process does not arrive at Horovod's rendezvous in time, Horovod aborts the others. Therefore the processes meet at
the server before that, and a missing process causes an error that names it.
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
from tpk_distributed import Cluster, Timeouts

import tpk
from tpk.errors import PeerError

logger = logging.getLogger(f"tpk.{__name__}")

_OF_HOROVODRUN = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
_OF_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_OF_A_REQUEST = 10.0
_SECONDS_TO_FIND_LOST = 10.0
"""Processes notice at different times that one is lost: at once, or when they look at the board."""


def is_started_by_horovod(hvd: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment already tells Horovod which processes train together.

    Args:
        hvd: the module `horovod.tensorflow`.
        environ: the environment of this process.

    Raises:
        ConfigError: if the process was started by MPI, but Horovod was built without MPI.
    """
    if _OF_HOROVODRUN in environ:
        return True
    by_mpi = [name for name in _OF_MPI if name in environ]
    if by_mpi and "TF_CONFIG" not in environ and "SLURM_STEP_NODELIST" not in environ:
        if hvd.mpi_built():
            return True
        raise tpk.ConfigError(
            f"this process was started by MPI ({by_mpi[0]} is set), but the installed Horovod was built "
            "without it. Start the processes with horovodrun or `tpk launch`, or build Horovod with MPI: "
            "see `python -m tpk_horovod.build --help`."
        )
    return False


def time_limits(hvd: Any, timeouts: Timeouts, may_be_joined: bool) -> dict[str, str]:
    """Return Horovod's settings for how long processes wait for each other.

    Args:
        hvd: the module `horovod.tensorflow`.
        timeouts: the time limits.
        may_be_joined: whether processes that were just started can join, which takes longer.
    """
    silence = timeouts.start if may_be_joined else timeouts.heartbeat
    limits = {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(max(2, int(silence)))}
    if not hvd.mpi_built():
        # The stall check does not work with Gloo, whose controller keeps an empty list of ranks.
        return {**limits, "HOROVOD_STALL_CHECK_DISABLE": "1"}
    return {**limits, "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, int(timeouts.late_warning)))}


def check_addresses(cluster: Cluster) -> None:
    """Raise a `ConfigError` if a host has no IPv4 address; Horovod would wait for it.

    In a pod of Kubernetes, a name may be known only when its pod has started.
    """
    for address in cluster.workers:
        host = _host(address)
        if ":" in host or (_ip_of(host) is None and "KUBERNETES_SERVICE_HOST" not in os.environ):
            raise tpk.ConfigError(
                f"{socket.gethostname()} finds no IPv4 address for {address}, and Horovod uses no other. Write a name "
                "or an address with IPv4, or use strategy 'collective', which also takes IPv6."
            )


def placement(cluster: Cluster) -> dict[str, str]:
    """Return Horovod's settings for the rank and addresses of this process, as `horovodrun` would set them."""
    hosts = [_host(address) for address in cluster.workers]
    here = hosts[cluster.rank]
    local_rank = hosts[: cluster.rank].count(here)
    # Processes with the same local rank form a group across the hosts.
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
    """Set environment variables within the context, except those that are already set."""
    added = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def rendezvous_server(cluster: Cluster) -> Iterator[None]:
    """Run Horovod's rendezvous server in the chief within the context; do nothing in other processes.

    Raises:
        PeerError: if the chief's port is in use.
    """
    if cluster.rank != 0:
        yield
        return
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host = _host(cluster.address)
    try:
        # The host name can belong to a service that forwards connections, so it may not be an address of this host.
        server = RendezvousHTTPServer((host if _is_loopback(host) else "", cluster.port), RendezvousHandler, 0)
    except OSError as error:
        raise PeerError(
            f"the chief cannot listen at {cluster.address}, where the others expect it: {error}. Is another training "
            "run using the same addresses? Choose another port."
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
    """A bulletin board on Horovod's rendezvous server, where processes leave notes for each other.

    Args:
        host: the host of the server.
        port: the port of the server.
        rank: the rank of this process.
        names: the names of the processes in messages, by rank.
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
        """Return the board that the environment specifies; None under MPI, which has no rendezvous server.

        Args:
            rank: the rank of this process.
            world_size: the number of processes.
            number: as for the class.
            cluster: the cluster, if known, whose addresses become the names.
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
        """Wait until all processes have arrived.

        Args:
            timeouts: how long to wait for the last process, and when to log a warning.

        Raises:
            PeerError: if a process does not arrive in time; the message names the missing processes.
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
                    f"rank {self.rank} has waited for {timeouts.start:.0f} s, but {reason}. Check that all processes "
                    "were started and can reach each other, or wait longer: timeouts={'start': <seconds>}."
                )
            if now > next_report:
                next_report += timeouts.late_warning
                logger.warning("waiting for the other processes: %s", reason)
            clock.wait(_SECONDS_BETWEEN_LOOKS)

    def tell_waiting(self, waits: bool) -> None:
        """Publish whether this process is waiting for others."""
        with suppress(OSError):
            self._request("PUT", "waiting", self.rank, b"yes" if waits else b"no")

    def tells_of_failure(self) -> bool:
        """Return whether a process has called `lost`; False if the server does not answer."""
        with suppress(OSError):
            return self._request("GET", "failure", 0) is not None
        return False

    def lost(self) -> list[str]:
        """Return the names of the processes that do not call this method, too, within some seconds.

        To be called when an operation has failed, here or in another process. If the server does not answer, the chief
        is lost; but if it has answered before, the chief has ended because it knows which processes are lost.
        """
        end = time.monotonic() + _SECONDS_TO_FIND_LOST
        others: list[str] = []
        while True:
            try:
                self._request("PUT", "failure", 0, b"yes")
                self._request("PUT", "failed", self.rank, b"yes")
                others = [name for rank, name in enumerate(self.names) if self._request("GET", "failed", rank) is None]
            except OSError:
                return others or [self.names[0]]
            if not others or time.monotonic() > end:
                return others
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def late(self) -> list[str]:
        """Return the names of the processes that are not waiting; an empty list if the server does not answer."""
        with suppress(OSError):
            waits = [self._request("GET", "waiting", rank) == b"yes" for rank in range(len(self.names))]
            return [name for name, each in zip(self.names, waits, strict=True) if not each]
        return []

    def _look(self) -> str | None:
        """Announce this process; return None if all processes have arrived, or else what is missing."""
        try:
            # Repeat the announcement: the last one may have reached the chief's server of an earlier rendezvous.
            self._request("PUT", "here", self.rank, b"yes")
            missing = [name for rank, name in enumerate(self.names) if self._request("GET", "here", rank) is None]
        except OSError as error:
            return f"the chief does not answer at {self.host}:{self.port} ({error})"
        return f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} not arrived" if missing else None

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
            raise OSError(f"the server at this address is not a rendezvous server: {error!r}") from error


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
    """Return the network interface with the address of `host`, or None if this machine does not have it."""
    ip = _ip_of(host)
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.family == socket.AF_INET and address.address == ip for address in addresses):
            return str(name)
    return None
