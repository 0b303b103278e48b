"""Trainers with different kinds of replication.

Multi-device trainers use GPUs. Without GPUs, each tower runs on a logical CPU device, and a warning is logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import tensorflow as tf
from tpk_distributed import DistributedParameterServerStrategy, DistributedReplicatedStrategy

import tpk
from tpk.argument_checks import check_one_of
from tpk.graph import Objective, resolve_devices
from tpk.plugin import get_catalog
from tpk.strategies import Strategy, Tower
from tpk_tensorpack.graph_builder.training import as_gpus
from tpk_tensorpack.graph_builder.utils import as_mode
from tpk_tensorpack.input_source import FeedInput, QueueInput
from tpk_tensorpack.train.older import takes_config
from tpk_tensorpack.train.tower import SingleCostTrainer

__all__ = [
    "AsyncMultiGPUTrainer",
    "BytePSTrainer",
    "DistributedTrainerParameterServer",
    "DistributedTrainerReplicated",
    "HorovodTrainer",
    "NoOpTrainer",
    "QueueInputTrainer",
    "SimpleTrainer",
    "SyncMultiGPUTrainer",
    "SyncMultiGPUTrainerParameterServer",
    "SyncMultiGPUTrainerReplicated",
]


class SimpleTrainer(SingleCostTrainer):
    """Train on one device, and feed the data flow in each step."""

    default_input = FeedInput


class QueueInputTrainer(SimpleTrainer):
    """Train on one device, with the data flow in a queue that a thread fills."""

    default_input = QueueInput


class NoOpTrainer(SimpleTrainer):
    """Train nothing: steps run only the fetches of callbacks."""

    def run_step(self) -> None:
        """Run the fetches of callbacks."""
        self.hooked_sess.run([])


@takes_config
class MultiGPUTrainer(SingleCostTrainer):
    """Base class of trainers on several GPUs of one process.

    Args:
        gpus: the number of GPUs, or a list of GPU numbers.

    Raises:
        ConfigError: `gpus` is neither.
    """

    def __init__(self, gpus: int | Sequence[int]) -> None:
        super().__init__()
        self.devices = as_gpus(type(self).__name__, "gpus", gpus)


@takes_config
class SyncMultiGPUTrainerReplicated(MultiGPUTrainer):
    """Train a full replicate on each GPU, with all-reduced gradients. See `tpk.ReplicatedStrategy`.

    The variables of the first tower have the names from the script, and are saved; the other towers have local
    variables named ``tower1/…``.

    Args:
        gpus: the number of GPUs, or a list of GPU numbers.
        average: whether to average the gradients instead of adding them up.
        mode: the all-reduce algorithm: ``"nccl"``, ``"cpu"``, ``"gpu"``, ``"hierarchical"``; ``"collective"`` and None
            let tpk choose. The results are equal up to rounding. Without GPUs, all modes run on CPUs.

    Attributes:
        BROADCAST_EVERY_EPOCH: whether to copy the first tower's non-trainable variables to all towers after each epoch.

    Raises:
        ConfigError: an argument is invalid.

    Example:
        ```python
        launch_train_with_config(config, SyncMultiGPUTrainerReplicated(4))
        ```
    """

    BROADCAST_EVERY_EPOCH = True

    def __init__(self, gpus: int | Sequence[int], average: bool = True, mode: str | None = None) -> None:
        super().__init__(gpus)
        self._average = average
        self._mode = mode
        as_mode(mode)

    @cached_property
    def strategy(self) -> Strategy:
        """The replication strategy."""
        return ReplicatedStrategy(
            self.devices,
            mode=as_mode(self._mode),
            average=self._average,
            sync_variables="broadcast" if self.BROADCAST_EVERY_EPOCH else None,
        )


@takes_config
class SyncMultiGPUTrainerParameterServer(MultiGPUTrainer):
    """Train on several GPUs with shared variables; the mean gradients are applied once.

    See `tpk.ParameterServerStrategy`.

    Args:
        gpus: the number of GPUs, or a list of GPU numbers.
        ps_device: the placement of the variables: ``"cpu"``, or ``"gpu"`` for the least loaded GPU; None means
            ``"gpu"`` for up to two GPUs, otherwise ``"cpu"``.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(self, gpus: int | Sequence[int], ps_device: str | None = None) -> None:
        super().__init__(gpus)
        if ps_device is None:
            ps_device = "gpu" if len(self.devices) <= 2 else "cpu"
        check_one_of(self, ("cpu", "gpu"), ps_device=ps_device)
        self._strategy = tpk.ParameterServerStrategy(self.devices, ps_device)


def SyncMultiGPUTrainer(gpus: int | Sequence[int]) -> SingleCostTrainer:
    """Return the recommended trainer for synchronous training on several GPUs.

    Args:
        gpus: the number of GPUs, or a list of GPU numbers.
    """
    return SyncMultiGPUTrainerParameterServer(gpus, ps_device="cpu")


@takes_config
class AsyncMultiGPUTrainer(MultiGPUTrainer):
    """Train asynchronously on several GPUs with shared variables: in a step, each tower updates them once.

    The towers do not wait for each other within a step. A `StagingInput` around the input is removed.

    Args:
        gpus: the number of GPUs, or a list of GPU numbers.
        scale_gradient: whether to divide gradients by the number of towers.

    Raises:
        ConfigError: `gpus` is neither.
    """

    def __init__(self, gpus: int | Sequence[int], scale_gradient: bool = True) -> None:
        super().__init__(gpus)
        self._strategy = AsyncStrategy(self.devices, scale_gradient)

    def _prepare_input(self, source: tpk.InputSource) -> tpk.InputSource:
        if isinstance(source, tpk.StagingInput):
            source = source.source
        return super()._prepare_input(source)


@takes_config
class DistributedTrainerBase(MultiGPUTrainer):
    """Base class of trainers on several workers with parameter servers.

    In the process of a parameter server, setting up the graph instead serves the workers until they are done.

    Args:
        gpus: the number of GPUs of this worker, or a list of GPU numbers.
        server: the `tf.train.Server` of this process.

    Raises:
        ConfigError: an argument is invalid, or the cluster has no parameter server.

    Example:
        ```python
        cluster = tf.train.ClusterSpec({"ps": ["host0:2222"], "worker": ["host0:2223", "host1:2222"]})
        server = tf.train.Server(cluster, job_name=args.job, task_index=args.task)
        launch_train_with_config(config, DistributedTrainerReplicated(4, server))
        ```
    """

    def __init__(self, gpus: int | Sequence[int], server: Any) -> None:
        super().__init__(gpus)
        if not isinstance(server, tf.compat.v1.train.Server):
            raise tpk.ConfigError(f"{type(self).__name__}(server={server!r}): expected the tf.train.Server")
        self.server = server
        self.job_name = server.server_def.job_name


@takes_config
class DistributedTrainerReplicated(DistributedTrainerBase):
    """Train synchronously on several workers: average over a worker's GPUs, add up over workers.

    See `tpk_distributed.DistributedReplicatedStrategy`.

    Args:
        gpus: the number of GPUs of this worker, or a list of GPU numbers.
        server: the `tf.train.Server` of this process.
    """

    def __init__(self, gpus: int | Sequence[int], server: Any) -> None:
        super().__init__(gpus, server)
        self._strategy = SumOverWorkersStrategy(devices=self.devices, cluster=server, shard_data=False)


@takes_config
class DistributedTrainerParameterServer(DistributedTrainerBase):
    """Train asynchronously on several workers; each averages over its GPUs.

    See `tpk_distributed.DistributedParameterServerStrategy`.

    Args:
        gpus: the number of GPUs of this worker, or a list of GPU numbers.
        server: the `tf.train.Server` of this process.
        caching_device: where this worker caches the values of variables during a step: ``"cpu"``, or ``"gpu"`` for its
            first GPU.
    """

    def __init__(self, gpus: int | Sequence[int], server: Any, caching_device: str = "cpu") -> None:
        super().__init__(gpus, server)
        check_one_of(self, ("cpu", "gpu"), caching_device=caching_device)
        devices = resolve_devices(self.devices)
        where = devices[0] if caching_device == "gpu" else "/cpu:0"
        self._strategy = DistributedParameterServerStrategy(devices, server, where, shard_data=False)


class HorovodTrainer(SingleCostTrainer):
    """Train in several processes with one GPU each, with gradients reduced by Horovod; needs ``tpk-horovod``.

    Each process trains on its whole data flow, so each must shuffle with a different seed. Start the processes with
    ``horovodrun -np 4 python -m tpk_tensorpack script.py``.

    Args:
        average: whether to average the gradients instead of adding them up.
        compression: None, or ``hvd.Compression.fp16``.

    Attributes:
        hvd: the module `horovod.tensorflow`.
        BROADCAST_EVERY_EPOCH: whether to copy the chief's non-trainable variables to all processes after each epoch.

    Raises:
        PluginError: ``tpk-horovod`` or Horovod is not installed; the message says how to install it.
        ConfigError: the compression is unknown.
    """

    BROADCAST_EVERY_EPOCH = True

    def __init__(self, average: bool = True, compression: Any = None) -> None:
        super().__init__()
        horovod = tpk.use(
            "horovod",
            average=average,
            compression=_compression(compression),
            shard_data=False,
            sync_variables="broadcast" if self.BROADCAST_EVERY_EPOCH else None,
        )
        self._strategy = get_catalog().resolve("strategy", horovod)
        # A script may ask for the rank immediately.
        self.join()
        self.hvd = self._strategy._hvd

    def mpi_enabled(self) -> bool:
        """Whether Horovod communicates by MPI."""
        return bool(self.hvd.mpi_enabled())


class BytePSTrainer(HorovodTrainer):
    """Raise an error: BytePS does not support current versions of TensorFlow.

    Args:
        average: ignored.
    """

    def __init__(self, average: bool = True) -> None:
        raise tpk.ConfigError(
            "BytePSTrainer: BytePS is for TensorFlow 1 and early 2, and is not maintained. Use HorovodTrainer, or "
            "tpk's strategy 'collective', which needs no other package"
        )


def _compression(given: Any) -> str | None:
    """Return the name of Horovod's compression in ``tpk-horovod``."""
    name = given if given is None or isinstance(given, str) else getattr(given, "__name__", repr(given))
    known = {None: None, "NoneCompressor": None, "fp16": "fp16", "FP16Compressor": "fp16"}
    if name not in known:
        raise tpk.ConfigError(f"HorovodTrainer(compression={given!r}): expected None or hvd.Compression.fp16")
    return known[name]


class ReplicatedStrategy(tpk.ReplicatedStrategy):
    """Put non-slot variables of optimizers, such as Adam's powers of its decay rates, under ``apply_gradients/…``."""

    def optimizer_scope(self, index: int) -> AbstractContextManager[Any]:
        """Return the name scope for the non-slot variables of a tower's optimizer."""
        return super().optimizer_scope(index) if index else tf.name_scope("apply_gradients")


class AsyncStrategy(tpk.AsyncStrategy):
    """Update the variables once for each tower in a step, without an order; see `AsyncMultiGPUTrainer`."""

    def ops_of_step(self, ops: list[Any]) -> list[Any]:
        """Return one op for the updates of all towers."""
        return [tf.group(*ops, name="train_ops_of_towers")]

    def optimizer_scope(self) -> AbstractContextManager[Any]:
        """Return the name scope for the non-slot variables of the optimizer."""
        return tf.name_scope("async_apply_gradients/")


class SumOverWorkersStrategy(DistributedReplicatedStrategy):
    """Average gradients over the towers of a worker, and add them up over the workers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(average=False, **options)

    def reduce_over_towers(
        self, objective: Objective, optimizer: Any, towers: Sequence[Tower]
    ) -> list[tuple[Any, Any]]:
        """Return the mean gradients of this worker's towers, with the variables of the first one."""
        sums = super().reduce_over_towers(objective, optimizer, towers)
        return [(tf.math.scalar_mul(1.0 / len(towers), gradient), variable) for gradient, variable in sums]
