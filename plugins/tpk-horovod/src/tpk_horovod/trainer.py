"""The trainer ``HorovodTrainer``: a single-cost trainer with the strategy ``horovod``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tpk
from tpk.plugin import also_spelled
from tpk.strategies import DEVICE_SPELLINGS
from tpk_horovod.strategy import HorovodStrategy


@also_spelled(DEVICE_SPELLINGS)
class HorovodTrainer(tpk.SingleCostTrainer):
    """Trains in several processes with one or more devices each; Horovod averages or sums their gradients.

    Args:
        devices: the devices of this process; see `HorovodStrategy`.
        precision: the precision of the towers; see `tpk.TowerTrainer`.
        xla: whether XLA compiles the towers and their gradients.
        options: the other options of `HorovodStrategy`, such as ``compression="fp16"`` or ``average=False``.

    Example:
        ```python
        # tpk launch -n 2 script.py
        tpk.launch_train_with_config(config, "HorovodTrainer")
        ```
    """

    def __init__(
        self,
        devices: int | str | Sequence[int | str] | None = None,
        *,
        precision: str = "float32",
        xla: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(HorovodStrategy(devices, **options), precision, xla)
