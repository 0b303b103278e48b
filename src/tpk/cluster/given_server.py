"""Who trains together by way of parameter servers, and the servers of TensorFlow that they have for it."""

from __future__ import annotations

import ctypes
from typing import Any

import tensorflow as tf

from tpk.cluster.reachability import wait_until_listening
from tpk.cluster.server import RunningServer
from tpk.cluster.spec import PS, WORKER, Cluster, as_cluster
from tpk.errors import ConfigError, PeerError

_given: dict[str, RunningServer] = {}


def cluster_of(value: Any) -> Cluster:
    """Return the cluster that the option of a strategy with parameter servers means.

    Args:
        value: what `as_cluster` takes, or a `tf.compat.v1.train.Server`.

    Raises:
        ConfigError: if it describes no cluster, or one without parameter servers.
    """
    cluster = _cluster_of_server(value) if isinstance(value, tf.compat.v1.train.Server) else as_cluster(value)
    if not cluster.ps:
        raise ConfigError(
            "the cluster has no parameter server, but this strategy keeps variables there. Start the processes with "
            "`tpk launch -n 2 --ps 1 script.py`, give TF_CONFIG a job 'ps', or use strategy 'collective', which needs "
            "none."
        )
    return cluster


def given_server(cluster: Cluster, server: Any) -> RunningServer:
    """Return a `tf.compat.v1.train.Server` of the user's as the server of this process; each call is a training more.

    Args:
        cluster: that of the server.
        server: the server.
    """
    if server.target not in _given:
        _given[server.target] = RunningServer(cluster, 1, server.target)
        # As for servers of our own: the destructor would wait for all who are connected, in the exit of the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server._server))
    running = _given[server.target]
    running.trainings += 1
    return running


def wait_for_servers(cluster: Cluster, seconds: float) -> None:
    """Wait until all parameter servers listen.

    TensorFlow would wait for them without an end.

    Raises:
        PeerError: if some do not after that time; it says which.
    """
    silent = wait_until_listening(cluster.ps, seconds)
    if silent:
        names = ", ".join(cluster.name_of(PS, cluster.ps.index(address)) for address in silent)
        raise PeerError(
            f"{names} did not start within {seconds:g} s. Start a process for each parameter server; see what became "
            "of it, and whether its address can be reached from here; start_timeout=<seconds> gives it longer."
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
