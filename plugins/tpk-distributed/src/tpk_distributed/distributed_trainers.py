"""Named trainers: each is a `tpk.SingleCostTrainer` with a strategy of several processes.

All of them have the options `precision`, `xla` and `steps_per_run` of `tpk.TowerTrainer`, and `average`: by default,
the gradients of all towers of all processes are averaged. So with batches of the same size, the learning rate is the
same as for a single tower on their concatenation. With ``average=False``, gradients are summed. To average within a
worker and sum over workers, as tensorpack's `DistributedTrainerReplicated` does, use ``average=False``, and divide the
learning rate by the number of devices of a worker.
"""

from __future__ import annotations

from typing import Any

import tpk
from tpk.graph.devices import Devices
from tpk.plugin import also_spelled
from tpk.strategies import DEVICE_SPELLINGS, GPU_PREFETCH


@also_spelled(
    DEVICE_SPELLINGS, use_nccl="write communication='nccl' or communication='ring'.", gpu_prefetch=GPU_PREFETCH
)
class CollectiveTrainer(tpk.SingleCostTrainer):
    """Trains in several processes, whose gradients TensorFlow all-reduces. See `CollectiveStrategy`.

    Args:
        devices: the devices of this process: a number, indices, or device strings.
        cluster: the processes: a `Cluster`, or a mapping with the structure of TF_CONFIG; None to read it from the
            environment.
        communication: how gradients are sent between processes: ``auto``, ``ring``, ``nccl`` or ``shared_memory``; see
            `CollectiveStrategy`.
        average: whether the gradients of all towers of all processes are averaged instead of summed; see the module.
        sync_variables: as for `tpk.SyncMultiGPUTrainerReplicated`, over the devices of this process; then all processes
            get the values of the chief.
    """

    def __init__(
        self,
        devices: Devices = None,
        cluster: Any = None,
        communication: str = "auto",
        average: bool = True,
        sync_variables: str | None = "broadcast",
        precision: str = "float32",
        xla: bool = False,
        steps_per_run: int = 1,
    ) -> None:
        options = {"communication": communication, "average": average, "sync_variables": sync_variables}
        strategy = tpk.use("collective", devices=devices, cluster=cluster, **options)
        super().__init__(strategy, precision, xla, steps_per_run)


class _TrainerWithServers(tpk.SingleCostTrainer):
    """A trainer whose variables are on parameter servers."""

    strategy_name: str

    def __init__(
        self,
        devices: Devices = None,
        cluster: Any = None,
        average: bool = True,
        precision: str = "float32",
        xla: bool = False,
        steps_per_run: int = 1,
    ) -> None:
        strategy = tpk.use(self.strategy_name, devices=devices, cluster=cluster, average=average)
        super().__init__(strategy, precision, xla, steps_per_run)


_with_spellings = also_spelled({**DEVICE_SPELLINGS, "server": "cluster"}, gpu_prefetch=GPU_PREFETCH)


@_with_spellings
class DistributedReplicatedTrainer(_TrainerWithServers):
    """Trains synchronously in several workers, with parameter servers. See `DistributedReplicatedStrategy`.

    Args:
        devices: the devices of this worker: a number, indices, or device strings.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or the
            `tf.compat.v1.train.Server` of this process; None to read it from the environment.
        average: whether the gradients of all towers of all workers are averaged instead of summed; see the module.
    """

    strategy_name = "distributed_replicated"


@_with_spellings
class DistributedParameterServerTrainer(_TrainerWithServers):
    """Trains in several workers that do not wait for each other. See `DistributedParameterServerStrategy`.

    Args:
        devices: the devices of this worker: a number, indices, or device strings.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or the
            `tf.compat.v1.train.Server` of this process; None to read it from the environment.
        average: whether the gradients of the towers of this worker are averaged instead of summed; see the module.
    """

    strategy_name = "distributed_parameter_server"
