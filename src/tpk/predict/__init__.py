"""Predictors: outputs of a model from arrays, during a training, after it, and for programs without tpk.

- `OnlinePredictor`: uses the session of a training; `trainer.get_predictor` returns one.
- `OfflinePredictor`: builds the model of a `PredictConfig` in a separate graph and session;
  `MultiTowerOfflinePredictor` does so on several devices.
- `MultiThreadAsyncPredictor`: computes the requests of many threads in batches.
- `FeedfreePredictor`, `SimpleDatasetPredictor`, `MultiProcessDatasetPredictor`: whole data sets.
- `AveragedWeights`, `InitialValues`: other weights than those in a checkpoint.
- `ModelExporter`: SavedModel, frozen graph, TensorFlow Lite.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
