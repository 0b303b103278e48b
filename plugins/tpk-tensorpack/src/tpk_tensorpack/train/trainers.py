"""Trainers, by how a step is replicated.

Those of several devices are on GPUs. Where there are none, each tower is on a logical CPU device, and a warning in the
log says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import tensorflow as tf

import tpk
from tpk.graph.devices import resolve_devices
from tpk.plugin import get_catalog
from tpk.strategies.base import Strategy
from tpk_tensorpack.graph_builder.training import as_gpus, as_ps_device
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
    """Trains on one device; a data flow is fed with each step."""

    def default_input(self, dataflow: Iterable[Any]) -> tpk.InputSource:
        """Return what feeds the data flow."""
        return FeedInput(dataflow)


class QueueInputTrainer(SimpleTrainer):
    """Trains on one device; a thread puts a data flow into a queue."""

    def default_input(self, dataflow: Iterable[Any]) -> tpk.InputSource:
        """Return what puts the data flow into a queue."""
        return QueueInput(dataflow)


class NoOpTrainer(SimpleTrainer):
    """Trains nothing: its steps run what callbacks ask for, and no more."""

    def run_step(self) -> None:
        """Run what callbacks ask for."""
        self.hooked_sess.run([])


@takes_config
class MultiGPUTrainer(SingleCostTrainer):
    """The base of what trains on the GPUs of a process.

    Args:
        gpus: how many, or a list of their numbers.

    Raises:
        ConfigError: `gpus` is neither.
    """

    def __init__(self, gpus: int | Sequence[int]) -> None:
        super().__init__()
        self.devices = as_gpus(type(self).__name__, "gpus", gpus)


@takes_config
class SyncMultiGPUTrainerReplicated(MultiGPUTrainer):
    """Trains a whole replicate on each GPU; gradients are all-reduced. See `tpk.ReplicatedStrategy`.

    The variables of the first tower are called what the script calls them, and are saved; those of the others are local
    ones, called ``tower1/…``.

    Args:
        gpus: how many, or a list of their numbers.
        average: whether gradients are averaged, else summed up.
        mode: how gradients are all-reduced, up to rounding to the same values: ``"nccl"``, ``"cpu"``, ``"gpu"``,
            ``"hierarchical"``, or None to leave it to tpk. Without GPUs, all of them add up on CPUs.

    Attributes:
        BROADCAST_EVERY_EPOCH: whether all towers get the non-trainable variables of the first one after each epoch.

    Raises:
        ConfigError: an argument is not one of these.

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
        """How a step is replicated."""
        from tpk_tensorpack.train.strategies import ReplicatedStrategy

        return ReplicatedStrategy(
            self.devices,
            mode=as_mode(self._mode),
            average=self._average,
            sync_variables="broadcast" if self.BROADCAST_EVERY_EPOCH else None,
        )


@takes_config
class SyncMultiGPUTrainerParameterServer(MultiGPUTrainer):
    """Trains on several GPUs that share the variables; the means of gradients are applied once.

    See `tpk.ParameterServerStrategy`.

    Args:
        gpus: how many, or a list of their numbers.
        ps_device: where the variables are: ``"cpu"``, or ``"gpu"`` for the least loaded one; None for ``"gpu"`` if
            there are at most two, else ``"cpu"``.

    Raises:
        ConfigError: an argument is not one of these.
    """

    def __init__(self, gpus: int | Sequence[int], ps_device: str | None = None) -> None:
        super().__init__(gpus)
        default = "gpu" if len(self.devices) <= 2 else "cpu"
        self._ps_device = default if ps_device is None else as_ps_device(type(self).__name__, ps_device)

    @cached_property
    def strategy(self) -> Strategy:
        """How a step is replicated."""
        return tpk.ParameterServerStrategy(self.devices, self._ps_device)


def SyncMultiGPUTrainer(gpus: int | Sequence[int]) -> SingleCostTrainer:
    """Return a trainer for several GPUs in step, for those who do not care which.

    Args:
        gpus: how many, or a list of their numbers.
    """
    return SyncMultiGPUTrainerParameterServer(gpus, ps_device="cpu")


@takes_config
class AsyncMultiGPUTrainer(MultiGPUTrainer):
    """Trains on several GPUs that share the variables, and do not wait for each other. See `tpk.AsyncStrategy`.

    A `StagingInput` is left out: each tower takes its data from what is staged.

    Args:
        gpus: how many, or a list of their numbers.
        scale_gradient: whether gradients are divided by the number of towers.

    Raises:
        ConfigError: `gpus` is neither.
    """

    def __init__(self, gpus: int | Sequence[int], scale_gradient: bool = True) -> None:
        super().__init__(gpus)
        self._scale_gradient = scale_gradient

    @cached_property
    def strategy(self) -> Strategy:
        """How a step is replicated."""
        from tpk_tensorpack.train.strategies import AsyncStrategy

        return AsyncStrategy(self.devices, self._scale_gradient)

    def _prepare_input(self, source: tpk.InputSource) -> tpk.InputSource:
        if isinstance(source, tpk.StagingInput):
            source = source.source
        return super()._prepare_input(source)


@takes_config
class DistributedTrainerBase(MultiGPUTrainer):
    """The base of what trains in several workers, with parameter servers.

    A process that is a parameter server serves the workers until they are done, when the graph would be set up.

    Args:
        gpus: how many GPUs this worker has, or a list of their numbers.
        server: the `tf.train.Server` of this process.

    Raises:
        ConfigError: an argument is not one of these, or the cluster has no parameter server.

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


class DistributedTrainerReplicated(DistributedTrainerBase):
    """Trains in several workers in step: averaged over the GPUs of a worker, summed up over the workers.

    See `tpk.DistributedReplicatedStrategy`.

    Args:
        gpus: how many GPUs this worker has, or a list of their numbers.
        server: the `tf.train.Server` of this process.
    """

    @cached_property
    def strategy(self) -> Strategy:
        """How a step is replicated."""
        from tpk_tensorpack.train.strategies import SumOverWorkersStrategy

        return SumOverWorkersStrategy(devices=self.devices, cluster=self.server, shard_data=False)


@takes_config
class DistributedTrainerParameterServer(DistributedTrainerBase):
    """Trains in several workers that do not wait for each other; each averages over its GPUs.

    See `tpk.DistributedParameterServerStrategy`.

    Args:
        gpus: how many GPUs this worker has, or a list of their numbers.
        server: the `tf.train.Server` of this process.
        caching_device: where this worker keeps the values of variables during a step: ``"cpu"``, or ``"gpu"`` for the
            first of its GPUs.
    """

    def __init__(self, gpus: int | Sequence[int], server: Any, caching_device: str = "cpu") -> None:
        super().__init__(gpus, server)
        if caching_device not in ("cpu", "gpu"):
            raise tpk.ConfigError(f"{type(self).__name__}(caching_device={caching_device!r}): expected 'cpu' or 'gpu'")
        self._caching_device = caching_device

    @cached_property
    def strategy(self) -> Strategy:
        """How a step is replicated."""
        devices = resolve_devices(self.devices)
        where = devices[0] if self._caching_device == "gpu" else "/cpu:0"
        return tpk.DistributedParameterServerStrategy(devices, self.server, where, shard_data=False)


class HorovodTrainer(SingleCostTrainer):
    """Trains in several processes with a GPU each, whose gradients Horovod reduces; by the package ``tpk-horovod``.

    Each process trains on all of the data that it is given, so that it has to shuffle by a seed of its own. Start them
    with ``horovodrun -np 4 python -m tpk_tensorpack script.py``.

    Args:
        average: whether gradients are averaged, else summed up.
        compression: None, or ``hvd.Compression.fp16``.

    Attributes:
        hvd: the module `horovod.tensorflow`.
        BROADCAST_EVERY_EPOCH: whether all processes get the chief's non-trainable variables after each epoch.

    Raises:
        PluginError: ``tpk-horovod`` or Horovod is not installed; it says how to.
        ConfigError: there is no such compression.
    """

    BROADCAST_EVERY_EPOCH = True

    def __init__(self, average: bool = True, compression: Any = None) -> None:
        super().__init__()
        self._average = average
        self._compression = _compression(compression)
        # A script may ask for the rank at once.
        self.join()
        self.hvd = self.strategy._hvd  # type: ignore[attr-defined]

    @cached_property
    def strategy(self) -> Strategy:
        """How a step is replicated."""
        options = {
            "average": self._average,
            "compression": self._compression,
            "shard_data": False,
            "sync_variables": "broadcast" if self.BROADCAST_EVERY_EPOCH else None,
        }
        strategy: Strategy = get_catalog().resolve("strategy", tpk.use("horovod", **options))
        return strategy

    def mpi_enabled(self) -> bool:
        """Whether Horovod communicates by MPI."""
        return bool(self.hvd.mpi_enabled())


class BytePSTrainer(HorovodTrainer):
    """Raises an error: BytePS runs on no TensorFlow that there is now.

    Args:
        average: has no meaning.
    """

    def __init__(self, average: bool = True) -> None:
        _no_byteps()


def _no_byteps() -> NoReturn:
    raise tpk.ConfigError(
        "BytePSTrainer: BytePS is for TensorFlow 1 and early 2, and is not maintained. Train with HorovodTrainer, or "
        "with strategy 'collective' of tpk, which needs nothing else"
    )


def _compression(given: Any) -> str | None:
    """Return what Horovod's compression is called in ``tpk-horovod``."""
    name = given if given is None or isinstance(given, str) else getattr(given, "__name__", repr(given))
    known = {None: None, "NoneCompressor": None, "fp16": "fp16", "FP16Compressor": "fp16"}
    if name not in known:
        raise tpk.ConfigError(f"HorovodTrainer(compression={given!r}): expected None or hvd.Compression.fp16")
    return known[name]
