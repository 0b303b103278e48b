"""One tower on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.gradients import check_cost, check_optimizer, compute_gradients
from tpk.strategies.base import Strategy
from tpk.tower.context import TrainTowerContext
from tpk.tower.tower_func import TowerFunc


class SingleStrategy(Strategy):
    """One tower on one device, with no name scope of its own: tensors are called what the user calls them.

    Args:
        devices: 1, the index of a GPU in a list, or a device string; by default TensorFlow places the ops.

    Raises:
        ConfigError: if more than one device is asked for.
    """

    def __init__(self, devices: int | Sequence[int | str] | str | None = None) -> None:
        self._device = _one_device(devices)

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: Callable[[], Sequence[Any]],
        get_optimizer: Callable[[], Any],
    ) -> Any:
        """Build the one tower and its train op."""
        with tf.device(self._device):
            with TrainTowerContext():
                cost = check_cost(tower_func(*get_inputs()))
            optimizer = check_optimizer(get_optimizer())
            gradients = compute_gradients(optimizer, cost, tf.compat.v1.trainable_variables())
            return optimizer.apply_gradients(gradients, name="train_op")


def _one_device(devices: int | Sequence[int | str] | str | None) -> str | None:
    if devices is None or devices == 1:
        return None
    if isinstance(devices, str):
        return devices
    if not isinstance(devices, int) and len(devices) == 1:
        device = devices[0]
        return f"/gpu:{device}" if isinstance(device, int) else device
    raise ConfigError(
        f"strategy 'single' trains on one device, got devices={devices!r}. Give one, or name a strategy that "
        "trains on several."
    )
