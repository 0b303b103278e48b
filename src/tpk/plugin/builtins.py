"""The built-in plugins: the target of each name. Nothing is imported until it is named."""

from __future__ import annotations

_CALLBACKS = (  # noqa: SIM905 - a table of names reads better in lines
    "MovingAverageSummary EpochMeans LearningRateMonitor ThroughputTracker HostMemoryTracker GPUUtilizationTracker "
    "GPUMemoryTracker ProgressBar MergeAllSummaries RunUpdateOps ModelSaver KerasSaver MinSaver MaxSaver "
    "EarlyStopping MaxTime InferenceRunner DataParallelInferenceRunner InputMonitor NanGuard Watchdog "
    "SessionRunTimeout StartProcOrThread SendStat DebugRun InjectShell PeriodicTrigger PeriodicCallback "
    "EnableCallbackIf CallbackFactory RunOp ScheduledHyperParamSetter HumanHyperParamSetter HyperParamSetterWithFunc "
    "StatMonitorParamSetter LRFinder SimpleMovingAverage EstimatedTimeLeft HookToCallback WithAveragedWeights "
    "GraphProfiler DumpTensors DumpTensorAsImage DumpParamAsImage TensorPrinter ProcessTensors CheckNumerics "
    "GradientHistogram"
).split()
_TRAINERS = (  # noqa: SIM905 - a table of names reads better in lines
    "MultiObjectiveTrainer SingleCostTrainer NoOpTrainer SimpleTrainer QueueInputTrainer AsyncMultiGPUTrainer "
    "SyncMultiGPUTrainer SyncMultiGPUTrainerParameterServer SyncMultiGPUTrainerReplicated CollectiveTrainer "
    "DistributedReplicatedTrainer DistributedParameterServerTrainer"
).split()
_STRATEGIES = {
    "single": "SingleStrategy",
    "async": "AsyncStrategy",
    "replicated": "ReplicatedStrategy",
    "parameter_server": "ParameterServerStrategy",
    "collective": "CollectiveStrategy",
    "distributed_replicated": "DistributedReplicatedStrategy",
    "distributed_parameter_server": "DistributedParameterServerStrategy",
}

BUILTINS: dict[str, dict[str, str]] = {
    "trainer": {name: f"tpk.train:{name}" for name in _TRAINERS},
    "strategy": {name: f"tpk.strategies:{attribute}" for name, attribute in _STRATEGIES.items()},
    "monitor": {name: f"tpk.monitors:{name}" for name in ("TFEventWriter", "JSONWriter", "CSVWriter", "ScalarPrinter")},
    "callback": {name: f"tpk.callbacks:{name}" for name in _CALLBACKS},
    "plugin": {},
}
"""``"module:attr"`` by kind and name."""

PACKAGES = {name: f"tpk-{name}" for name in ("horovod", "mlflow", "prometheus", "wandb")}
PACKAGES["HorovodTrainer"] = "tpk-horovod"
"""Plugins in other packages of tpk's repository, and these packages."""


def not_installed(name: str) -> str:
    """Return how to install the package of a plugin; empty if no package of tpk's repository has it."""
    package = PACKAGES.get(name)
    if package is None:
        return ""
    return (
        f"{name!r} is in the package {package}, which is not installed: `pip install {package}`, or from a checkout of "
        f"tpk `pip install plugins/{package}`."
    )
