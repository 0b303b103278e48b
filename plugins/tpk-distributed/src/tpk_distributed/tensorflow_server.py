"""TensorFlow's gRPC server of this process, which lives as long as the process, and sessions on it."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.tf_internals import close_runtime, is_closed, keep_for_good, mark_closed
from tpk_distributed.cluster import PS, WORKER, Cluster, as_cluster, device_of
from tpk_distributed.connections import are_on_loopback, confine_to_loopback

logger = logging.getLogger(f"tpk.{__name__}")

# Enough to see gRPC give up on a connection that is cut, after about 20 seconds, if that is noticed a little earlier.
_SECONDS_AT_EXIT = 8.0
_SECONDS_TO_CLOSE = 3.0
_NAME_OF_CLOSING = "tpk-close-session"

_lock = threading.Lock()
_running: RunningServer | None = None
_given: dict[str, RunningServer] = {}


@attrs.define
class RunningServer:
    """The server of this process.

    Attributes:
        cluster: the cluster, and which process of it the server is.
        cpu_devices: the number of logical CPU devices.
        target: the target for sessions that connect to it.
        trainings: the number of trainings that have used it, including the current one.
    """

    cluster: Cluster
    cpu_devices: int
    target: str
    trainings: int = 0

    def session_with(self, job: str, index: int, graph: Any, timeout_in_ms: int = 0) -> SharedSession:
        """Return a session over this process and another one.

        Args:
            job: the job of the other process.
            index: its index in the job.
            graph: a `tf.Graph`.
            timeout_in_ms: how long a run may take; 0 for no limit.
        """
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True, operation_timeout_in_ms=timeout_in_ms)
        config.device_filters[:] = sorted({device_of(job, index), self.cluster.device})
        return SharedSession(self.target, graph, config)


def start_server(cluster: Cluster, config: Any) -> RunningServer:
    """Return the server of this process, and start it if it does not run yet.

    TensorFlow cannot stop a server, so the next training in this process uses it again.

    Args:
        cluster: the processes, and which of them this one is.
        config: `tf.compat.v1.ConfigProto` with the number of CPU devices, the threads, and the GPU options of the
            server. Sessions that connect to it cannot change these.

    Raises:
        ConfigError: if the port is in use, or the server of this process belongs to another cluster.
    """
    global _running
    with _lock:
        # Indexing a map of a protocol buffer would add the key.
        cpu_devices = max(config.device_count.get("CPU", 0), 1)
        if _running is None:
            target = _start(cluster, config)
            _running = RunningServer(cluster, cpu_devices, target)
        elif cluster != _running.cluster:
            raise ConfigError(
                f"this process is {_running.cluster.name} of the cluster {_running.cluster.jobs}, and cannot become "
                f"{cluster.name} of {cluster.jobs}, because TensorFlow cannot stop a server. Start a new process."
            )
        elif cpu_devices > _running.cpu_devices:
            raise ConfigError(
                f"the server of this process has {_running.cpu_devices} CPU devices, but {cpu_devices} are needed now, "
                "and TensorFlow cannot add devices. Use as many devices in the first training of the process."
            )
        _running.trainings += 1
        return _running


def cluster_of(value: Any) -> Cluster:
    """Return the cluster for the option of a strategy with parameter servers.

    Args:
        value: an argument of `as_cluster`, or a `tf.compat.v1.train.Server`.

    Raises:
        ConfigError: if the value does not describe a cluster with parameter servers.
    """
    cluster = _cluster_of_server(value) if isinstance(value, tf.compat.v1.train.Server) else as_cluster(value)
    if not cluster.ps:
        raise ConfigError(
            "the cluster has no parameter server, but this strategy stores variables there. Start the processes with "
            "`tpk launch -n 2 --ps 1 script.py`, add a job 'ps' to TF_CONFIG, or use strategy 'collective', which does "
            "not need parameter servers."
        )
    return cluster


def given_server(cluster: Cluster, server: Any) -> RunningServer:
    """Return a `tf.compat.v1.train.Server` of the user as the server of this process. Each call counts a training.

    Args:
        cluster: the cluster of the server.
        server: the server.
    """
    if server.target not in _given:
        _given[server.target] = RunningServer(cluster, 1, server.target)
        keep_for_good(server)
    running = _given[server.target]
    running.trainings += 1
    return running


def _start(cluster: Cluster, config: Any) -> str:
    try:
        server = tf.compat.v1.train.Server(
            tf.train.ClusterSpec({job: list(addresses) for job, addresses in cluster.jobs.items()}),
            job_name=cluster.job,
            task_index=cluster.index,
            config=config,
        )
    except tf.errors.OpError as error:
        raise ConfigError(
            f"{cluster.name} cannot listen at port {cluster.port}: {error.message}. Another process may use it, such "
            f"as one of an earlier training: `ss -ltnp 'sport = :{cluster.port}'` shows it. End it, or use other ports."
        ) from error
    keep_for_good(server)
    logger.info("%s listens", cluster.name)
    _close_to_others(cluster)
    return str(server.target)


def _close_to_others(cluster: Cluster) -> None:
    """Restrict the server, which listens on all network interfaces, to loopback if the whole cluster is there."""
    members = [address for addresses in cluster.jobs.values() for address in addresses]
    if not are_on_loopback(members) or not confine_to_loopback(cluster.port):
        logger.warning(
            "TensorFlow's server listens at port %d of all network interfaces without authentication: any host that "
            "reaches it can run code in this process. Train in a private network, or restrict the port to the hosts of "
            "the cluster with a firewall",
            cluster.port,
        )


def _cluster_of_server(server: Any) -> Cluster:
    definition = server.server_def
    jobs = tf.train.ClusterSpec(definition.cluster).as_dict()
    others = sorted(set(jobs) - {WORKER, PS})
    if others:
        raise ConfigError(
            f"the cluster of the server has jobs {', '.join(map(repr, others))}; expected 'worker', whose first one is "
            "the chief, and 'ps'."
        )
    if not all(isinstance(addresses, list) for addresses in jobs.values()):
        raise ConfigError("the cluster of the server leaves out some tasks; expected the addresses of all of them.")
    return Cluster(
        workers=jobs.get(WORKER, []), ps=jobs.get(PS, []), job=definition.job_name, index=definition.task_index
    )


class SharedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A session on TensorFlow's server of this process that can be aborted, and closed when other processes are dead.

    TensorFlow closes a session only when all of its processes answer.

    Args:
        target: the server.
        graph: a `tf.Graph`.
        config: a `tf.compat.v1.ConfigProto`.

    Example:
        ```python
        sess = SharedSession(server.target, graph, config)
        threading.Timer(60.0, sess.abort).start()
        sess.run(op)  # raises tf.errors.CancelledError after a minute
        ```
    """

    def __init__(self, target: str, graph: Any, config: Any) -> None:
        super().__init__(target, graph, config)
        self._end: threading.Thread | None = None

    def abort(self) -> None:
        """Make the current and all later runs fail with `tf.errors.CancelledError`. May be called in any thread.

        After `close`, runs fail because the session is closed.
        """
        if self._end is None and not is_closed(self):
            self._end = in_background(lambda: close_runtime(self))

    def close(self) -> None:
        """Close the session. If another process is dead, it is abandoned."""
        self.abort()
        mark_closed(self)
        if self._end is not None:
            self._end.join(_SECONDS_TO_CLOSE)
            if self._end.is_alive():
                logger.info("TensorFlow cannot close a session whose server is gone; it is abandoned")


def in_background(close: Callable[[], None]) -> threading.Thread:
    """Call `close`, which closes a session, in a thread, and return the thread.

    The interpreter waits `_SECONDS_AT_EXIT` for the thread: a process that ends just when TensorFlow returns to the
    thread would be aborted, because its binding can no longer take the interpreter's lock.

    Args:
        close: closes the session. Its errors are ignored; another process may be gone.
    """

    def run() -> None:
        with suppress(tf.errors.OpError):
            close()

    thread = threading.Thread(target=run, name=_NAME_OF_CLOSING, daemon=True)
    thread.start()
    return thread


@atexit.register
def _wait_for_all() -> None:
    end = time.monotonic() + _SECONDS_AT_EXIT
    for thread in threading.enumerate():
        if thread.name == _NAME_OF_CLOSING:
            thread.join(max(end - time.monotonic(), 0))
