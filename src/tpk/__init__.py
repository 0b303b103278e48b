"""tpk trains anything that runs in a loop, in TensorFlow graph mode, on today's TensorFlow 2.

The names here are the public API. They are imported when they are first used, so `import tpk` itself imports no
TensorFlow, and takes milliseconds. Type checkers and editors see them in ``__init__.pyi``.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOMS = ("callbacks", "dataflow", "graph", "input_source", "layers", "monitors", "strategies")

_PUBLIC = {
    "tpk.callbacks": (
        "BinaryClassificationStats",
        "CallbackFactory",
        "CallbackToHook",
        "ClassificationError",
        "DataParallelInferenceRunner",
        "EarlyStopping",
        "EnableCallbackIf",
        "EstimatedTimeLeft",
        "GraphVarParam",
        "HookToCallback",
        "HyperParamSetterWithFunc",
        "InferenceRunner",
        "Inferencer",
        "InputMonitor",
        "MaxSaver",
        "MergeAllSummaries",
        "MetricInferencer",
        "MinSaver",
        "ModelSaver",
        "MovingAverageSummary",
        "NanGuard",
        "ObjAttrParam",
        "PeriodicCallback",
        "PeriodicTrigger",
        "ProgressBar",
        "RunOp",
        "RunUpdateOps",
        "ScalarStats",
        "ScheduledHyperParamSetter",
        "SimpleMovingAverage",
        "StatMonitorParamSetter",
        "Watchdog",
        "WithAveragedWeights",
    ),
    "tpk.dataflow": (
        "BatchData",
        "BatchDataByShape",
        "CacheData",
        "ConcatData",
        "DataFlow",
        "DataFromGenerator",
        "DataFromIterable",
        "DataFromList",
        "DataFromQueue",
        "FakeData",
        "FixedSizeData",
        "HDF5Serializer",
        "JoinData",
        "LMDBSerializer",
        "LocallyShuffleData",
        "MapData",
        "MapDataComponent",
        "MultiProcessMapData",
        "MultiProcessRunner",
        "MultiThreadMapData",
        "MultiThreadRunner",
        "NumpySerializer",
        "PrintData",
        "ProxyDataFlow",
        "RNGDataFlow",
        "RandomChooseData",
        "RandomMixData",
        "RemoteDataZMQ",
        "RepeatedData",
        "RepeatedDataPoint",
        "SelectComponent",
        "StatefulDataFlow",
        "StatefulProxyDataFlow",
        "TFRecordSerializer",
        "TestDataSpeed",
        "aligned_empty",
        "measure_speed",
        "seed_dataflow",
        "send_dataflow_zmq",
    ),
    "tpk.errors": (
        "CheckpointError",
        "ConfigError",
        "HangError",
        "HookError",
        "InputError",
        "MismatchError",
        "NonFiniteError",
        "PeerError",
        "PluginError",
        "PluginImportError",
        "Preempted",
        "SessionError",
        "StopTraining",
        "TowerError",
        "TpkError",
        "TrainerStateError",
        "UnknownPluginError",
    ),
    "tpk.graph": (
        "AccumGradOptimizer",
        "CheckGradient",
        "DynamicLossScaleOptimizer",
        "FilterNoneGrad",
        "GlobalNormClip",
        "GradientProcessor",
        "MapGradient",
        "MovingAverageOptimizer",
        "PostProcessOptimizer",
        "ProxyOptimizer",
        "ScaleGradient",
        "SkipNonFiniteOptimizer",
        "SummaryGradient",
        "VariableAssignmentOptimizer",
        "apply_grad_processors",
        "averaged_weights",
    ),
    "tpk.graph.objective": ("Objective",),
    "tpk.graph.summaries": (
        "add_activation_summary",
        "add_moving_summary",
        "add_param_summary",
        "add_tensor_summary",
    ),
    "tpk.input_source": (
        "BatchQueueInput",
        "DummyConstantInput",
        "FeedInput",
        "InputSource",
        "QueueInput",
        "StagingInput",
        "TFDatasetInput",
        "TensorInput",
        "ZMQInput",
        "dataflow_to_dataset",
        "remap_input_source",
    ),
    "tpk.monitors": (
        "CSVWriter",
        "JSONWriter",
        "Monitor",
        "Monitors",
        "ScalarPrinter",
        "TFEventWriter",
    ),
    "tpk.plugin": (
        "Callback",
        "hookimpl",
        "use",
    ),
    "tpk.predict": ("OnlinePredictor",),
    "tpk.session": (
        "ChainInit",
        "DictRestore",
        "HookedSession",
        "NewSessionCreator",
        "NpzRestore",
        "ReuseSessionCreator",
        "SaverRestore",
        "SaverRestoreRelaxed",
        "SessionCreator",
        "SessionInit",
        "SmartInit",
        "default_session_config",
        "newest_complete",
    ),
    "tpk.strategies": (
        "Cluster",
        "CollectiveStrategy",
        "DistributedParameterServerStrategy",
        "DistributedReplicatedStrategy",
        "Exchange",
        "LeastLoadedDeviceSetter",
        "MultiProcessStrategy",
        "Strategy",
        "build_on_multi_tower",
        "get_post_init_ops",
    ),
    "tpk.tower": (
        "PredictTowerContext",
        "TowerContext",
        "TowerFunc",
        "TrainTowerContext",
        "get_current_tower_context",
    ),
    "tpk.train": (
        "AsyncMultiGPUTrainer",
        "CollectiveTrainer",
        "DistributedParameterServerTrainer",
        "DistributedReplicatedTrainer",
        "ModelDesc",
        "MultiObjectiveTrainer",
        "QueueInputTrainer",
        "SimpleTrainer",
        "SingleCostTrainer",
        "SyncMultiGPUTrainer",
        "SyncMultiGPUTrainerParameterServer",
        "SyncMultiGPUTrainerReplicated",
        "TowerTrainer",
        "TrainConfig",
        "Trainer",
        "launch_train_with_config",
    ),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted([*_HOME, *_ROOMS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"tpk.{name}")
    else:
        raise AttributeError(f"module 'tpk' has no attribute {name!r}")
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return __all__
