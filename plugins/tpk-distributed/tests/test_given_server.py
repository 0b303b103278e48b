"""Who the processes of a training with parameter servers are; no other process is needed."""

from __future__ import annotations

import socket

import pytest
import tensorflow as tf
from tpk_distributed import Cluster, DistributedReplicatedStrategy
from tpk_distributed.tensorflow_server import cluster_of

from tpk.errors import ConfigError

v1 = tf.compat.v1

CLUSTER = Cluster(workers=["10.0.0.1:1", "10.0.0.2:1"], ps=["10.0.0.3:1"], index=1)


def server(jobs, job, index):
    """A TensorFlow server that is not started."""
    return v1.train.Server(tf.train.ClusterSpec(jobs), job_name=job, task_index=index, start=False)


@pytest.fixture
def address():
    """An address at which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    return f"127.0.0.1:{port}"


def test_a_server_tells_the_cluster(address):
    cluster = Cluster(workers=["127.0.0.1:1", address], ps=["127.0.0.1:3"], index=1)
    given = server({"worker": list(cluster.workers), "ps": list(cluster.ps)}, "worker", 1)
    assert cluster_of(given) == cluster
    strategy = DistributedReplicatedStrategy(2, given)
    assert (strategy.rank, strategy.world_size, strategy.num_replicas, strategy.is_chief) == (1, 2, 2, False)


def test_a_server_whose_cluster_has_other_jobs_is_an_error(address):
    with pytest.raises(ConfigError, match="the cluster of the server has jobs 'chief'; expected 'worker'"):
        cluster_of(server({"chief": [address], "ps": ["10.0.0.3:1"]}, "chief", 0))


def test_a_cluster_without_parameter_servers_is_an_error():
    with pytest.raises(ConfigError, match=r"has no parameter server.* `tpk launch -n 2 --ps 1 script\.py`"):
        DistributedReplicatedStrategy(cluster=Cluster(workers=["127.0.0.1:1"]))


def test_a_parameter_server_is_no_chief():
    strategy = DistributedReplicatedStrategy(cluster=Cluster(CLUSTER.workers, CLUSTER.ps, job="ps", index=0))
    assert not strategy.is_chief
