"""Named trainers: each is a `SingleCostTrainer` with one strategy.

All of them have the options `precision`, `xla` and `steps_per_run` of `TowerTrainer`. (A trainer that cannot make
several steps in a run raises an error.)

Synchronous trainers have the option `average`. By default, the gradients of all towers of all processes are averaged.
So with batches of the same size, the learning rate is the same as for a single tower on their concatenation,
regardless of the number of towers. With ``average=False``, gradients are summed, as if the learning rate were
multiplied by the number of towers. To average within a worker and sum over workers, as tensorpack's
`DistributedTrainerReplicated` does, use ``average=False``, and divide the learning rate by the number of devices of a
worker.

On GPUs, a dataflow is staged (`StagingInput`) by default, except by `AsyncMultiGPUTrainer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpk.graph.devices import Devices
from tpk.input_source.base import InputSource
from tpk.input_source.feed import FeedInput
from tpk.plugin.creation import also_spelled, use
from tpk.strategies.base import DEVICE_SPELLINGS, GPU_PREFETCH, SCALE_GRADIENT, USE_NCCL
from tpk.train.tower_trainer import SingleCostTrainer

_ONE_DEVICE = "it trains on one device. Train with 'SyncMultiGPUTrainerReplicated', or strategy 'replicated'."
_on_one_device = also_spelled(gpus=_ONE_DEVICE, devices=_ONE_DEVICE, tower=_ONE_DEVICE, nr_tower=_ONE_DEVICE)


class _OneDeviceTrainer(SingleCostTrainer):
    """A trainer whose strategy is fixed."""

    def __init__(self, precision: str = "float32", xla: bool = False, steps_per_run: int = 1) -> None:
        super().__init__("single", precision, xla, steps_per_run)


@_on_one_device
class SimpleTrainer(_OneDeviceTrainer):
    """Trains on one device, and feeds a dataflow with each step.

    The simplest trainer, and the easiest to debug: data code runs in the training thread. With several steps in a run,
    the dataflow comes from a queue.
    """

    def default_input(self, dataflow: Iterable[Any]) -> InputSource:
        """Return a `FeedInput`; a `QueueInput` if a run makes several steps."""
        return FeedInput(dataflow) if self.loop.steps_per_run == 1 else super().default_input(dataflow)


@_on_one_device
class QueueInputTrainer(_OneDeviceTrainer):
    """Trains on one device. A thread puts a dataflow into a queue while the step computes."""


@_on_one_device
class NoOpTrainer(QueueInputTrainer):
    """Runs only the callbacks: it has the graph of `QueueInputTrainer`, and its steps do nothing.

    Use it to inspect, export or time a model or a checkpoint with callbacks; to evaluate one, use `evaluate`. A step
    counts in ``global_step``, but changes no variable, and takes no data (unless a callback fetches a tensor that needs
    it, or a `FeedInput` feeds it). For callbacks at the end of an epoch, ``steps_per_epoch=0`` is enough. It makes one
    step in a run, on one device.

    Example:
        ```python
        config = tpk.TrainConfig(
            model=Model(), dataflow=flow, callbacks=[tpk.DumpParamAsImage("conv1/kernel")],
            session_init="runs/digits", steps_per_epoch=0, max_epoch=1,
        )
        tpk.launch_train_with_config(config, "NoOpTrainer")
        ```
    """

    def run_step(self) -> None:
        """Run only the fetches of callbacks."""
        self.hooked_sess.run([])


@also_spelled(DEVICE_SPELLINGS, use_nccl=USE_NCCL, gpu_prefetch=GPU_PREFETCH)
class SyncMultiGPUTrainerReplicated(SingleCostTrainer):
    """Trains a replica of the model on each device; gradients are all-reduced. See `ReplicatedStrategy`.

    Args:
        devices: a number, indices, or device strings; GPUs if there are any, otherwise logical CPU devices.
        average: whether the gradients of the towers are averaged instead of summed; see the module.
        mode: how gradients are all-reduced: ``auto``, ``copy``, ``cpu`` or ``nccl``.
        sync_variables: how non-trainable variables, such as the statistics of batch normalization, are synchronized at
            the end of each epoch: ``"broadcast"`` assigns the values of the first tower to all, ``"mean"`` the mean;
            None for not at all. `ReplicatedStrategy` describes the cost and the exactness of each.
    """

    def __init__(
        self,
        devices: Devices = None,
        average: bool = True,
        mode: str | None = "auto",
        sync_variables: str | None = "broadcast",
        precision: str = "float32",
        xla: bool = False,
        steps_per_run: int = 1,
    ) -> None:
        options = {"average": average, "mode": mode, "sync_variables": sync_variables}
        super().__init__(use("replicated", devices=devices, **options), precision, xla, steps_per_run)


@also_spelled(DEVICE_SPELLINGS, gpu_prefetch=GPU_PREFETCH)
class SyncMultiGPUTrainerParameterServer(SingleCostTrainer):
    """Trains synchronously on several devices that share the variables. See `ParameterServerStrategy`.

    Args:
        devices: a number, indices, or device strings; GPUs if there are any, otherwise logical CPU devices.
        ps_device: the place of the variables: ``"gpu"`` distributes them over the devices; ``"cpu"``; None chooses.
        average: whether the gradients of the towers are averaged instead of summed; see the module.
    """

    def __init__(
        self,
        devices: Devices = None,
        ps_device: str | None = None,
        average: bool = True,
        precision: str = "float32",
        xla: bool = False,
        steps_per_run: int = 1,
    ) -> None:
        options = {"ps_device": ps_device, "average": average}
        super().__init__(use("parameter_server", devices=devices, **options), precision, xla, steps_per_run)


SyncMultiGPUTrainer = SyncMultiGPUTrainerParameterServer
"""An alias for users who do not care about the place of the variables."""


@also_spelled(DEVICE_SPELLINGS, average=SCALE_GRADIENT)
class AsyncMultiGPUTrainer(SingleCostTrainer):
    """Trains on several devices that share the variables, and do not wait for each other. See `AsyncStrategy`.

    Args:
        devices: a number, indices, or device strings; GPUs if there are any, otherwise logical CPU devices.
        scale_gradient: whether gradients are divided by the number of devices.
    """

    def __init__(
        self,
        devices: Devices = None,
        scale_gradient: bool = True,
        precision: str = "float32",
        xla: bool = False,
        steps_per_run: int = 1,
    ) -> None:
        super().__init__(use("async", devices=devices, scale_gradient=scale_gradient), precision, xla, steps_per_run)
