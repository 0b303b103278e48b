"""One tower on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.devices import Devices, add_logical_devices, is_gpu, resolve_devices
from tpk.graph.gradients import check_optimizer, compute_gradients
from tpk.graph.objective import Objective
from tpk.plugin.creation import also_spelled
from tpk.strategies.base import DEVICE_SPELLINGS, GetInputs, Strategy
from tpk.strategies.update_order import after_reads, apply_in_groups
from tpk.tower.context import TrainTowerContext
from tpk.tower.tower_func import TowerFunc


@also_spelled(DEVICE_SPELLINGS)
class SingleStrategy(Strategy):
    """One tower on one device, without a name scope: tensors have the names that the model gives them.

    Args:
        devices: 1, the index of a device in a list, or a device string; by default TensorFlow places the ops.

    Raises:
        ConfigError: if there is more than one device, or it does not exist.
    """

    repeats_steps = True

    def __init__(self, devices: Devices = None) -> None:
        self._devices = [] if devices is None or devices == 1 else resolve_devices(devices)
        if len(self._devices) > 1:
            raise ConfigError(
                f"strategy 'single' trains on one device, got devices={devices!r}. Pass one, or use a strategy for "
                "several devices, such as 'replicated'."
            )

    @property
    def stages_input(self) -> bool:
        """Whether a dataflow is staged by default: if the tower is on a GPU, by `devices` or TensorFlow's choice."""
        return is_gpu(self._devices[0]) if self._devices else bool(tf.config.list_physical_devices("GPU"))

    def session_config(self, config: Any) -> Any:
        """Return `config` with the logical CPU device, if `devices` names one."""
        return add_logical_devices(config, self._devices)

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the tower and its train ops."""
        with tf.device(self._devices[0] if self._devices else None):
            graph = tf.compat.v1.get_default_graph()
            ops_before = len(graph.get_operations())
            with TrainTowerContext():
                output = tower_func(*get_inputs())
            tower_ops = graph.get_operations()[ops_before:]
            variables = tf.compat.v1.trainable_variables()
            optimizers = [check_optimizer(objective.get_optimizer()) for objective in objectives]
            gradients = [
                compute_gradients(optimizer, objective.cost_in(output), objective.select(variables))
                for optimizer, objective in zip(optimizers, objectives, strict=True)
            ]

            def apply(position: int, name: str) -> Any:
                with after_reads(tower_ops, [objectives[position].cost_in(output)], gradients[position]):
                    return optimizers[position].apply_gradients(gradients[position], name=name)

            return apply_in_groups(groups, gradients, apply)
