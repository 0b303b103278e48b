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
_MONITORS = "TFEventWriter JSONWriter CSVWriter ScalarPrinter".split()  # noqa: SIM905 - a table of names reads better
_NAMED_TRAINERS = (  # noqa: SIM905 - a table of names reads better in lines
    "NoOpTrainer SimpleTrainer QueueInputTrainer AsyncMultiGPUTrainer SyncMultiGPUTrainer "
    "SyncMultiGPUTrainerParameterServer SyncMultiGPUTrainerReplicated CollectiveTrainer DistributedReplicatedTrainer "
    "DistributedParameterServerTrainer"
).split()

BUILTINS: dict[str, dict[str, str]] = {
    "trainer": {
        "MultiObjectiveTrainer": "tpk.train.multi_objective:MultiObjectiveTrainer",
        "SingleCostTrainer": "tpk.train.tower_trainer:SingleCostTrainer",
        **{name: f"tpk.train.trainers:{name}" for name in _NAMED_TRAINERS},
    },
    "strategy": {
        "single": "tpk.strategies.single:SingleStrategy",
        "async": "tpk.strategies.asynchronous:AsyncStrategy",
        "replicated": "tpk.strategies.replicated:ReplicatedStrategy",
        "parameter_server": "tpk.strategies.parameter_server:ParameterServerStrategy",
        "collective": "tpk.strategies:CollectiveStrategy",
        "distributed_replicated": "tpk.strategies:DistributedReplicatedStrategy",
        "distributed_parameter_server": "tpk.strategies:DistributedParameterServerStrategy",
    },
    "monitor": {name: f"tpk.monitors:{name}" for name in _MONITORS},
    "callback": {name: f"tpk.callbacks:{name}" for name in _CALLBACKS},
    "plugin": {},
}
"""``"module:attr"`` by kind and name."""

PACKAGES = {"HorovodTrainer": "tpk-horovod", "horovod": "tpk-horovod", "prometheus": "tpk-prometheus"}
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
