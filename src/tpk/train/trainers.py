"""Named trainers: each is a strategy with the input that suits it.

All of them take `precision` and `xla`, which are those of `TowerTrainer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpk.graph.devices import Devices
from tpk.input_source.base import InputSource
from tpk.input_source.feed import FeedInput
from tpk.plugin.creation import use
from tpk.train.tower_trainer import SingleCostTrainer


class SimpleTrainer(SingleCostTrainer):
    """Trains on one device; a dataflow is fed with each step.

    The simplest there is, and the easiest to debug: data code runs in the training thread.
    """

    def __init__(self, precision: str = "float32", xla: bool = False) -> None:
        super().__init__("single", precision, xla)

    def default_input(self, dataflow: Iterable[Any]) -> InputSource:
        """Return a `FeedInput`."""
        return FeedInput(dataflow)


class QueueInputTrainer(SingleCostTrainer):
    """Trains on one device; a dataflow is put into a queue by a thread, while the step computes."""

    def __init__(self, precision: str = "float32", xla: bool = False) -> None:
        super().__init__("single", precision, xla)


class SyncMultiGPUTrainerReplicated(SingleCostTrainer):
    """Trains a whole replicate on each device; gradients are all-reduced. See `ReplicatedStrategy`.

    Args:
        devices: a count, indices, or device strings; GPUs where there are any, else logical CPU devices.
        mode: how gradients are all-reduced: ``auto``, ``copy``, ``ring``, ``hierarchical`` or ``nccl``.
    """

    def __init__(
        self, devices: Devices = None, mode: str = "auto", precision: str = "float32", xla: bool = False
    ) -> None:
        super().__init__(use("replicated", devices=devices, mode=mode), precision, xla)


class SyncMultiGPUTrainerParameterServer(SingleCostTrainer):
    """Trains on several devices that share the variables; gradients are averaged. See `ParameterServerStrategy`.

    Args:
        devices: a count, indices, or device strings; GPUs where there are any, else logical CPU devices.
        ps_device: where the variables are: ``"gpu"`` distributes them over the devices; ``"cpu"``; None chooses.
    """

    def __init__(
        self,
        devices: Devices = None,
        ps_device: str | None = None,
        precision: str = "float32",
        xla: bool = False,
    ) -> None:
        super().__init__(use("parameter_server", devices=devices, ps_device=ps_device), precision, xla)


SyncMultiGPUTrainer = SyncMultiGPUTrainerParameterServer
"""What graph-mode users call it who do not care where the variables are."""


class AsyncMultiGPUTrainer(SingleCostTrainer):
    """Trains on several devices that share the variables, and do not wait for each other. See `AsyncStrategy`.

    Args:
        devices: a count, indices, or device strings; GPUs where there are any, else logical CPU devices.
        scale_gradient: whether gradients are divided by the number of devices.
    """

    def __init__(
        self,
        devices: Devices = None,
        scale_gradient: bool = True,
        precision: str = "float32",
        xla: bool = False,
    ) -> None:
        super().__init__(use("async", devices=devices, scale_gradient=scale_gradient), precision, xla)


class CollectiveTrainer(SingleCostTrainer):
    """Trains in several processes, whose gradients TensorFlow all-reduces. See `CollectiveStrategy`.

    Args:
        devices: the devices of this process: a count, indices, or device strings.
        cluster: the processes: a `Cluster`, or a mapping with the structure of TF_CONFIG; None to look into the
            environment.
        communication: how gradients travel between processes: ``auto``, ``ring`` or ``nccl``.
    """

    def __init__(
        self,
        devices: Devices = None,
        cluster: Any = None,
        communication: str = "auto",
        precision: str = "float32",
        xla: bool = False,
    ) -> None:
        super().__init__(
            use("collective", devices=devices, cluster=cluster, communication=communication), precision, xla
        )


class DistributedReplicatedTrainer(SingleCostTrainer):
    """Trains in several workers that stay in step, with parameter servers. See `DistributedReplicatedStrategy`.

    Args:
        devices: the devices of this worker: a count, indices, or device strings.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or the
            `tf.compat.v1.train.Server` of this process; None to look into the environment.
    """

    def __init__(
        self, devices: Devices = None, cluster: Any = None, precision: str = "float32", xla: bool = False
    ) -> None:
        super().__init__(use("distributed_replicated", devices=devices, cluster=cluster), precision, xla)


class DistributedParameterServerTrainer(SingleCostTrainer):
    """Trains in several workers that do not wait for each other. See `DistributedParameterServerStrategy`.

    Args:
        devices: the devices of this worker: a count, indices, or device strings.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or the
            `tf.compat.v1.train.Server` of this process; None to look into the environment.
    """

    def __init__(
        self, devices: Devices = None, cluster: Any = None, precision: str = "float32", xla: bool = False
    ) -> None:
        super().__init__(use("distributed_parameter_server", devices=devices, cluster=cluster), precision, xla)
