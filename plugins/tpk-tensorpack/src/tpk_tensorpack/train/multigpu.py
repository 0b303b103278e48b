"""The base of multi-GPU trainers of tensorpack 0.3 to 0.7, which build their own towers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpk.argument_checks import check_one_of
from tpk.errors import ConfigError
from tpk_tensorpack.graph_builder.training import Device, build_towers
from tpk_tensorpack.train.tower import TowerTrainer

__all__ = ["MultiGPUTrainerBase"]


class MultiGPUTrainerBase(TowerTrainer):
    """Base class of trainers that build a tower on each of several GPUs.

    Args:
        config: a `TrainConfig`.
    """

    @staticmethod
    def build_on_multi_tower(
        towers: Sequence[int],
        func: Callable[[], Any],
        devices: Sequence[Device] | None = None,
        var_strategy: str = "shared",
        vs_names: Sequence[str] | None = None,
    ) -> list[Any]:
        """Call a function under the `TowerContext` of each tower, and return the results.

        Args:
            towers: the GPU number of each tower.
            func: builds a tower.
            devices: for each tower a device, or a function that places ops; by default the tower's GPU. If the device
                does not exist, a session with ``allow_soft_placement`` places the ops.
            var_strategy: ``"shared"``, or ``"replicate"`` for towers with separate variables.
            vs_names: for ``"replicate"``, the variable scope of each tower; by default the tower's name, and no scope
                for the first.

        Raises:
            ConfigError: the lists have different lengths, or the strategy is unknown.
        """
        check_one_of("build_on_multi_tower", ("shared", "replicate", "replicated"), var_strategy=var_strategy)
        if var_strategy == "shared" and vs_names is not None:
            raise ConfigError("build_on_multi_tower: vs_names= is for var_strategy='replicate'")
        if var_strategy != "shared" and vs_names is None:
            vs_names = ["", *(f"tower{index}" for index in range(1, len(towers)))]
        return [tower.output for tower in build_towers(towers, func, devices, vs_names)]
