"""The converter's table of tensorpack names and their equivalents in tpk.

Objects that are identical in both are found automatically and need no entry. An entry in `CONVERTED` is a name with the
same meaning, except for its arguments. `KEPT` says why other names are kept; names in neither are kept without a
comment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

import tpk


@attrs.frozen
class Rule:
    """The conversion rule of a name.

    Attributes:
        name: the name in tensorpack.
        renamed: arguments with different names in tpk.
        added: arguments to add to calls without them, because tpk's default is different.
        dropped: arguments without a meaning in tpk.
        kept_with: arguments that prevent the conversion of a call, and why.
        kind: the kind of class, for classes that derive from it; empty to keep those unchanged.
        note: a difference that requires no action.
        to: the name in tpk.
    """

    name: str
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    added: Mapping[str, str] = attrs.field(factory=dict)
    dropped: tuple[str, ...] = ()
    kept_with: Mapping[str, str] = attrs.field(factory=dict)
    kind: str = ""
    note: str = ""
    to: str = attrs.field()

    @to.default
    def _same_name(self) -> str:
        return self.name

    @property
    def ours(self) -> Any:
        """The object in tpk."""
        return getattr(tpk, self.to)


_NEED_NOT_MATCH = {"must_match": "False"}
_WANTS_VALUES = "a variable without a value is an error in tpk; tensorpack kept its initial value"

_NAMES_STEPS = "its file names end with the step; tpk also finds them by the name without it"

_RULES = (
    # Callbacks.
    Rule("Callback", kind="callback"),
    Rule("EstimatedTimeLeft", kind="callback"),
    Rule("GPUMemoryTracker", added={"devices": "(0,)"}, kind="callback"),
    Rule("GPUUtilizationTracker", kind="callback"),
    Rule("GraphProfiler", added={"steps": "None", "dump_profile": "False"}, kind="callback"),
    Rule("HostMemoryTracker", kind="callback"),
    Rule("InjectShell", added={"shell": '"ipython"'}, kind="callback"),
    Rule("MergeAllSummaries", kind="callback"),
    Rule("MovingAverageSummary", kind="callback"),
    Rule("PeakMemoryTracker", to="GPUMemoryTracker", added={"devices": "(0,)"}, kind="callback"),
    Rule("ProcessTensors", renamed={"names": "tensors"}, kind="callback"),
    Rule("ProgressBar", kind="callback"),
    Rule("RunOp", kind="callback"),
    Rule("RunUpdateOps", kind="callback"),
    Rule("SendStat", kind="callback"),
    Rule("SessionRunTimeout", kind="callback"),
    Rule("SimpleMovingAverage", kind="callback"),
    Rule("StartProcOrThread", dropped=("stop_at_last",), kind="callback"),
    Rule("TensorPrinter", renamed={"names": "tensors"}, kind="callback"),
    Rule("EnableCallbackIf"),
    Rule("PeriodicTrigger", renamed={"triggerable": "callback"}),
    # Savers.
    Rule("MaxSaver", kind="callback", note=_NAMES_STEPS),
    Rule("MinSaver", kept_with={"reverse": "tpk has MaxSaver for it"}, kind="callback", note=_NAMES_STEPS),
    Rule(
        "ModelSaver",
        added={"keep_checkpoint_every_n_hours": "0.5"},
        kept_with={"var_collections": "tpk's takes the variables themselves, as var_list"},
        kind="callback",
    ),
    # Hyperparameters.
    Rule("GraphVarParam", dropped=("shape",)),
    Rule("HumanHyperParamSetter", renamed={"file_name": "path"}, kind="callback"),
    Rule("HyperParamSetter", kind="callback"),
    Rule("HyperParamSetterWithFunc", kind="callback"),
    Rule("ObjAttrParam", renamed={"attrname": "attr"}),
    Rule(
        "ScheduledHyperParamSetter",
        kept_with={"set_at_beginning": "tpk's always sets the value of the schedule for the first epoch"},
        kind="callback",
    ),
    # Evaluation.
    Rule("BinaryClassificationStats", note="it also reports F1"),
    Rule("ClassificationError"),
    Rule(
        "DataParallelInferenceRunner",
        renamed={"gpus": "devices"},
        kept_with={"tower_name": "tpk's default is different"},
    ),
    Rule("InferenceRunner", kept_with={"device": "tpk's devices takes device strings"}),
    Rule("Inferencer", kind="inferencer"),
    Rule("ScalarStats", note="it weights each batch by its size"),
    # Monitors.
    Rule("JSONWriter", note="it writes stats.jsonl, a line for each step that reports anything"),
    Rule("MonitorBase", to="Monitor", kind="callback"),
    Rule("ScalarPrinter"),
    Rule("TFEventWriter"),
    # Input.
    Rule("BatchQueueInput", renamed={"ds": "flow"}, note="the callback InputMonitor reports on it"),
    Rule("DummyConstantInput"),
    Rule("FeedInput", renamed={"ds": "flow"}),
    Rule(
        "QueueInput",
        renamed={"ds": "flow"},
        note="it does not report QueueInput/queue_size; the callback InputMonitor shows whether the data is too slow",
    ),
    Rule("StagingInput", renamed={"input": "source"}, kept_with={"device": "tpk's takes a list, as devices"}),
    Rule("TFDatasetInput"),
    Rule("TensorInput"),
    # Data.
    Rule("DataFromList", renamed={"lst": "items"}, added={"shuffle": "True"}),
    Rule("CacheData", renamed={"ds": "flow"}),
    Rule("DataFlow", kind="flow"),
    Rule("DataFromGenerator", renamed={"gen": "generator"}),
    Rule("DataFromIterable"),
    Rule("DataFromQueue"),
    Rule("FixedSizeData", renamed={"ds": "flow"}),
    Rule("MapData", renamed={"ds": "flow"}),
    Rule("MapDataComponent", renamed={"ds": "flow", "index": "component"}),
    Rule("PrintData", renamed={"ds": "flow"}),
    Rule("RepeatedData", renamed={"ds": "flow"}),
    Rule("RepeatedDataPoint", renamed={"ds": "flow"}),
    # Training; these are converted together or not at all.
    Rule("AsyncMultiGPUTrainer", renamed={"gpus": "devices"}, kind="trainer"),
    Rule("AutoResumeTrainConfig", to="TrainConfig", added={"resume": '"auto"'}, dropped=("always_resume",)),
    Rule("ModelDesc", kind="model"),
    Rule("NoOpTrainer", kind="trainer"),
    Rule("QueueInputTrainer", kind="trainer"),
    Rule("SimpleTrainer", kind="trainer"),
    Rule("SingleCostTrainer", kind="trainer"),
    Rule("SyncMultiGPUTrainer", renamed={"gpus": "devices"}, added={"ps_device": '"cpu"'}, kind="trainer"),
    Rule("SyncMultiGPUTrainerParameterServer", renamed={"gpus": "devices"}, kind="trainer"),
    Rule("SyncMultiGPUTrainerReplicated", renamed={"gpus": "devices"}, kind="trainer"),
    Rule("TowerTrainer", kind="trainer"),
    Rule("TrainConfig"),
    Rule("Trainer", kind="trainer"),
    Rule("launch_train_with_config"),
    # Values of variables.
    Rule("ChainInit", renamed={"sess_inits": "inits"}),
    Rule("DictRestore", renamed={"variable_dict": "values"}, added=_NEED_NOT_MATCH),
    Rule("SaverRestore", renamed={"model_path": "path"}, added=_NEED_NOT_MATCH),
    Rule("SaverRestoreRelaxed", renamed={"model_path": "path"}, added=_NEED_NOT_MATCH),
    Rule("SmartInit", added=_NEED_NOT_MATCH),
    Rule("get_model_loader", to="SmartInit", added=_NEED_NOT_MATCH),
    # Prediction; these are converted together or not at all.
    Rule("OfflinePredictor"),
    Rule("PredictConfig", note=_WANTS_VALUES),
    # The graph.
    Rule("add_activation_summary", renamed={"x": "tensor"}),
    Rule("add_param_summary"),
    Rule("add_tensor_summary", renamed={"x": "tensor"}, dropped=("main_tower_only",)),
    Rule("TowerContext", to="TrainTowerContext", renamed={"tower_name": "ns_name"}, dropped=("is_training",)),
    Rule("TowerFunc", renamed={"tower_fn": "func"}),
    Rule("apply_grad_processors", renamed={"opt": "optimizer", "gradprocs": "processors"}),
)

CONVERTED = {rule.name: rule for rule in _RULES}

EXPRESSIONS = {
    "DEFAULT_CALLBACKS": "[tpk.MovingAverageSummary(), tpk.ProgressBar(), tpk.MergeAllSummaries(), tpk.RunUpdateOps()]",
    "DEFAULT_MONITORS": "[tpk.TFEventWriter(), tpk.JSONWriter(), tpk.ScalarPrinter()]",
}
"""Functions without arguments, and replacements for their calls."""

TRAINING = frozenset(
    {"AutoResumeTrainConfig", "DEFAULT_CALLBACKS", "DEFAULT_MONITORS", "TrainConfig", "launch_train_with_config"}
    | {rule.name for rule in _RULES if rule.kind == "trainer"}
)
"""Names that are converted together, because a configuration and its launcher must match."""

STAY_WITH_TRAINING = {"MergeAllSummaries": "it evaluates them in each run of a step, tpk's only in the first"}
"""Names that are converted unless the trainer is kept, and why."""

REWRITTEN = frozenset(
    {"JSONWriter", "MaxSaver", "MinSaver", "OfflinePredictor", "SaverRestoreRelaxed", "ScalarPrinter"}
)
"""Classes that have the same meaning but no base class in tpk."""

CALLED = frozenset({"OfflinePredictor", "PredictConfig", "TowerContext"})
"""Names that are converted only in calls, because their arguments decide."""

SESSION_INITS = frozenset(
    {"ChainInit", "DictRestore", "SaverRestore", "SaverRestoreRelaxed", "SmartInit", "get_model_loader"}
)

SEVERAL_DEVICES = frozenset(rule.name for rule in _RULES if rule.kind == "trainer" and "gpus" in rule.renamed)
"""Trainers for which tpk has a different default of steps per epoch."""

_LAYERS = "their variables are W and b, as in checkpoints; tpk.layers has kernel and bias"
_KEEPS_MEANING = "tpk's has a different meaning"

KEPT: dict[str, str] = {
    **dict.fromkeys(
        ("AvgPooling", "BatchNorm", "BNReLU", "Conv2D", "Conv2DTranspose", "Deconv2D", "Dropout", "FixedUnPooling"),
        _LAYERS,
    ),
    **dict.fromkeys(
        ("FullyConnected", "GlobalAvgPooling", "InstanceNorm", "LayerNorm", "LinearWrap", "MaxPooling", "Maxout"),
        _LAYERS,
    ),
    **dict.fromkeys(("PReLU", "argscope", "layer_register"), _LAYERS),
    "AccumGradOptimizer": "it applies the sum of the gradients; tpk's applies their mean",
    "BatchData": "it converts Python integers to int32 and floats to float32; tpk's to int64 and float64",
    "BatchDataByShape": "it converts Python integers to int32 and floats to float32; tpk's to int64 and float64",
    "CallbackFactory": _KEEPS_MEANING,
    "CheckNumerics": "tpk's wraps the run of a step, and names the op",
    "ConcatData": "it may contain a flow several times",
    "DumpParamAsImage": _KEEPS_MEANING,
    "DumpTensorAsImage": _KEEPS_MEANING,
    "DumpTensors": "tpk's files have different keys",
    "JoinData": "it may contain a flow several times",
    "LocallyShuffleData": "it draws from a RandomState",
    "ModelDescBase": "tpk only has models with one cost and one optimizer",
    "ModelExporter": "tpk's takes names for inputs and outputs; see tpk export",
    "ProxyDataFlow": "tpk's has its wrapped flow as flow, not ds",
    "RNGDataFlow": "its rng is a RandomState; tpk's is a numpy.random.Generator",
    "StatMonitorParamSetter": "it looks at the last last_k values; tpk's at one more",
    "ThroughputTracker": "tpk's statistic has a different name",
    "add_moving_summary": "tpk's reports the mean over the epoch by this name, and this average as <name>/EMA",
    "regularize_cost": "it searches for the expression; tpk's must match the whole name",
    "regularize_cost_from_collection": "it is 0 in an inference tower",
}
"""Names that are kept although tpk has something similar, and why."""

HOOKS: dict[str, tuple[str, ...]] = {
    "setup_graph": ("trainer",),
    "before_train": ("trainer",),
    "before_epoch": ("trainer",),
    "before_run": ("run_context",),
    "after_run": ("run_context", "run_values"),
    "trigger_step": ("trainer",),
    "after_epoch": ("trainer",),
    "trigger_epoch": ("trainer",),
    "after_train": ("trainer",),
    "trigger": ("trainer",),
    "get_value_to_set": (),
}
"""Methods of tensorpack's callbacks whose names begin with an underscore, and the arguments of tpk's methods."""

INFERENCER_METHODS = ("get_fetches", "before_inference", "on_fetches", "after_inference")
MODEL_METHODS = ("inputs", "build_graph", "optimizer")

LOGGER_METHODS = {
    **{name: name for name in ("info", "warning", "error", "critical", "exception", "debug", "setLevel", "addFilter")},
    "warn": "warning",
}
"""Functions of `logger` and the corresponding methods of Python's loggers."""

SAME_CALLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        [f"reduce_{kind}" for kind in ("all", "any", "logsumexp", "max", "mean", "min", "prod", "sum")],
        ("input_tensor", "axis", "keepdims", "name"),
    ),
    "argmax": ("input", "axis"),
    "argmin": ("input", "axis"),
    "constant": ("value", "dtype", "shape", "name"),
    "convert_to_tensor": ("value", "dtype", "name"),
    "expand_dims": ("input", "axis", "name"),
    "gather": ("params", "indices", "name"),
    "gradients": ("ys", "xs", "grad_ys", "name", "stop_gradients"),
    "name_scope": ("name",),
    "ones_like": ("tensor", "dtype", "name"),
    "pad": ("tensor", "paddings", "mode", "constant_values", "name"),
    "shape": ("input", "name"),
    "size": ("input", "name"),
    "squeeze": ("input", "axis", "name"),
    "transpose": ("a", "perm", "name"),
    "zeros_like": ("tensor", "dtype", "name"),
    "nn.in_top_k": ("predictions", "targets", "k", "name"),
    "nn.leaky_relu": ("features", "alpha", "name"),
    "nn.log_softmax": ("logits", "axis", "name"),
    "nn.moments": ("x", "axes", "keepdims", "name"),
    "nn.sigmoid_cross_entropy_with_logits": ("labels", "logits", "name"),
    "nn.softmax": ("logits", "axis", "name"),
    "nn.sparse_softmax_cross_entropy_with_logits": ("labels", "logits", "name"),
}
"""Functions whose calls mean the same in TensorFlow 1 and 2 if they have only these arguments.

Positional arguments must have the same position in both.
"""

OUTSIDE_OF_TRAININGS = frozenset(
    {
        "Dimension",
        "InteractiveSession",
        "Session",
        "case",
        "cond",
        "global_variables_initializer",
        "initialize_all_variables",
        "map_fn",
        "nn.bidirectional_dynamic_rnn",
        "nn.dynamic_rnn",
        "nn.raw_rnn",
        "placeholder",
        "placeholder_with_default",
        "scan",
        "set_random_seed",
        "train.Saver",
        "train.import_meta_graph",
        "while_loop",
    }
)
"""Names that require TensorFlow 1 behavior: a default graph, sessions, its own control flow."""

NUMPY_EXPRESSIONS = {"NINF": "-{np}.inf", "NZERO": "-0.0", "PZERO": "0.0"}
"""Former NumPy names without an equivalent."""

OUTSIDE_OF_GRAPHS = frozenset(
    {
        "ConfigProto",
        "GPUOptions",
        "Graph",
        "TensorSpec",
        "app",
        "data",
        "errors",
        "flags",
        "gfile",
        "io",
        "logging",
        "test",
    }
)
"""TensorFlow names that may be called at module level, without a default graph."""
