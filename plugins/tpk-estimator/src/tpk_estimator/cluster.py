"""Asynchronous training with parameter servers, in the cluster that ``TF_CONFIG`` describes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_estimator.run_config import RunConfig

v1 = tf.compat.v1


def start_server(config: RunConfig) -> Any:
    """Start the server of this process; a parameter server serves the others from then on, and never returns."""
    server = v1.train.Server(
        config.cluster_spec, config.task_type, config.task_id, config.protocol or "grpc", config.session_config
    )
    if config.task_type == "ps":
        server.join()
    return server


def device_function(config: RunConfig) -> Any:
    """Return the device function of a graph: the user's, or one that puts variables on the parameter servers."""
    if config.device_fn is not None or not config.num_ps_replicas:
        return config.device_fn
    return v1.train.replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}",
        cluster=config.cluster_spec,
    )


def session_creator(scaffold: Any, config: RunConfig) -> Any:
    """Return what creates the session of a training: the chief initializes or restores variables, others wait."""
    if config.is_chief:
        return v1.train.ChiefSessionCreator(scaffold, config.master, config.session_config, config.model_dir)
    return v1.train.WorkerSessionCreator(
        scaffold, config.master, config.session_config, config.session_creation_timeout_secs
    )
