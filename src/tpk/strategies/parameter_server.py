"""Towers that share the variables: their gradients are averaged or summed, and applied once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_one_of
from tpk.graph.devices import Devices, is_gpu, resolve_devices
from tpk.graph.gradients import Gradients, check_optimizer
from tpk.graph.objective import Objective
from tpk.plugin.creation import also_spelled
from tpk.strategies.all_reduce import reduce_column
from tpk.strategies.base import DEVICE_SPELLINGS, GPU_PREFETCH, GetInputs, Strategy
from tpk.strategies.device_setter import LeastLoadedDeviceSetter
from tpk.strategies.towers import Tower, build_on_multi_tower, check_gradients_alike, gradients_of_towers, in_turn
from tpk.strategies.update_order import after_reads, apply_in_groups
from tpk.tower.tower_func import TowerFunc


class SharedVariables:
    """The placement of variables that all towers share.

    Args:
        devices: a count, indices, or device strings; see `resolve_devices`.
        ps_device: ``"cpu"``: all variables are on the CPU; ``"gpu"``: each is on the least loaded of `devices`,
            whatever their kind.

    Raises:
        ConfigError: if a device does not exist, or `ps_device` is something else.
    """

    def __init__(self, devices: Devices, ps_device: str) -> None:
        check_one_of("strategy", ("cpu", "gpu"), ps_device=ps_device)
        self.devices = resolve_devices(devices)
        self.setter = LeastLoadedDeviceSetter(self.devices[0], self.devices if ps_device == "gpu" else ["/cpu:0"])

    def build_towers(self, tower_func: TowerFunc, take_inputs: GetInputs) -> list[Tower]:
        """Build a tower on each device."""
        return build_on_multi_tower(self.devices, lambda: tower_func(*take_inputs()), place=self.setter.for_worker)


@also_spelled(DEVICE_SPELLINGS, gpu_prefetch=GPU_PREFETCH)
class ParameterServerStrategy(Strategy):
    """Variables shared by the towers of several devices.

    Each tower takes its own datapoint. The means of the gradients are applied once, on the devices of the variables.
    All towers have the same weight in the mean, whatever the sizes of their batches.

    Args:
        devices: a count, indices, or device strings; see `resolve_devices`.
        ps_device: ``"cpu"``: all variables are on the CPU; ``"gpu"``: each is on the least loaded of `devices`; None
            for ``"gpu"`` with several GPUs, otherwise ``"cpu"``.
        average: average the gradients of all towers. With batches of the same size, this equals training one tower on
            their concatenation, with the same learning rate. If False, the gradients are summed, which has the effect
            of multiplying the learning rate by the number of towers.

    Attributes:
        devices: the device of each tower.
        average: whether gradients are averaged; otherwise they are summed.

    Raises:
        ConfigError: if a device does not exist, or `ps_device` is something else.
    """

    repeats_steps = True

    def __init__(self, devices: Devices = None, ps_device: str | None = None, average: bool = True) -> None:
        self.average = average
        resolved = resolve_devices(devices)
        default = "gpu" if len(resolved) > 1 and all(map(is_gpu, resolved)) else "cpu"
        self._shared = SharedVariables(resolved, default if ps_device is None else ps_device)
        self.devices = self._shared.devices

    def describe(self) -> dict[str, Any]:
        """Return the options that affect the result."""
        return {**super().describe(), "average": self.average}

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the towers, the means or sums of their gradients, and the train ops."""
        towers = self._shared.build_towers(tower_func, in_turn(get_inputs))
        optimizers = [check_optimizer(objective.get_optimizer()) for objective in objectives]
        gradients: list[Gradients] = []
        for objective, optimizer in zip(objectives, optimizers, strict=True):
            rows = gradients_of_towers(objective, [optimizer] * len(towers), towers)
            check_gradients_alike(towers, rows)
            with tf.name_scope("reduce_gradients"):
                gradients.append([self._reduce_where_the_variable_is(pairs) for pairs in zip(*rows, strict=True)])

        def apply(position: int, name: str) -> Any:
            costs = [objectives[position].cost_in(tower.output) for tower in towers]
            tower_ops = [op for tower in towers for op in tower.ops]
            with tf.device(self._shared.setter.ps_devices[0]), after_reads(tower_ops, costs, gradients[position]):
                return optimizers[position].apply_gradients(gradients[position], name=name)

        return apply_in_groups(groups, gradients, apply)

    def _reduce_where_the_variable_is(self, pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        variable = pairs[0][1]
        with tf.device(variable.device):
            return reduce_column([gradient for gradient, _ in pairs], self.average), variable
