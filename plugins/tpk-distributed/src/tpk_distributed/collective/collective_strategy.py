"""Several processes whose gradients are all-reduced by TensorFlow's collective operations."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_one_of
from tpk.errors import ConfigError
from tpk.graph.devices import Devices, add_logical_devices, is_gpu, parts_of_one_gpu
from tpk.plugin import also_spelled
from tpk.session import NewSessionCreator, SessionCreator
from tpk.strategies import DEVICE_SPELLINGS, GPU_PREFETCH, MultiProcessStrategy
from tpk_distributed.cluster import WORKER, Cluster, as_cluster, device_of
from tpk_distributed.cluster_strategy import ClusterStrategy, joined
from tpk_distributed.collective.collective_ops import COMPRESSIONS, LEAST_SHARED_BYTES, Collectives
from tpk_distributed.collective.shared_memory import SharedMemory, share_memory
from tpk_distributed.tensorflow_server import SharedSession
from tpk_distributed.timeouts import Timeouts

logger = logging.getLogger(f"tpk.{__name__}")

COMMUNICATIONS = ("auto", "ring", "nccl", "shared_memory")


@also_spelled(
    DEVICE_SPELLINGS,
    use_nccl="write communication='nccl' for True, and communication='ring' for False.",
    gpu_prefetch=GPU_PREFETCH,
)
class CollectiveStrategy(ClusterStrategy, MultiProcessStrategy):
    """A replica of the whole model on each device of each process; TensorFlow all-reduces the gradients.

    Each process runs the same script, and gets the addresses of the others from TF_CONFIG, SLURM or `cluster`.
    Gradients are averaged within each process first, and then over processes, between TensorFlow's gRPC servers; no
    other package is needed. All replicas stay identical, bit by bit.

    If another process dies, does not answer, or ends its training early, this process ends with a `PeerError` that
    names it. If it is slow, this process waits and logs that it does.

    Args:
        devices: the devices of this process: a count, indices, or device strings.
        cluster: a `Cluster`, or a mapping with the structure of TF_CONFIG; by default it is read from the environment.
        communication: how gradients are sent between processes. ``ring``: over gRPC. ``nccl``: between GPUs.
            ``shared_memory``: packs of 4 MiB or more, between processes of one host whose gradients are on CPUs and not
            compressed; with two processes it computes the same bits as the ring, and it needs additional memory of the
            size of the gradients. ``auto``: ``nccl`` on GPUs, otherwise ``shared_memory`` if possible, otherwise
            ``ring``.
        shard_data: let each process take only its share of the data, instead of all data that it is given.
        pack_bytes: gradients are sent between processes in packs of up to this many bytes.
        compression: ``"fp16"`` or ``"bf16"`` sends gradients in half precision, which is half the bytes; with
            ``"fp16"``, a value above 65504 becomes infinite. None: no compression.
        mode: how gradients are reduced within the process; see `ReplicatedStrategy`.
        sync_variables: synchronization over the devices of this process, as in `ReplicatedStrategy`; then the chief's
            values are sent to all processes.
        average: average the gradients of all towers of all processes. With batches of the same size, this equals
            training one tower on their concatenation, with the same learning rate. If False, the gradients are summed,
            which has the effect of multiplying the learning rate by the number of all towers.
        timeouts: how long to wait for other processes: a `Timeouts`, or a mapping with some of its fields.
        server_config: the `tf.compat.v1.ConfigProto` of TensorFlow's server, which sets threads and GPU memory instead
            of the config of the session.

    Raises:
        ConfigError: if an option is invalid, or no cluster is configured.

    Example:
        ```python
        # tpk launch -n 2 script.py
        trainer = tpk.SingleCostTrainer(tpk.use("collective", devices=2))
        ```
    """

    def __init__(
        self,
        devices: Devices = None,
        cluster: Cluster | dict[str, Any] | None = None,
        communication: str = "auto",
        shard_data: bool = True,
        pack_bytes: int = 32 * 2**20,
        compression: str | None = None,
        mode: str | None = "auto",
        sync_variables: str | None = "broadcast",
        average: bool = True,
        timeouts: Timeouts | Mapping[str, float] | None = None,
        server_config: Any = None,
    ) -> None:
        MultiProcessStrategy.__init__(
            self, devices, mode, sync_variables=sync_variables, shard_data=shard_data, average=average
        )
        ClusterStrategy.__init__(self, as_cluster(cluster), timeouts, server_config)
        if self.cluster.job != WORKER:
            raise ConfigError(
                f"this process is {self.cluster.name}, but strategy "
                "'collective' has no parameter servers. Start workers only, or use 'distributed_replicated'."
            )
        self._communication = check_communication(communication, self.devices[0])
        self._collective_pack_bytes = pack_bytes
        check_one_of(self, COMPRESSIONS, compression=compression)
        self._compression = compression
        self._collectives: Collectives | None = None
        self._memory: SharedMemory | None = None
        if communication == "shared_memory" and compression is not None:
            raise ConfigError(
                f"communication 'shared_memory' and compression={compression!r} exclude each other: between processes "
                "of one host, compression costs more time than it saves. Leave one of them out."
            )

    def describe(self) -> dict[str, Any]:
        """Return the options that must be the same in all processes."""
        return {
            **super().describe(),
            "communication": self._communication,
            "compression": self._compression,
            "pack_bytes": self._collective_pack_bytes,
        }

    def server_config(self, config: Any) -> Any:
        """Return `config` with the devices of this process, and the leader of the collective operations."""
        return self._with_leader(add_logical_devices(config, self.devices))

    def join(self) -> None:
        """Start TensorFlow's server of this process, and wait for the servers of the others.

        Raises:
            ConfigError: if the port is in use.
            PeerError: if some of the others do not start in time.
        """
        if self.world_size == 1:
            self.unused_hooks = ("before_run", "after_run")
            return
        super().join()
        try:
            self._memory = self._share_memory()
        except BaseException:
            self.leave()
            raise
        self._collectives = Collectives(
            self.rank,
            self.world_size,
            self.server.trainings,
            "ring" if self._communication == "shared_memory" else self._communication,
            self._collective_pack_bytes,
            self._compression,
            self.average,
            self._memory,
        )

    def leave(self) -> None:
        """Leave the other processes, and close the shared memory."""
        super().leave()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _share_memory(self) -> SharedMemory | None:
        can_be = not is_gpu(self.devices[0]) and self._compression is None
        # All processes must call this, even if their options differ; that is reported later.
        memory = share_memory(self.process_group, can_be and self._communication in ("auto", "shared_memory"))
        if memory is None and self._communication == "shared_memory":
            raise ConfigError(
                "communication 'shared_memory' needs processes of one user on one Linux host, with the same options; "
                f"this does not hold for all {self.world_size} processes. Use 'auto'."
            )
        if memory is not None:
            logger.info("gradients of %d MiB or more are sent through shared memory", LEAST_SHARED_BYTES >> 20)
        return memory

    def session_config(self, config: Any) -> Any:
        """Return `config` for a session that uses only the devices of this process."""
        config = super().session_config(config)
        if self.world_size == 1:
            return config
        config = self._with_leader(config)
        config.device_filters.append(device_of(WORKER, self.rank))
        config.isolate_session_state = True
        # Unlike a ring, NCCL waits forever if processes begin with different operations.
        config.experimental.collective_deterministic_sequential_execution = self._communication == "nccl"
        return config

    def session_creator(self, config: Any) -> SessionCreator:
        """Return the creator of a session, on TensorFlow's server of this process if there are several processes."""
        return NewSessionCreator("", config) if self.world_size == 1 else super().session_creator(config)

    def reduce_over_processes(self, tensors: Sequence[Any]) -> list[Any]:
        """Add the all-reduces to the graph."""
        return joined(self._collectives).reduce(tensors)

    def sum_over_processes(self, tensor: Any) -> Any:
        """Add the all-reduce to the graph, on the first device of the process."""
        with tf.device(self.devices[0]):
            return joined(self._collectives).sum(tensor)

    def ops_of_first_step(self) -> list[Any]:
        """Return the op by which the processes meet in the first step, even if that step reduces no gradients.

        TensorFlow numbers the steps of a graph with collective operations. Each process asks the first process for the
        current number in its own first step. If the first process were some steps ahead then, the numbers would never
        match.
        """
        if self.world_size == 1:
            return []
        with tf.device("/cpu:0"), tf.name_scope("first_step"):
            have_met = tf.compat.v1.Variable(
                False, trainable=False, use_resource=True, collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
            )

            def meet() -> Any:
                with tf.control_dependencies([self.sum_over_processes(tf.ones([]))]):
                    return tf.group(have_met.assign(True, read_value=False))

            return [tf.cond(have_met.read_value(), tf.no_op, meet).op]

    def broadcast_from_chief(self, variables: Sequence[Any]) -> Any:
        """Return the op that assigns the chief's values in all processes."""
        return joined(self._collectives).broadcast(variables)

    def after_restore(self, sess: Any) -> None:
        """Copy the chief's variables to all processes, and the first tower's to all devices.

        Raises:
            ConfigError: if the session is not on TensorFlow's server of this process.
            PeerError: if another process is missing.
        """
        if self.world_size > 1 and not isinstance(sess, SharedSession):
            raise ConfigError(
                f"strategy 'collective' needs a session on the server of this process, {self.server.target}, but it is "
                f"on {tf.compat.as_text(sess.sess_str) or 'none'}. Pass session_config=<ConfigProto> instead of a "
                "session_creator."
            )
        with self._waiting("broadcast", sess):
            super().after_restore(sess)

    def synchronize(self, sess: Any) -> None:
        """Synchronize non-trainable variables over devices and over processes.

        Raises:
            PeerError: if another process is missing.
        """
        with self._waiting("synchronization", sess):
            super().synchronize(sess)

    def _waiting(self, kind: str, sess: Any) -> AbstractContextManager[None]:
        return nullcontext() if self.world_size == 1 else self.heartbeat.waiting(kind, sess)

    def _with_leader(self, config: Any) -> Any:
        adapted = copy.deepcopy(config)
        adapted.experimental.collective_group_leader = device_of(WORKER, 0)
        return adapted


def check_communication(communication: str, device: str) -> str:
    """Return `communication` after checking that it works on a device.

    Args:
        communication: one of `COMMUNICATIONS`.
        device: the device of the gradients of a process.

    Raises:
        ConfigError: if it is unknown, or does not work on the device.
    """
    check_one_of("strategy", COMMUNICATIONS, communication=communication)
    if communication == "nccl" and not is_gpu(device):
        raise ConfigError(f"communication 'nccl' needs GPUs, but the first device is {device!r}. Use 'ring'.")
    if communication == "nccl" and parts_of_one_gpu([device]):
        raise ConfigError(
            f"communication 'nccl' needs a separate GPU for each process, but {device!r} is only a part of a physical "
            "GPU. Use 'ring'."
        )
    if communication == "shared_memory" and is_gpu(device):
        raise ConfigError(f"communication 'shared_memory' needs CPUs, but the first device is {device!r}. Use 'auto'.")
    return communication
