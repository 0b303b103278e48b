from .composition.factory import CallbackFactory as CallbackFactory
from .composition.hooks import (
    CallbackToHook as CallbackToHook,
    HookToCallback as HookToCallback,
)
from .composition.proxy import ProxyCallback as ProxyCallback
from .composition.trigger import (
    EnableCallbackIf as EnableCallbackIf,
    Every as Every,
    PeriodicCallback as PeriodicCallback,
    PeriodicTrigger as PeriodicTrigger,
)
from .debugging.debug_run import DebugRun as DebugRun
from .debugging.shell import InjectShell as InjectShell
from .graph_ops import (
    RunOp as RunOp,
    RunUpdateOps as RunUpdateOps,
)
from .guards.early_stopping import EarlyStopping as EarlyStopping
from .guards.max_time import MaxTime as MaxTime
from .guards.nan_guard import NanGuard as NanGuard
from .guards.session_timeout import SessionRunTimeout as SessionRunTimeout
from .guards.watchdog import Watchdog as Watchdog
from .hyper_params.human import HumanHyperParamSetter as HumanHyperParamSetter
from .hyper_params.learning_rate import LearningRateMonitor as LearningRateMonitor
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
    ObjAttrParam as ObjAttrParam,
    ScheduledHyperParamSetter as ScheduledHyperParamSetter,
    StatMonitorParamSetter as StatMonitorParamSetter,
)
from .inference.data_parallel import DataParallelInferenceRunner as DataParallelInferenceRunner
from .inference.inferencers import (
    BinaryClassificationStats as BinaryClassificationStats,
    ClassificationError as ClassificationError,
    Inferencer as Inferencer,
    ScalarStats as ScalarStats,
)
from .inference.metrics import MetricInferencer as MetricInferencer
from .inference.runner import InferenceRunner as InferenceRunner
from .inspection.gradients import GradientHistogram as GradientHistogram
from .inspection.images import (
    DumpParamAsImage as DumpParamAsImage,
    DumpTensorAsImage as DumpTensorAsImage,
)
from .inspection.numerics import CheckNumerics as CheckNumerics
from .inspection.profiler import GraphProfiler as GraphProfiler
from .inspection.tensors import (
    DumpTensors as DumpTensors,
    ProcessTensors as ProcessTensors,
    TensorPrinter as TensorPrinter,
)
from .processes.companions import (
    ShareSessionThread as ShareSessionThread,
    StartProcOrThread as StartProcOrThread,
)
from .processes.send_stat import SendStat as SendStat
from .savers.best import (
    MaxSaver as MaxSaver,
    MinSaver as MinSaver,
)
from .savers.keras import KerasSaver as KerasSaver
from .savers.model import ModelSaver as ModelSaver
from .statistics.epoch_means import EpochMeans as EpochMeans
from .statistics.gpu import (
    GPUMemoryTracker as GPUMemoryTracker,
    GPUUtilizationTracker as GPUUtilizationTracker,
)
from .statistics.host_memory import HostMemoryTracker as HostMemoryTracker
from .statistics.input_monitor import InputMonitor as InputMonitor
from .statistics.progress import (
    EstimatedTimeLeft as EstimatedTimeLeft,
    ProgressBar as ProgressBar,
)
from .statistics.summary import (
    MergeAllSummaries as MergeAllSummaries,
    MovingAverageSummary as MovingAverageSummary,
    SimpleMovingAverage as SimpleMovingAverage,
)
from .statistics.throughput import ThroughputTracker as ThroughputTracker
from .tensor_names import find_tensor as find_tensor
from .weight_averages import WithAveragedWeights as WithAveragedWeights
