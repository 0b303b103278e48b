"""Workers that share the variables on parameter servers, and update them without waiting for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.graph import Objective, get_global_step_var
from tpk.plugin import also_spelled
from tpk.strategies import (
    DEVICE_SPELLINGS,
    GPU_PREFETCH,
    after_reads,
    apply_in_groups,
    build_on_multi_tower,
    in_turn,
)
from tpk.tower import TowerFunc
from tpk_distributed.parameter_servers.distributed_strategy import DistributedStrategy


@also_spelled({**DEVICE_SPELLINGS, "server": "cluster"}, gpu_prefetch=GPU_PREFETCH)
class DistributedParameterServerStrategy(DistributedStrategy):
    """Workers whose towers read all variables from parameter servers, and update them as soon as they can.

    In each step a worker fetches the trainable variables once, all of its towers compute their gradients from these
    values, and the means of the gradients over the towers are applied on the parameter servers. Workers do not wait for
    each other, so their updates are interleaved, and no two runs are alike unless there is only one worker.
    `steps_per_epoch` and `global_step` count the steps of each worker. Workers meet only to end or to save together:
    about every ten seconds, and at the end of each epoch. While the chief evaluates or saves, the others continue.

    All variables of the model and its optimizers are distributed over the parameter servers by size. Non-trainable
    variables, such as the moving averages of batch normalization, are updated by all workers.

    Args:
        devices: the devices of this worker: a count, indices, or device strings; see `resolve_devices`.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or a
            `tf.compat.v1.train.Server`; by default they are read from the environment.
        caching_device: the device that caches the fetched values during a step. Variables with a constraint are not
            cached; each op that reads them fetches them.
        options: ``shard_data``, ``average``, ``timeouts`` and ``server_config``: see `DistributedReplicatedStrategy`.

    Raises:
        ConfigError: if a device does not exist, or the cluster is invalid.

    Example:
        ```python
        # tpk launch -n 2 --ps 1 train.py
        trainer = tpk.SingleCostTrainer(tpk.use("distributed_parameter_server", devices=4))
        ```
    """

    is_reproducible = False
    unused_hooks = ("before_run", "after_run")  # A step does not wait for other workers.
    seconds_between_meetings = 10.0

    def __init__(
        self, devices: Any = None, cluster: Any = None, caching_device: str = "/cpu:0", **options: Any
    ) -> None:
        super().__init__(devices, cluster, **options)
        self._caching_device = f"{self.cluster.device}{caching_device}"

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: Callable[[], Sequence[Any]],
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the towers of this worker, the means of their gradients, and the train ops."""
        get_global_step_var()  # Before the towers, so that it is not shared.
        take = in_turn(get_inputs)
        with self._cached_variables():
            towers = build_on_multi_tower(self.devices, lambda: tower_func(*take()), place=self.placement.for_worker)
        with tf.compat.v1.device(self.placement):
            optimizers = [objective.get_optimizer() for objective in objectives]
        gradients = [
            self.reduce_over_towers(objective, optimizer, towers)
            for objective, optimizer in zip(objectives, optimizers, strict=True)
        ]

        def apply(position: int, name: str) -> Any:
            costs = [objectives[position].cost_in(tower.output) for tower in towers]
            tower_ops = [op for tower in towers for op in tower.ops]
            with (
                tf.compat.v1.device(self.placement.for_worker(self.placement.ps_devices[0])),
                after_reads(tower_ops, costs, gradients[position]),
            ):
                return optimizers[position].apply_gradients(gradients[position], name=name)

        return apply_in_groups(groups, gradients, apply)

    @contextmanager
    def _cached_variables(self) -> Iterator[None]:
        """Within the context, new trainable variables are cached, so each is fetched once per step.

        Variables with a constraint are not: optimizers would apply the constraint to the cached value, from before
        their update.
        """

        def creator(next_creator: Any, **options: Any) -> Any:
            is_cached = options.get("trainable") is not False and options.get("constraint") is None
            if is_cached and options.get("caching_device") is None:
                options["caching_device"] = self._caching_device
            return next_creator(**options)

        with tf.variable_creator_scope(creator):
            yield
