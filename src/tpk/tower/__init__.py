"""What replicates a model: tower functions, the contexts in which they are called, and handles of what they built."""

from __future__ import annotations

from tpk.tower.context import (
    PredictTowerContext,
    TowerContext,
    TrainTowerContext,
    get_current_tower_context,
)
from tpk.tower.handle import TowerHandle, TowerHandles
from tpk.tower.keras_model import KerasModel
from tpk.tower.tower_func import TowerFunc

__all__ = [
    "KerasModel",
    "PredictTowerContext",
    "TowerContext",
    "TowerFunc",
    "TowerHandle",
    "TowerHandles",
    "TrainTowerContext",
    "get_current_tower_context",
]
