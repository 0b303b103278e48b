"""The built-in callbacks: what happens besides the training itself. One file a topic."""

from __future__ import annotations

from tpk.callbacks.best_saver import MaxSaver, MinSaver
from tpk.callbacks.data_parallel_inference import DataParallelInferenceRunner
from tpk.callbacks.early_stopping import EarlyStopping
from tpk.callbacks.factory import CallbackFactory
from tpk.callbacks.graph_ops import RunOp, RunUpdateOps
from tpk.callbacks.hooks import CallbackToHook, HookToCallback
from tpk.callbacks.hyper_param_setters import (
    HyperParamSetter,
    HyperParamSetterWithFunc,
    ScheduledHyperParamSetter,
    StatMonitorParamSetter,
)
from tpk.callbacks.hyper_params import GraphVarParam, HyperParam, ObjAttrParam
from tpk.callbacks.inference_runner import InferenceRunner
from tpk.callbacks.inferencers import BinaryClassificationStats, ClassificationError, Inferencer, ScalarStats
from tpk.callbacks.input_monitor import InputMonitor
from tpk.callbacks.keras_saver import KerasSaver
from tpk.callbacks.metric_inferencer import MetricInferencer
from tpk.callbacks.nan_guard import NanGuard
from tpk.callbacks.progress_bar import ProgressBar
from tpk.callbacks.proxy import ProxyCallback
from tpk.callbacks.saver import ModelSaver
from tpk.callbacks.summary import MergeAllSummaries, MovingAverageSummary, SimpleMovingAverage
from tpk.callbacks.timing import EstimatedTimeLeft
from tpk.callbacks.trigger import EnableCallbackIf, PeriodicCallback, PeriodicTrigger
from tpk.callbacks.watchdog import Watchdog
from tpk.callbacks.weight_averages import WithAveragedWeights

__all__ = [
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
    "HyperParam",
    "HyperParamSetter",
    "HyperParamSetterWithFunc",
    "InferenceRunner",
    "Inferencer",
    "InputMonitor",
    "KerasSaver",
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
    "ProxyCallback",
    "RunOp",
    "RunUpdateOps",
    "ScalarStats",
    "ScheduledHyperParamSetter",
    "SimpleMovingAverage",
    "StatMonitorParamSetter",
    "Watchdog",
    "WithAveragedWeights",
]
