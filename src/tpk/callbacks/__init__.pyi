from .best_saver import (
    MaxSaver as MaxSaver,
    MinSaver as MinSaver,
)
from .early_stopping import EarlyStopping as EarlyStopping
from .epoch_means import EpochMeans as EpochMeans
from .factory import CallbackFactory as CallbackFactory
from .graph_ops import (
    RunOp as RunOp,
    RunUpdateOps as RunUpdateOps,
)
from .hooks import (
    CallbackToHook as CallbackToHook,
    HookToCallback as HookToCallback,
)
from .hyper_params import (
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
from .input_monitor import InputMonitor as InputMonitor
from .keras_saver import KerasSaver as KerasSaver
from .learning_rate import LearningRateMonitor as LearningRateMonitor
from .nan_guard import NanGuard as NanGuard
from .progress import (
    EstimatedTimeLeft as EstimatedTimeLeft,
    ProgressBar as ProgressBar,
)
from .proxy import ProxyCallback as ProxyCallback
from .saver import ModelSaver as ModelSaver
from .summary import (
    MergeAllSummaries as MergeAllSummaries,
    MovingAverageSummary as MovingAverageSummary,
    SimpleMovingAverage as SimpleMovingAverage,
)
from .throughput import ThroughputTracker as ThroughputTracker
from .trigger import (
    EnableCallbackIf as EnableCallbackIf,
    Every as Every,
    PeriodicCallback as PeriodicCallback,
    PeriodicTrigger as PeriodicTrigger,
)
from .watchdog import Watchdog as Watchdog
from .weight_averages import WithAveragedWeights as WithAveragedWeights
