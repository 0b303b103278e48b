from .batching import MultiThreadAsyncPredictor as MultiThreadAsyncPredictor
from .dataset_predictor import (
    DatasetPredictor as DatasetPredictor,
    MultiProcessDatasetPredictor as MultiProcessDatasetPredictor,
    SimpleDatasetPredictor as SimpleDatasetPredictor,
)
from .export import ExportedSignature as ExportedSignature, ModelExporter as ModelExporter
from .feedfree import FeedfreePredictor as FeedfreePredictor
from .offline import (
    MultiTowerOfflinePredictor as MultiTowerOfflinePredictor,
    OfflinePredictor as OfflinePredictor,
)
from .online import OnlinePredictor as OnlinePredictor
from .predict_config import PredictConfig as PredictConfig
from .weights import (
    AveragedWeights as AveragedWeights,
    InitialValues as InitialValues,
)
