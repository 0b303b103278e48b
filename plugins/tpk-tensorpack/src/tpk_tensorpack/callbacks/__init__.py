"""tensorpack's `callbacks`."""

from __future__ import annotations

from tpk_tensorpack.callbacks.base import (
    Callback,
    CallbackFactory,
    ProxyCallback,
)
from tpk_tensorpack.callbacks.concurrency import (
    StartProcOrThread,
)
from tpk_tensorpack.callbacks.graph import (
    CheckNumerics,
    DumpParamAsImage,
    DumpTensor,
    DumpTensorAsImage,
    DumpTensors,
    ProcessTensors,
    RunOp,
    RunUpdateOps,
    TFLocalCLIDebugHook,
)
from tpk_tensorpack.callbacks.group import (
    Callbacks,
)
from tpk_tensorpack.callbacks.hooks import (
    CallbackToHook,
    HookToCallback,
)
from tpk_tensorpack.callbacks.inference import (
    BinaryClassificationStats,
    ClassificationError,
    Inferencer,
    ScalarStats,
)
from tpk_tensorpack.callbacks.inference_runner import (
    DataParallelInferenceRunner,
    InferenceRunner,
    InferenceRunnerBase,
)
from tpk_tensorpack.callbacks.misc import (
    EstimatedTimeLeft,
    InjectShell,
    SendStat,
)
from tpk_tensorpack.callbacks.monitor import (
    CometMLMonitor,
    JSONWriter,
    MonitorBase,
    Monitors,
    ScalarPrinter,
    SendMonitorData,
    StatPrinter,
    TFEventWriter,
)
from tpk_tensorpack.callbacks.param import (
    GraphVarParam,
    HumanHyperParamSetter,
    HyperParam,
    HyperParamSetter,
    HyperParamSetterWithFunc,
    ObjAttrParam,
    ScheduledHyperParamSetter,
    StatMonitorParamSetter,
)
from tpk_tensorpack.callbacks.prof import (
    GPUMemoryTracker,
    GPUUtilizationTracker,
    GraphProfiler,
    HostMemoryTracker,
    PeakMemoryTracker,
    ThroughputTracker,
)
from tpk_tensorpack.callbacks.saver import (
    MaxSaver,
    MinSaver,
    ModelSaver,
)
from tpk_tensorpack.callbacks.steps import (
    ProgressBar,
    SessionRunTimeout,
    TensorPrinter,
)
from tpk_tensorpack.callbacks.summary import (
    MergeAllSummaries,
    MovingAverageSummary,
    SimpleMovingAverage,
)
from tpk_tensorpack.callbacks.trigger import (
    EnableCallbackIf,
    PeriodicCallback,
    PeriodicTrigger,
)

__all__ = [
    "BinaryClassificationStats",
    "Callback",
    "CallbackFactory",
    "CallbackToHook",
    "Callbacks",
    "CheckNumerics",
    "ClassificationError",
    "CometMLMonitor",
    "DataParallelInferenceRunner",
    "DumpParamAsImage",
    "DumpTensor",
    "DumpTensorAsImage",
    "DumpTensors",
    "EnableCallbackIf",
    "EstimatedTimeLeft",
    "GPUMemoryTracker",
    "GPUUtilizationTracker",
    "GraphProfiler",
    "GraphVarParam",
    "HookToCallback",
    "HostMemoryTracker",
    "HumanHyperParamSetter",
    "HyperParam",
    "HyperParamSetter",
    "HyperParamSetterWithFunc",
    "InferenceRunner",
    "InferenceRunnerBase",
    "Inferencer",
    "InjectShell",
    "JSONWriter",
    "MaxSaver",
    "MergeAllSummaries",
    "MinSaver",
    "ModelSaver",
    "MonitorBase",
    "Monitors",
    "MovingAverageSummary",
    "ObjAttrParam",
    "PeakMemoryTracker",
    "PeriodicCallback",
    "PeriodicTrigger",
    "ProcessTensors",
    "ProgressBar",
    "ProxyCallback",
    "RunOp",
    "RunUpdateOps",
    "ScalarPrinter",
    "ScalarStats",
    "ScheduledHyperParamSetter",
    "SendMonitorData",
    "SendStat",
    "SessionRunTimeout",
    "SimpleMovingAverage",
    "StartProcOrThread",
    "StatMonitorParamSetter",
    "StatPrinter",
    "TFEventWriter",
    "TFLocalCLIDebugHook",
    "TensorPrinter",
    "ThroughputTracker",
]
