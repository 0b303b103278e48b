"""Predictors: outputs of a model from arrays, during a training, after it, and for programs without tpk.

- `OnlinePredictor`: of a training; `trainer.get_predictor` makes one.
- `OfflinePredictor`: of a `PredictConfig`, with a graph
  and a session of its own; `MultiTowerOfflinePredictor`: on several devices.
- `MultiThreadAsyncPredictor`: requests of many threads, in batches.
- `FeedfreePredictor`,
  `SimpleDatasetPredictor`,
  `MultiProcessDatasetPredictor`: whole data sets.
- `AveragedWeights`, `InitialValues`: weights other than
  those of a checkpoint.
- `ModelExporter`: SavedModel, frozen graph, TensorFlow Lite.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
