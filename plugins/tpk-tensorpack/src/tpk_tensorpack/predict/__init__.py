"""tensorpack's `predict`: trained models as functions of arrays."""

from __future__ import annotations

from tpk_tensorpack.predict.base import OfflinePredictor, OnlinePredictor, PredictorBase
from tpk_tensorpack.predict.concurrency import MultiThreadAsyncPredictor
from tpk_tensorpack.predict.config import PredictConfig
from tpk_tensorpack.predict.dataset import DatasetPredictorBase, MultiProcessDatasetPredictor, SimpleDatasetPredictor
from tpk_tensorpack.predict.feedfree import FeedfreePredictor
from tpk_tensorpack.predict.multigpu import DataParallelOfflinePredictor, MultiTowerOfflinePredictor

__all__ = [
    "DataParallelOfflinePredictor",
    "DatasetPredictorBase",
    "FeedfreePredictor",
    "MultiProcessDatasetPredictor",
    "MultiThreadAsyncPredictor",
    "MultiTowerOfflinePredictor",
    "OfflinePredictor",
    "OnlinePredictor",
    "PredictConfig",
    "PredictorBase",
    "SimpleDatasetPredictor",
]
