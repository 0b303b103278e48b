"""The strategy ``horovod``: several processes whose gradients are all-reduced by Horovod."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import tensorflow as tf
from tpk_distributed import Cluster, Timeouts, as_cluster, as_timeouts

import tpk
from tpk.plugin import also_spelled
from tpk.strategies import DEVICE_SPELLINGS, GPU_PREFETCH, MultiProcessStrategy, ProcessGroup, SingleProcess
from tpk_horovod import bootstrap
from tpk_horovod.connections import end_connections, open_connections
from tpk_horovod.elastic import callbacks_of_round, is_elastic
from tpk_horovod.failures import PeerErrors, Peers
from tpk_horovod.library import load_horovod
from tpk_horovod.ops import broadcast_from_chief, reduce_over_processes, sum_over_processes
from tpk_horovod.process_group import HorovodProcessGroup

logger = logging.getLogger(f"tpk.{__name__}")

_COMPRESSIONS = {None: "none", "fp16": "fp16"}

_joins = itertools.count()
"""Numbers the training runs of this process, so that they do not share notes on the board."""


@also_spelled(
    DEVICE_SPELLINGS, op="write average=False for sums, and adasum=True for Adasum.", gpu_prefetch=GPU_PREFETCH
)
class HorovodStrategy(MultiProcessStrategy):
    """One or more devices in each of several processes; Horovod averages or sums their gradients.

    Each device of each process has a replica of the whole model and takes its own datapoint. The gradients are averaged
    over the devices of a process, then over the processes, and each replica applies them, so all replicas stay
    identical, bit by bit. The processes are started by ``tpk launch``, `horovodrun`, MPI, SLURM or Kubernetes.

    If the script has initialized Horovod itself, the strategy uses it as it is, and does not shut it down.

    Args:
        devices: the devices of this process: a count, indices, or device strings. The default is one device: the GPU
            with the number `local_rank`, or a CPU device on hosts without GPUs.
        compression: ``"fp16"`` sends gradients in half precision, where values above 65504 become infinite; None does
            not compress them.
        average: whether to average the gradients of all towers of all processes, so that the learning rate is the same
            as for one tower on the concatenated batches, if these have the same size. Otherwise the gradients are
            summed; for plain SGD, this multiplies the learning rate by the total number of towers.
        adasum: combine the gradients of the processes with Adasum instead of averaging them. Adasum adds gradients
            that are orthogonal and averages gradients that are parallel, so the learning rate need not be scaled
            (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020). It needs MPI, and the number
            of processes must be a power of two.
        shard_data: whether each process gets a share of the data; otherwise each uses all data that it is given.
        timeouts: a `tpk_distributed.Timeouts`, or a mapping with some of its fields: how long to wait for other
            processes before this process ends with a `PeerError`. Dead processes are detected at once.
        fusion_bytes: the size of the buffers in which Horovod combines gradients; None for Horovod's default of
            128 MiB; 0 to send each gradient separately. The combinations depend on timing, so with three or more
            processes the rounding of sums varies between runs, unless this is 0.
        sync_variables: as for `tpk.ReplicatedStrategy`, over the devices of this process; then all processes get the
            chief's values.
        cluster: the processes that train together, if they are not given by Horovod's environment, TF_CONFIG or SLURM:
            a `tpk_distributed.Cluster`, or a mapping with the structure of TF_CONFIG.

    Raises:
        ConfigError: if an option is invalid.

    Example:
        ```python
        # tpk launch -n 2 script.py
        tpk.launch_train_with_config(config, tpk.use("horovod", compression="fp16"))
        ```
    """

    def __init__(
        self,
        devices: int | str | Sequence[int | str] | None = None,
        *,
        compression: str | None = None,
        average: bool = True,
        adasum: bool = False,
        shard_data: bool = True,
        timeouts: Timeouts | Mapping[str, float] | None = None,
        fusion_bytes: int | None = None,
        sync_variables: str | None = "broadcast",
        cluster: Any = None,
    ) -> None:
        super().__init__(
            1 if devices is None else devices,
            sync_variables=sync_variables,
            shard_data=shard_data,
            average=average,
        )
        if compression not in _COMPRESSIONS:
            raise tpk.ConfigError(f"horovod: compression={compression!r}: expected None or 'fp16'.")
        if adasum and not average:
            raise tpk.ConfigError("horovod: average=False and adasum=True are mutually exclusive. Choose one of them.")
        if fusion_bytes is not None and (
            isinstance(fusion_bytes, bool) or not isinstance(fusion_bytes, int) or fusion_bytes < 0
        ):
            raise tpk.ConfigError(f"horovod: fusion_bytes={fusion_bytes!r}: expected a number of bytes, or None.")
        self._takes_default_device = devices is None
        self._compression = compression
        self._adasum = adasum
        self._timeouts = as_timeouts(timeouts)
        self._fusion_bytes = fusion_bytes
        self._cluster = cluster
        self._gpu: int | None = None
        self._hvd: Any = None
        self._process_group: ProcessGroup = SingleProcess()
        self._peers: Peers | None = None
        self._local_rank, self._local_size = 0, 1
        self._joined = ExitStack()
        self._shutting_down = threading.Lock()
        self._connections: set[int] = set()

    def describe(self) -> dict[str, Any]:
        """Return the options that affect the gradients."""
        return {**super().describe(), "compression": self._compression, "adasum": self._adasum}

    @property
    def rank(self) -> int:
        """The rank of this process; 0 before `join`."""
        return self._process_group.rank

    @property
    def world_size(self) -> int:
        """The number of processes; 1 before `join`."""
        return self._process_group.world_size

    @property
    def local_rank(self) -> int:
        """The rank of this process on its host; 0 before `join`."""
        return self._local_rank

    @property
    def local_size(self) -> int:
        """The number of processes on this host; 1 before `join`."""
        return self._local_size

    @property
    def process_group(self) -> ProcessGroup:
        """The process group, which uses Horovod's `allgather`."""
        return self._process_group

    @property
    def is_reproducible(self) -> bool:  # type: ignore[override]
        """Whether the rounding of sums is fixed: up to two processes, or each gradient is sent separately."""
        return self.world_size <= 2 or self._fusion_bytes == 0

    def join(self) -> None:
        """Initialize Horovod, together with all other processes.

        Raises:
            PluginImportError: if Horovod is missing or unusable.
            ConfigError: if the cluster is unknown, or does not fit the options.
            PeerError: if the others do not arrive in time.
        """
        hvd = self._hvd = load_horovod()
        with ExitStack() as joined:
            # In elastic mode, a process that joins later does not know the number of rounds; each has an empty board.
            number = 0 if is_elastic() else next(_joins)
            cluster = None if hvd.is_initialized() else self._initialize(hvd, number, joined)
            self._check(hvd)
            board = bootstrap.Board.of_environment(hvd.rank(), hvd.size(), number, cluster)
            peers = Peers(hvd.rank(), self._timeouts, self._shut_down, board)
            process_group = HorovodProcessGroup(hvd, peers)
            joined.callback(process_group.close)
            joined.callback(peers.close)
            self._joined = joined.pop_all()
        self._peers, self._process_group = peers, process_group
        self._local_rank, self._local_size = hvd.local_rank(), hvd.local_size()
        logger.info(
            "rank %d of %d; %d of %d on this host", self.rank, self.world_size, self.local_rank, self.local_size
        )

    def leave(self) -> None:
        """Shut Horovod down, unless the script initialized it; this also ends processes that are still running."""
        self._joined.close()

    def session_config(self, config: Any) -> Any:
        """Return `config` with only the GPU of this process visible, unless the devices were given."""
        if self._gpu is not None and not config.gpu_options.visible_device_list:
            own = tf.compat.v1.ConfigProto()
            own.CopyFrom(config)
            own.gpu_options.visible_device_list = str(self._gpu)
            config = own
        return super().session_config(config)

    def reduce_over_processes(self, tensors: Sequence[Any]) -> list[Any]:
        """Add ops that average or sum gradients over all processes, bit-identical in each process."""
        compression = getattr(self._hvd.Compression, _COMPRESSIONS[self._compression])
        op = self._hvd.Adasum if self._adasum else self._hvd.Average if self.average else self._hvd.Sum
        return reduce_over_processes(self._hvd, tensors, compression, op)

    def sum_over_processes(self, tensor: Any) -> Any:
        """Add an op that sums a tensor over all processes, bit-identical in each process."""
        return sum_over_processes(self._hvd, tensor)

    def broadcast_from_chief(self, variables: Sequence[Any]) -> Any:
        """Return an op that assigns the chief's values of variables in all processes."""
        return broadcast_from_chief(self._hvd, variables)

    def after_restore(self, sess: Any) -> None:
        """Copy the chief's variables to all processes, and the first device's variables to all devices.

        Raises:
            PeerError: if a process has died or does not answer in time.
        """
        with self._peers.waiting() if self._peers is not None else nullcontext():
            super().after_restore(sess)

    def callbacks(self) -> list[tpk.Callback]:
        """Return the callbacks that the strategy needs."""
        own = [PeerErrors(self._peers)] if self._peers is not None and self.world_size > 1 else []
        return [*own, *callbacks_of_round(), *super().callbacks()]

    def _initialize(self, hvd: Any, number: int, joined: ExitStack) -> Cluster | None:
        """Initialize Horovod, and register the cleanup in `joined`.

        Returns:
            The cluster; None if the environment configures Horovod itself.
        """
        settings = bootstrap.time_limits(hvd, self._timeouts, is_elastic())
        if self._fusion_bytes is not None:
            settings["HOROVOD_FUSION_THRESHOLD"] = str(self._fusion_bytes)
        joined.enter_context(bootstrap.environment(settings))
        cluster = None
        if not bootstrap.is_started_by_horovod(hvd):
            cluster = self._find_cluster()
            bootstrap.check_addresses(cluster)
            joined.enter_context(bootstrap.environment(bootstrap.placement(cluster)))
            joined.enter_context(bootstrap.rendezvous_server(cluster))
        if not is_elastic():
            rank, size = (int(os.environ.get(f"HOROVOD_{name}", "0")) for name in ("RANK", "SIZE"))
            board = bootstrap.Board.of_environment(rank, size, number, cluster)
            if board is not None:
                board.meet(self._timeouts)
        before = open_connections()
        hvd.init()
        self._connections = open_connections() - before
        joined.callback(self._shut_down)
        return cluster

    def _shut_down(self) -> None:
        with self._shutting_down:
            self._hvd.shutdown()
            if is_elastic():  # This process goes on, so that those who still wait for it would not notice.
                end_connections(self._connections)

    def _find_cluster(self) -> Cluster:
        try:
            cluster = as_cluster(self._cluster)
        except tpk.ConfigError as error:
            raise tpk.ConfigError(
                f"{error} Or start the processes with `horovodrun -np 2 python script.py`."
            ) from error
        if cluster.job != "worker":
            raise tpk.ConfigError(
                f"this process is a {cluster.job!r} of its cluster, but with Horovod all processes are workers. Start "
                "only workers."
            )
        return cluster

    def _check(self, hvd: Any) -> None:
        size, local_rank = hvd.size(), hvd.local_rank()
        if self._adasum and (not hvd.mpi_enabled() or size & (size - 1)):
            raise tpk.ConfigError(
                "horovod: adasum=True needs MPI and a number of processes that is a power of two, but there are "
                f"{size} processes, and MPI is {'' if hvd.mpi_enabled() else 'not '}in use. Remove adasum."
            )
        if self._takes_default_device:
            self._gpu = _choose_gpu(local_rank)


def _choose_gpu(local_rank: int) -> int | None:
    """Return the GPU of the process with this local rank; None if the host has at most one GPU."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus <= 1:
        return None
    if local_rank >= gpus:
        raise tpk.ConfigError(
            f"this host has {gpus} GPUs, but at least {local_rank + 1} processes. Start one process per GPU, or "
            "set devices= of the strategy."
        )
    return local_rank
