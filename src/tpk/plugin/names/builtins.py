"""The plugins that come with tpk: where each name leads. Nothing is imported until it is named."""

from __future__ import annotations

import functools

from tpk import __version__
from tpk.plugin.names.entry import CatalogEntry

BUILTINS: dict[str, dict[str, str]] = {
    "trainer": {
        "MultiObjectiveTrainer": "tpk.train.multi_objective:MultiObjectiveTrainer",
        "SingleCostTrainer": "tpk.train.tower_trainer:SingleCostTrainer",
        "NoOpTrainer": "tpk.train.trainers:NoOpTrainer",
        "SimpleTrainer": "tpk.train.trainers:SimpleTrainer",
        "QueueInputTrainer": "tpk.train.trainers:QueueInputTrainer",
        "AsyncMultiGPUTrainer": "tpk.train.trainers:AsyncMultiGPUTrainer",
        "SyncMultiGPUTrainer": "tpk.train.trainers:SyncMultiGPUTrainer",
        "SyncMultiGPUTrainerParameterServer": "tpk.train.trainers:SyncMultiGPUTrainerParameterServer",
        "SyncMultiGPUTrainerReplicated": "tpk.train.trainers:SyncMultiGPUTrainerReplicated",
        "CollectiveTrainer": "tpk.train.trainers:CollectiveTrainer",
        "DistributedReplicatedTrainer": "tpk.train.trainers:DistributedReplicatedTrainer",
        "DistributedParameterServerTrainer": "tpk.train.trainers:DistributedParameterServerTrainer",
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
    "monitor": {
        "TFEventWriter": "tpk.monitors:TFEventWriter",
        "JSONWriter": "tpk.monitors:JSONWriter",
        "CSVWriter": "tpk.monitors:CSVWriter",
        "ScalarPrinter": "tpk.monitors:ScalarPrinter",
    },
    "callback": {
        "MovingAverageSummary": "tpk.callbacks:MovingAverageSummary",
        "EpochMeans": "tpk.callbacks:EpochMeans",
        "LearningRateMonitor": "tpk.callbacks:LearningRateMonitor",
        "ThroughputTracker": "tpk.callbacks:ThroughputTracker",
        "HostMemoryTracker": "tpk.callbacks:HostMemoryTracker",
        "GPUUtilizationTracker": "tpk.callbacks:GPUUtilizationTracker",
        "GPUMemoryTracker": "tpk.callbacks:GPUMemoryTracker",
        "ProgressBar": "tpk.callbacks:ProgressBar",
        "MergeAllSummaries": "tpk.callbacks:MergeAllSummaries",
        "RunUpdateOps": "tpk.callbacks:RunUpdateOps",
        "ModelSaver": "tpk.callbacks:ModelSaver",
        "KerasSaver": "tpk.callbacks:KerasSaver",
        "MinSaver": "tpk.callbacks:MinSaver",
        "MaxSaver": "tpk.callbacks:MaxSaver",
        "EarlyStopping": "tpk.callbacks:EarlyStopping",
        "MaxTime": "tpk.callbacks:MaxTime",
        "InferenceRunner": "tpk.callbacks:InferenceRunner",
        "DataParallelInferenceRunner": "tpk.callbacks:DataParallelInferenceRunner",
        "InputMonitor": "tpk.callbacks:InputMonitor",
        "NanGuard": "tpk.callbacks:NanGuard",
        "Watchdog": "tpk.callbacks:Watchdog",
        "SessionRunTimeout": "tpk.callbacks:SessionRunTimeout",
        "StartProcOrThread": "tpk.callbacks:StartProcOrThread",
        "SendStat": "tpk.callbacks:SendStat",
        "DebugRun": "tpk.callbacks:DebugRun",
        "InjectShell": "tpk.callbacks:InjectShell",
        "PeriodicTrigger": "tpk.callbacks:PeriodicTrigger",
        "PeriodicCallback": "tpk.callbacks:PeriodicCallback",
        "EnableCallbackIf": "tpk.callbacks:EnableCallbackIf",
        "CallbackFactory": "tpk.callbacks:CallbackFactory",
        "RunOp": "tpk.callbacks:RunOp",
        "ScheduledHyperParamSetter": "tpk.callbacks:ScheduledHyperParamSetter",
        "HumanHyperParamSetter": "tpk.callbacks:HumanHyperParamSetter",
        "HyperParamSetterWithFunc": "tpk.callbacks:HyperParamSetterWithFunc",
        "StatMonitorParamSetter": "tpk.callbacks:StatMonitorParamSetter",
        "LRFinder": "tpk.callbacks:LRFinder",
        "SimpleMovingAverage": "tpk.callbacks:SimpleMovingAverage",
        "EstimatedTimeLeft": "tpk.callbacks:EstimatedTimeLeft",
        "HookToCallback": "tpk.callbacks:HookToCallback",
        "WithAveragedWeights": "tpk.callbacks:WithAveragedWeights",
        "GraphProfiler": "tpk.callbacks:GraphProfiler",
        "DumpTensors": "tpk.callbacks:DumpTensors",
        "DumpTensorAsImage": "tpk.callbacks:DumpTensorAsImage",
        "DumpParamAsImage": "tpk.callbacks:DumpParamAsImage",
        "TensorPrinter": "tpk.callbacks:TensorPrinter",
        "ProcessTensors": "tpk.callbacks:ProcessTensors",
        "CheckNumerics": "tpk.callbacks:CheckNumerics",
        "GradientHistogram": "tpk.callbacks:GradientHistogram",
    },
    "plugin": {},
}
"""Kind, then name, to ``"module:attr"``."""


PACKAGES = {"HorovodTrainer": "tpk-horovod", "horovod": "tpk-horovod", "prometheus": "tpk-prometheus"}
"""The names of plugins that tpk's own repository has in packages of their own, and these packages."""


def not_installed(name: str) -> str:
    """Return what to say of a plugin that is in a package of its own which is not installed; else an empty string."""
    package = PACKAGES.get(name)
    if package is None:
        return ""
    return (
        f"{name!r} is in the package {package}, which is not installed: `pip install {package}`, or from a checkout of "
        f"tpk `pip install plugins/{package}`."
    )


@functools.cache
def builtin_entries() -> tuple[CatalogEntry, ...]:
    """Return what is built in, as the catalog lists it."""
    return tuple(
        CatalogEntry(kind, name, target, "tpk", __version__)
        for kind, targets in BUILTINS.items()
        for name, target in targets.items()
    )
