"""Predictors: outputs of a model from arrays, during a training, after it, and for programs without tpk.

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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
