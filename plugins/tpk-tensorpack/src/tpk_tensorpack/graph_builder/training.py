"""Towers for custom trainers that build their own graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tpk
from tpk.strategies import build_on_multi_tower
from tpk_tensorpack.missing import not_here

__all__ = ["DataParallelBuilder"]

__getattr__ = not_here(
    __name__,
    {
        "AsyncMultiGPUBuilder": "AsyncMultiGPUTrainer(gpus)",
        "GraphBuilder": "DataParallelBuilder",
        "SyncMultiGPUParameterServerBuilder": "SyncMultiGPUTrainerParameterServer(gpus)",
        "SyncMultiGPUReplicatedBuilder": "SyncMultiGPUTrainerReplicated(gpus)",
    },
)

Device = str | Callable[[Any], str]


class DataParallelBuilder:
    """Builds towers that train on different data.

    Args:
        towers: the GPU number of each tower, or the number of towers.

    Raises:
        ConfigError: `towers` is neither.
    """

    def __init__(self, towers: int | Sequence[int]) -> None:
        self.towers = as_gpus(type(self).__name__, "towers", towers)

    @staticmethod
    def call_for_each_tower(
        towers: Sequence[int],
        func: Callable[[], Any],
        devices: Sequence[Device] | None = None,
        use_vs: Sequence[bool] | None = None,
    ) -> list[Any]:
        """Call a function under the `TrainTowerContext` of each tower; return what it returns.

        The towers are named ``tower0``, ``tower1``, ….

        Args:
            towers: the GPU number of each tower.
            func: builds a tower.
            devices: for each tower a device, or a function that places ops; by default the tower's GPU. If the device
                does not exist, a session with ``allow_soft_placement`` places the ops.
            use_vs: for each tower, whether it has its own variable scope, named like the tower, instead of sharing the
                variables of the first tower. By default all of them share.

        Raises:
            ConfigError: the lists have different lengths.

        Example:
            ```python
            tower_func = TowerFunc(build, signature)
            costs = DataParallelBuilder.call_for_each_tower(
                [0, 1], lambda: tower_func(*input.get_input_tensors()), devices=["/gpu:0", "/gpu:1"]
            )
            ```
        """
        vs_names = None if use_vs is None else [f"tower{index}" if own else "" for index, own in enumerate(use_vs)]
        return [tower.output for tower in build_towers(towers, func, devices, vs_names)]

    build_on_towers = call_for_each_tower


def as_gpus(owner: str, argument: str, value: Any) -> list[int]:
    """Return GPU numbers from a count or a list of numbers.

    Raises:
        ConfigError: `value` is neither.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool)
    numbers: Any = range(value) if is_count else value
    try:
        gpus = [] if isinstance(numbers, str) else [int(number) for number in numbers]
    except (TypeError, ValueError):
        gpus = []
    if not gpus or min(gpus) < 0 or len(set(gpus)) < len(gpus):
        raise tpk.ConfigError(
            f"{owner}({argument}={value!r}): expected the number of GPUs, or a list of GPU numbers, such as [0, 1]"
        )
    return gpus


def build_towers(
    towers: Sequence[int],
    func: Callable[[], Any],
    devices: Sequence[Device] | None = None,
    vs_names: Sequence[str] | None = None,
) -> list[Any]:
    """Build towers ``tower0``, ``tower1``, …; return their handles.

    Args:
        towers: the GPU number of each tower.
        func: builds a tower.
        devices: for each tower a device, or a function that places ops; by default the tower's GPU.
        vs_names: the variable scope of each tower; by default all share their variables.

    Raises:
        ConfigError: the lists have different lengths.
    """
    gpus = as_gpus("call_for_each_tower", "towers", towers)
    places = [f"/gpu:{gpu}" for gpu in gpus] if devices is None else list(devices)
    scopes = [""] * len(gpus) if vs_names is None else list(vs_names)
    if not len(gpus) == len(places) == len(scopes):
        raise tpk.ConfigError(
            f"{len(gpus)} towers, {len(places)} devices and {len(scopes)} variable scopes: expected the same number of "
            "each"
        )
    names = [f"tower{index}" for index in range(len(gpus))]
    return build_on_multi_tower(names, func, scopes, place=dict(zip(names, places, strict=True)).__getitem__)
