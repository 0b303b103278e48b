"""Towers: the context in which a replicate of a model is built."""

from __future__ import annotations

import tensorflow as tf

import tpk.tower
from tpk.tower import (
    PredictTowerContext,
    TowerFunc,
    TowerHandle as TowerTensorHandle,
    TowerHandles as TowerTensorHandles,
    TrainTowerContext,
    get_current_tower_context,
)

__all__ = [
    "BaseTowerContext",
    "PredictTowerContext",
    "TowerContext",
    "TowerFunc",
    "TowerFuncWrapper",
    "TowerTensorHandle",
    "TowerTensorHandles",
    "TrainTowerContext",
    "get_current_tower_context",
]

BaseTowerContext = tpk.tower.TowerContext
TowerFuncWrapper = TowerFunc


def TowerContext(tower_name: str, is_training: bool, vs_name: str = "") -> BaseTowerContext:
    """Return the context of a tower, to be used once, by ``with``.

    Args:
        tower_name: its name scope; empty for none.
        is_training: whether it is trained. One that is not makes its variables, unless the scope around it reuses.
        vs_name: its variable scope; empty for the one around it.

    Example:
        ```python
        with TowerContext("", is_training=False):
            model.build_graph(image, label)
        ```
    """
    if is_training:
        return TrainTowerContext(ns_name=tower_name, vs_name=vs_name)
    creates_variables = not tf.compat.v1.get_variable_scope().reuse
    return PredictTowerContext(ns_name=tower_name, vs_name=vs_name, creates_variables=creates_variables)
