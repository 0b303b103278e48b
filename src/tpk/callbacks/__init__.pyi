from .averaged_weights import WithAveragedWeights as WithAveragedWeights
from .background import (
    SendStat as SendStat,
    ShareSessionThread as ShareSessionThread,
    StartProcOrThread as StartProcOrThread,
)
from .debugging import DebugRun as DebugRun, InjectShell as InjectShell
from .factory import CallbackFactory as CallbackFactory
from .graph_ops import (
    RunOp as RunOp,
    RunUpdateOps as RunUpdateOps,
)
from .guards.hangs import SessionRunTimeout as SessionRunTimeout, Watchdog as Watchdog
from .guards.nan import CheckNumerics as CheckNumerics, NanGuard as NanGuard
from .guards.stopping import EarlyStopping as EarlyStopping, MaxTime as MaxTime
from .hyper_params.human import HumanHyperParamSetter as HumanHyperParamSetter
from .hyper_params.lr_finder import LRFinder as LRFinder
from .hyper_params.schedules import (
    CosineSchedule as CosineSchedule,
    ExponentialSchedule as ExponentialSchedule,
    JoinedSchedule as JoinedSchedule,
    LinearSchedule as LinearSchedule,
    OneCycleSchedule as OneCycleSchedule,
    PolynomialSchedule as PolynomialSchedule,
    Schedule as Schedule,
    StepSchedule as StepSchedule,
)
from .hyper_params.setters import (
    GraphVarParam as GraphVarParam,
    HyperParam as HyperParam,
    HyperParamSetter as HyperParamSetter,
    HyperParamSetterWithFunc as HyperParamSetterWithFunc,
    LearningRateMonitor as LearningRateMonitor,
    ObjAttrParam as ObjAttrParam,
    ScheduledHyperParamSetter as ScheduledHyperParamSetter,
    StatMonitorParamSetter as StatMonitorParamSetter,
)
from .inference.inferencers import (
    Accuracy as Accuracy,
    BinaryClassificationStats as BinaryClassificationStats,
    ClassificationError as ClassificationError,
    Inferencer as Inferencer,
    MetricInferencer as MetricInferencer,
    ScalarStats as ScalarStats,
)
from .inference.runner import (
    DataParallelInferenceRunner as DataParallelInferenceRunner,
    InferenceRunner as InferenceRunner,
)
from .inspection.images import (
    DumpParamAsImage as DumpParamAsImage,
    DumpTensorAsImage as DumpTensorAsImage,
)
from .inspection.profiler import GraphProfiler as GraphProfiler
from .inspection.tensors import (
    DumpTensors as DumpTensors,
    GradientHistogram as GradientHistogram,
    ProcessTensors as ProcessTensors,
    TensorPrinter as TensorPrinter,
)
from .run_tensors import find_tensor as find_tensor
from .savers import (
    MaxSaver as MaxSaver,
    MinSaver as MinSaver,
    ModelSaver as ModelSaver,
)
from .session_hooks import (
    CallbackToHook as CallbackToHook,
    HookToCallback as HookToCallback,
)
from .statistics.epoch_means import EpochMeans as EpochMeans
from .statistics.followed import StatisticFollower as StatisticFollower
from .statistics.merged_summaries import (
    MergeAllSummaries as MergeAllSummaries,
    MovingAverageSummary as MovingAverageSummary,
    SimpleMovingAverage as SimpleMovingAverage,
)
from .statistics.progress_bar import (
    EstimatedTimeLeft as EstimatedTimeLeft,
    ProgressBar as ProgressBar,
)
from .statistics.rates import InputMonitor as InputMonitor, ThroughputTracker as ThroughputTracker
from .statistics.trackers import (
    GPUMemoryTracker as GPUMemoryTracker,
    GPUUtilizationTracker as GPUUtilizationTracker,
    HostMemoryTracker as HostMemoryTracker,
)
from .triggers import (
    EnableCallbackIf as EnableCallbackIf,
    Every as Every,
    PeriodicCallback as PeriodicCallback,
    PeriodicTrigger as PeriodicTrigger,
    ProxyCallback as ProxyCallback,
)
