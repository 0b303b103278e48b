"""The processes of a training: from TF_CONFIG, from SLURM, or given explicitly."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tpk.errors import ConfigError
from tpk_distributed.slurm import slurm_step

WORKER, PS = "worker", "ps"

_CHIEFS = ("chief", "master")
_LOOPBACK = re.compile(r"(localhost|127\.[\d.]+|\[::1\]):")
_ADDRESS = re.compile(r"^(?P<host>\[[^\]]+\]|[^\s:\[\]]+):(?P<port>\d{1,5})$")

WAYS_TO_SAY = (
    "Start all processes on this host with `tpk launch -n 2 script.py`; or set TF_CONFIG in each, as Kubeflow does: "
    '\'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}\'; or start them '
    "with SLURM's srun; or pass cluster=tpk_distributed.Cluster(workers=[...], index=...) to the strategy."
)


def is_address(text: str) -> bool:
    """Whether a text is ``"host:port"``."""
    match = _ADDRESS.match(text)
    return match is not None and 0 < int(match["port"]) < 2**16


def _addresses(values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigError(f"{values!r}: expected a list of addresses such as ['host0:2222', 'host1:2222'].")
    for value in values:
        if not isinstance(value, str) or not is_address(value):
            raise ConfigError(
                f"{value!r} is not the address of a process; expected 'host:port', such as '127.0.0.1:2222'."
            )
    return tuple(values)


@attrs.frozen
class Cluster:
    """The processes of a training, by address, and which of them this one is.

    The workers train; worker 0 is the chief. Parameter servers, which some strategies need, store variables. Each
    process listens at its address for TensorFlow's gRPC.

    Attributes:
        workers: ``"host:port"`` of each worker, by rank.
        ps: ``"host:port"`` of each parameter server.
        job: the job of this process: ``"worker"`` or ``"ps"``.
        index: the index of this process in its job, from 0.

    Raises:
        ConfigError: if an address is invalid or occurs twice, if only some are loopback addresses, or if the job or the
            index does not exist.

    Example:
        ```python
        cluster = Cluster(workers=["10.0.0.1:2222", "10.0.0.2:2222"], index=1)
        trainer = tpk.SingleCostTrainer(tpk.use("collective", cluster=cluster))
        ```
    """

    workers: tuple[str, ...] = attrs.field(converter=_addresses)
    ps: tuple[str, ...] = attrs.field(default=(), converter=_addresses)
    job: str = WORKER
    index: int = 0

    def __attrs_post_init__(self) -> None:
        """Check that the parts fit each other."""
        every = [*self.workers, *self.ps]
        if not self.workers:
            raise ConfigError("a cluster needs at least one worker, but its list of workers is empty.")
        twice = sorted({address for address in every if every.count(address) > 1})
        if twice:
            raise ConfigError(f"{', '.join(twice)}: each process of a cluster needs a different address.")
        local = [address for address in every if _LOOPBACK.match(address)]
        if 0 < len(local) < len(every):
            raise ConfigError(
                f"{local[0]} is an address that only its own host can reach, but other processes of the cluster have "
                "addresses of the network. Write the name or the address of the host."
            )
        if self.job not in (WORKER, PS):
            raise ConfigError(f"a process of a cluster is a 'worker' or a 'ps', not {self.job!r}.")
        members = self.jobs.get(self.job, ())
        is_index = isinstance(self.index, int) and not isinstance(self.index, bool)
        if not is_index or not 0 <= self.index < len(members):
            raise ConfigError(
                f"the cluster does not have {self.job} {self.index!r}: it has {len(members)}, counted from 0."
            )

    @property
    def jobs(self) -> dict[str, tuple[str, ...]]:
        """The addresses by job, as `tf.train.ClusterSpec` takes them."""
        return {WORKER: self.workers, **({PS: self.ps} if self.ps else {})}

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return len(self.workers)

    @property
    def rank(self) -> int:
        """The number of this process among the workers; 0 is the chief.

        Raises:
            ConfigError: if this process is a parameter server.
        """
        if self.job != WORKER:
            raise ConfigError(f"{self.name} is not a worker, so it has no rank.")
        return self.index

    @property
    def address(self) -> str:
        """``"host:port"`` of this process."""
        return self.jobs[self.job][self.index]

    @property
    def port(self) -> int:
        """The port at which this process listens."""
        return int(self.address.rpartition(":")[2])

    @property
    def device(self) -> str:
        """The prefix of all device strings of this process, such as ``"/job:worker/replica:0/task:1"``."""
        return device_of(self.job, self.index)

    @property
    def name(self) -> str:
        """The name of this process in messages; see `name_of`."""
        return self.name_of(self.job, self.index)

    def as_tf_config(self, job: str, index: int) -> str:
        """Return the value of TF_CONFIG for one of the processes."""
        return json.dumps({"cluster": self.jobs, "task": {"type": job, "index": index}})

    def name_of(self, job: str, index: int) -> str:
        """Return the name of a process in messages, such as ``"rank 1 (10.0.0.2:2222)"``."""
        address = self.jobs[job][index]
        return f"rank {index} ({address})" if job == WORKER else f"parameter server {index} ({address})"

    @classmethod
    def find(cls, environ: Mapping[str, str] = os.environ) -> Cluster:
        """Return the cluster described by the environment: by TF_CONFIG, otherwise by SLURM.

        Args:
            environ: the environment of this process.

        Raises:
            ConfigError: if the environment does not describe a valid cluster.
        """
        if environ.get("TF_CONFIG", "").strip():
            return cls.from_tf_config(environ["TF_CONFIG"])
        if "SLURM_STEP_NODELIST" in environ:
            workers, rank = slurm_step(environ)
            return cls(workers=workers, index=rank)
        inside = " (This is inside a SLURM job, but was not started by srun.)" if "SLURM_JOB_ID" in environ else ""
        raise ConfigError(f"this process does not know with whom it trains.{inside} {WAYS_TO_SAY}")

    @classmethod
    def from_tf_config(cls, text: str) -> Cluster:
        """Return the cluster that the value of TF_CONFIG describes.

        A job ``chief`` (or ``master``) is worker 0, before the workers of the job ``worker``.

        Args:
            text: JSON, in the format of Kubeflow's training operator and `tf.distribute`.

        Raises:
            ConfigError: if it is invalid; the message says why.
        """
        try:
            config = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"TF_CONFIG is not valid JSON: {error}. It is: {text!r}. {WAYS_TO_SAY}") from error
        try:
            return cls.from_mapping(config)
        except ConfigError as error:
            raise ConfigError(f"TF_CONFIG is broken: {error} It is: {text!r}") from error

    @classmethod
    def from_mapping(cls, config: Any) -> Cluster:
        """Return the cluster that a mapping with the structure of TF_CONFIG describes.

        Raises:
            ConfigError: if it is invalid; the message says why.
        """
        jobs, task = _mapping(config, "cluster"), _mapping(config, "task")
        unknown = sorted(set(jobs) - {*_CHIEFS, WORKER, PS, "evaluator"})
        if unknown:
            raise ConfigError(f"the cluster has jobs {', '.join(map(repr, unknown))}; expected chief, worker and ps.")
        lists = {name: _job(name, jobs.get(name, [])) for name in (*_CHIEFS, WORKER, PS)}
        chiefs = [address for name in _CHIEFS for address in lists[name]]
        if len(chiefs) > 1:
            raise ConfigError(f"a cluster has one chief, not {len(chiefs)}: {', '.join(chiefs)}.")
        if "type" not in task or "index" not in task:
            raise ConfigError(f"'task' is {dict(task)!r}; expected such as {{'type': 'worker', 'index': 0}}.")
        kind, index = task["type"], _index(task["index"])
        if kind not in (*_CHIEFS, WORKER, PS):
            raise ConfigError(
                f"this process is a {kind!r}, which takes no part in a training; expected chief, worker or ps."
            )
        if not 0 <= index < len(lists[kind]):
            raise ConfigError(f"this process is {kind} {index}, but the cluster has {len(lists[kind])} of them.")
        first_worker = len(chiefs) if kind == WORKER else 0
        return cls(
            workers=[*chiefs, *lists[WORKER]],
            ps=lists[PS],
            job=PS if kind == PS else WORKER,
            index=first_worker + index,
        )


def as_cluster(value: Any) -> Cluster:
    """Return the cluster for a strategy's option.

    Args:
        value: a `Cluster`; a mapping with the structure of TF_CONFIG; or None, to read the environment.

    Raises:
        ConfigError: if the value is invalid, or does not describe a cluster.
    """
    if value is None:
        return Cluster.find()
    if isinstance(value, Cluster):
        return value
    if isinstance(value, Mapping):
        return Cluster.from_mapping(value)
    raise ConfigError(f"cluster={value!r}: expected a Cluster, or a mapping with the structure of TF_CONFIG.")


def device_of(job: str, index: int) -> str:
    """Return the prefix of all device strings of a process, such as ``"/job:worker/replica:0/task:1"``."""
    return f"/job:{job}/replica:0/task:{index}"


def _mapping(config: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        raise ConfigError(f"it is {config!r}; expected an object with 'cluster' and 'task'.")
    value = config.get(key)
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"its {key!r} is {'missing' if value is None else repr(value)}; expected an object.")
    return value


def _job(name: str, values: Any) -> tuple[str, ...]:
    try:
        return _addresses(values)
    except ConfigError as error:
        raise ConfigError(f"in the job {name!r}: {error}") from error


def _index(value: Any) -> int:
    # Some schedulers write the index as a string.
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"the index of 'task' is {value!r}; expected a number, 0 or more.") from None
