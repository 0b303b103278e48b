"""What computes outputs of a model from arrays."""

from __future__ import annotations

from tpk.predict.batching import MultiThreadAsyncPredictor
from tpk.predict.config import PredictConfig, PredictGraph, PredictTower
from tpk.predict.dataset import DatasetPredictor, MultiProcessDatasetPredictor, SimpleDatasetPredictor
from tpk.predict.feedfree import FeedfreePredictor
from tpk.predict.multi_tower import MultiTowerOfflinePredictor
from tpk.predict.offline import OfflinePredictor
from tpk.predict.on_tower import device_for, predictor_of
from tpk.predict.online import OnlinePredictor
from tpk.predict.weights import AveragedWeights, InitialValues

__all__ = [
    "AveragedWeights",
    "DatasetPredictor",
    "FeedfreePredictor",
    "InitialValues",
    "MultiProcessDatasetPredictor",
    "MultiThreadAsyncPredictor",
    "MultiTowerOfflinePredictor",
    "OfflinePredictor",
    "OnlinePredictor",
    "PredictConfig",
    "PredictGraph",
    "PredictTower",
    "SimpleDatasetPredictor",
    "device_for",
    "predictor_of",
]
