"""The base of trainers on several GPUs of tensorpack 0.3 to 0.7, which build their towers themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpk.errors import ConfigError
from tpk.strategies.towers import build_on_multi_tower
from tpk_tensorpack.graph_builder.training import Device, as_gpus
from tpk_tensorpack.train.tower import TowerTrainer

__all__ = ["MultiGPUTrainerBase"]


class MultiGPUTrainerBase(TowerTrainer):
    """The base of trainers that build a tower on each of several GPUs.

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
        """Call a function under the `TowerContext` of each tower; return what it returns.

        Args:
            towers: the numbers of the GPUs.
            func: builds a tower.
            devices: for each tower a device, or a function that places ops; by default its GPU. Where there is no such
                device, a session with ``allow_soft_placement`` places the ops.
            var_strategy: ``"shared"``, or ``"replicate"`` for towers that have variables of their own.
            vs_names: for each tower with variables of its own, their scope; by default its name, and none for the
                first.

        Raises:
            ConfigError: there are not as many of one as of the others, or there is no such strategy.
        """
        gpus = as_gpus("build_on_multi_tower", "towers", towers)
        places = [f"/gpu:{gpu}" for gpu in gpus] if devices is None else list(devices)
        names = [f"tower{index}" for index in range(len(gpus))]
        if var_strategy == "shared":
            if vs_names is not None:
                raise ConfigError("build_on_multi_tower: vs_names= is for var_strategy='replicate'")
            scopes = [""] * len(gpus)
        elif var_strategy in ("replicate", "replicated"):
            scopes = ["", *names[1:]] if vs_names is None else list(vs_names)
        else:
            raise ConfigError(f"build_on_multi_tower(var_strategy={var_strategy!r}): expected 'shared' or 'replicate'")
        if not len(gpus) == len(places) == len(scopes):
            raise ConfigError(
                f"build_on_multi_tower: {len(gpus)} towers, {len(places)} devices and {len(scopes)} vs_names: "
                "expected as many of each"
            )
        place = dict(zip(names, places, strict=True)).__getitem__
        return [tower.output for tower in build_on_multi_tower(names, func, scopes, place=place)]
