"""The place of a process in a cluster, as ``TF_CONFIG`` describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import tensorflow as tf

_LEADERS = ("chief", "master")
EVALUATOR = "evaluator"


@attrs.frozen(eq=False)
class Task:
    """The place of a process in a cluster.

    Attributes:
        type: the job: ``"chief"``, ``"worker"``, ``"ps"``, ``"evaluator"`` or ``"master"``.
        index: the index of the process within its job.
        cluster_spec: the `tf.train.ClusterSpec`; empty for a process without a cluster, and for an evaluator.
        service: the service in ``TF_CONFIG``, if any.
        session_master: the address of a server to use instead of the process's own.
        evaluation_master: the address of a server for evaluations.
    """

    type: str = "worker"
    index: int = 0
    cluster_spec: Any = attrs.field(factory=lambda: tf.train.ClusterSpec({}))
    service: Mapping[str, Any] | None = None
    session_master: str = ""
    evaluation_master: str = ""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Task:
        """Read the contents of ``TF_CONFIG``.

        Raises:
            ValueError: if they are contradictory.
        """
        cluster, task = dict(config.get("cluster", {})), config.get("task", {})
        job, index = task.get("type"), task.get("index")
        if not cluster:
            if job not in (None, "worker") or index not in (None, 0, "0"):
                raise ValueError(f"TF_CONFIG has no cluster, so its task must be worker 0, but it is {job} {index}.")
        else:
            _check_cluster(cluster, job, index)
        return cls(
            type=job or "worker",
            index=int(index or 0),
            cluster_spec=tf.train.ClusterSpec({} if job == EVALUATOR else cluster),
            service=config.get("service"),
            session_master=config.get("session_master", ""),
            evaluation_master=config.get("eval_session_master", ""),
        )

    @property
    def is_chief(self) -> bool:
        """Whether the process writes checkpoints."""
        jobs = self.cluster_spec.as_dict()
        leaders = [job for job in (*_LEADERS, "worker") if job in jobs]
        return (self.type, self.index) == (leaders[0], 0) if leaders else self.type != EVALUATOR

    @property
    def is_collective(self) -> bool:
        """Whether the process trains together with others, without parameter servers."""
        return self.count(*_LEADERS, "worker") > 1 and not self.count("ps")

    @property
    def master(self) -> str:
        """The address of the process's server; empty without a cluster, or if the process is alone in it."""
        jobs = self.cluster_spec.as_dict()
        if self.session_master or sum(map(len, jobs.values())) < 2:
            return self.session_master
        return f"grpc://{jobs[self.type][self.index]}"

    @property
    def global_index(self) -> int | None:
        """The index of the process in the cluster; None for an evaluator."""
        jobs = self.cluster_spec.as_dict()
        if not jobs:
            return None if self.type == EVALUATOR else 0
        ordered = sorted(jobs, key=lambda job: (job not in _LEADERS, job == "ps", job))
        return sum(len(jobs[job]) for job in ordered[: ordered.index(self.type)]) + self.index

    def count(self, *jobs: str) -> int:
        """Return how many processes have one of the jobs."""
        return sum(len(addresses) for job, addresses in self.cluster_spec.as_dict().items() if job in jobs)


def _check_cluster(cluster: Mapping[str, Any], job: str | None, index: Any) -> None:
    leaders = [address for name in _LEADERS for address in cluster.get(name, ())]
    if len(leaders) > 1 or ("ps" in cluster and not leaders):
        raise ValueError(f"the cluster in TF_CONFIG must have one chief, but it has: {dict(cluster)}.")
    if job is None or index is None:
        raise ValueError(
            'TF_CONFIG has a cluster, but not the place of this process in it: add "task": {"type": ..., "index": ...}.'
        )
    size = len(cluster.get(job, ()))
    if job != EVALUATOR and not 0 <= int(index) < size:
        raise ValueError(
            f"the task in TF_CONFIG is {job} {index}, but the cluster has {size} of {job}: {dict(cluster)}."
        )
