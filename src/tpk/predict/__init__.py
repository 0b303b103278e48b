"""What computes outputs of a model from arrays: during a training, after it, and for programs without tpk.

- [`OnlinePredictor`][tpk.predict.OnlinePredictor]: of a training; `trainer.get_predictor` makes one.
- [`OfflinePredictor`][tpk.predict.OfflinePredictor]: of a [`PredictConfig`][tpk.predict.PredictConfig], with a graph
  and a session of its own; [`MultiTowerOfflinePredictor`][tpk.predict.MultiTowerOfflinePredictor]: on several devices.
- [`MultiThreadAsyncPredictor`][tpk.predict.MultiThreadAsyncPredictor]: requests of many threads, in batches.
- [`FeedfreePredictor`][tpk.predict.FeedfreePredictor],
  [`SimpleDatasetPredictor`][tpk.predict.SimpleDatasetPredictor],
  [`MultiProcessDatasetPredictor`][tpk.predict.MultiProcessDatasetPredictor]: whole data sets.
- [`AveragedWeights`][tpk.predict.AveragedWeights], [`InitialValues`][tpk.predict.InitialValues]: weights other than
  those of a checkpoint.
- [`ModelExporter`][tpk.predict.ModelExporter]: SavedModel, frozen graph, TensorFlow Lite.
"""

from __future__ import annotations

from tpk.predict.batching import MultiThreadAsyncPredictor
from tpk.predict.config import PredictConfig, PredictGraph, PredictTower
from tpk.predict.dataset import DatasetPredictor, MultiProcessDatasetPredictor, SimpleDatasetPredictor
from tpk.predict.export import ModelExporter
from tpk.predict.export_signature import ExportedSignature, Signature
from tpk.predict.feedfree import FeedfreePredictor
from tpk.predict.multi_tower import MultiTowerOfflinePredictor
from tpk.predict.offline import OfflinePredictor
from tpk.predict.on_tower import device_for, predictor_of
from tpk.predict.online import OnlinePredictor
from tpk.predict.weights import AveragedWeights, InitialValues

__all__ = [
    "AveragedWeights",
    "DatasetPredictor",
    "ExportedSignature",
    "FeedfreePredictor",
    "InitialValues",
    "ModelExporter",
    "MultiProcessDatasetPredictor",
    "MultiThreadAsyncPredictor",
    "MultiTowerOfflinePredictor",
    "OfflinePredictor",
    "OnlinePredictor",
    "PredictConfig",
    "PredictGraph",
    "PredictTower",
    "Signature",
    "SimpleDatasetPredictor",
    "device_for",
    "predictor_of",
]
