"""The built-in plugins: the target of each name. Nothing is imported until it is named."""

from __future__ import annotations

_CALLBACKS = (  # noqa: SIM905 - a table of names reads better in lines
    "MovingAverageSummary EpochMeans LearningRateMonitor ThroughputTracker HostMemoryTracker GPUUtilizationTracker "
    "GPUMemoryTracker ProgressBar MergeAllSummaries RunUpdateOps ModelSaver MinSaver MaxSaver "
    "EarlyStopping MaxTime InferenceRunner DataParallelInferenceRunner InputMonitor NanGuard Watchdog "
    "SessionRunTimeout StartProcOrThread SendStat DebugRun InjectShell PeriodicTrigger PeriodicCallback "
    "EnableCallbackIf CallbackFactory RunOp ScheduledHyperParamSetter HumanHyperParamSetter HyperParamSetterWithFunc "
    "StatMonitorParamSetter LRFinder SimpleMovingAverage EstimatedTimeLeft HookToCallback WithAveragedWeights "
    "GraphProfiler DumpTensors DumpTensorAsImage DumpParamAsImage TensorPrinter ProcessTensors CheckNumerics "
    "GradientHistogram"
).split()
_TRAINERS = (  # noqa: SIM905 - a table of names reads better in lines
    "MultiObjectiveTrainer SingleCostTrainer NoOpTrainer SimpleTrainer QueueInputTrainer AsyncMultiGPUTrainer "
    "SyncMultiGPUTrainer SyncMultiGPUTrainerParameterServer SyncMultiGPUTrainerReplicated"
).split()
_STRATEGIES = {
    "single": "SingleStrategy",
    "async": "AsyncStrategy",
    "replicated": "ReplicatedStrategy",
    "parameter_server": "ParameterServerStrategy",
}

BUILTINS: dict[str, dict[str, str]] = {
    "trainer": {name: f"tpk.train:{name}" for name in _TRAINERS},
    "strategy": {name: f"tpk.strategies:{attribute}" for name, attribute in _STRATEGIES.items()},
    "monitor": {name: f"tpk.monitors:{name}" for name in ("TFEventWriter", "JSONWriter", "CSVWriter", "ScalarPrinter")},
    "callback": {name: f"tpk.callbacks:{name}" for name in _CALLBACKS},
    "plugin": {},
    "command": {},
}
"""``"module:attr"`` by kind and name."""

_IN_PACKAGES = {
    "tpk_distributed": (
        "collective distributed_replicated distributed_parameter_server launch Cluster Timeouts as_cluster as_timeouts "
        "CollectiveTrainer DistributedReplicatedTrainer DistributedParameterServerTrainer "
        "CollectiveStrategy DistributedReplicatedStrategy DistributedParameterServerStrategy"
    ),
    "tpk_horovod": "horovod HorovodTrainer",
    "tpk_keras": "KerasModel KerasRestore KerasSaver",
    "tpk_lmdb": "LMDBSerializer",
    "tpk_mlflow": "mlflow",
    "tpk_prometheus": "prometheus",
    "tpk_wandb": "wandb",
}
PACKAGES = {name: module for module, names in _IN_PACKAGES.items() for name in names.split()}
"""Names in other packages of tpk's repository, and the modules that have them."""


def where_to_find(name: str) -> str:
    """Return in which package a name of `PACKAGES` is, and how to install it; empty for other names."""
    if name not in PACKAGES:
        return ""
    extra = PACKAGES[name].removeprefix("tpk_")
    also = "plugins/tpk-distributed " if extra == "horovod" else ""  # In a checkout, pip finds no other package.
    command = f'`pip install "tpk-train[{extra}]"`, or in a checkout `pip install {also}plugins/tpk-{extra}`'
    return f"{name!r} is in the package tpk-{extra}: {command}."
