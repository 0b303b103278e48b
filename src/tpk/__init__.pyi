"""What type checkers see of `tpk`; a test holds it equal to what `__init__.py` resolves."""

from tpk import (
    callbacks as callbacks,
    dataflow as dataflow,
    graph as graph,
    input_source as input_source,
    layers as layers,
    monitors as monitors,
    strategies as strategies,
)
from tpk.callbacks import (
    CallbackFactory as CallbackFactory,
    CallbackToHook as CallbackToHook,
    ClassificationError as ClassificationError,
    EnableCallbackIf as EnableCallbackIf,
    EstimatedTimeLeft as EstimatedTimeLeft,
    GraphVarParam as GraphVarParam,
    HookToCallback as HookToCallback,
    HyperParamSetterWithFunc as HyperParamSetterWithFunc,
    Inferencer as Inferencer,
    InferenceRunner as InferenceRunner,
    MergeAllSummaries as MergeAllSummaries,
    ModelSaver as ModelSaver,
    MovingAverageSummary as MovingAverageSummary,
    ObjAttrParam as ObjAttrParam,
    PeriodicCallback as PeriodicCallback,
    PeriodicTrigger as PeriodicTrigger,
    ProgressBar as ProgressBar,
    RunOp as RunOp,
    RunUpdateOps as RunUpdateOps,
    ScalarStats as ScalarStats,
    ScheduledHyperParamSetter as ScheduledHyperParamSetter,
    SimpleMovingAverage as SimpleMovingAverage,
    StatMonitorParamSetter as StatMonitorParamSetter,
    WithAveragedWeights as WithAveragedWeights,
)
from tpk.dataflow import (
    BatchData as BatchData,
    DataFlow as DataFlow,
    DataFromGenerator as DataFromGenerator,
    DataFromIterable as DataFromIterable,
    DataFromList as DataFromList,
    LocallyShuffleData as LocallyShuffleData,
    MapData as MapData,
    MapDataComponent as MapDataComponent,
    ProxyDataFlow as ProxyDataFlow,
    RepeatedData as RepeatedData,
    RNGDataFlow as RNGDataFlow,
)
from tpk.errors import (
    CheckpointError as CheckpointError,
    ConfigError as ConfigError,
    HookError as HookError,
    InputError as InputError,
    PluginError as PluginError,
    PluginImportError as PluginImportError,
    SessionError as SessionError,
    StopTraining as StopTraining,
    TowerError as TowerError,
    TpkError as TpkError,
    TrainerStateError as TrainerStateError,
    UnknownPluginError as UnknownPluginError,
)
from tpk.graph import (
    AccumGradOptimizer as AccumGradOptimizer,
    CheckGradient as CheckGradient,
    DynamicLossScaleOptimizer as DynamicLossScaleOptimizer,
    FilterNoneGrad as FilterNoneGrad,
    GlobalNormClip as GlobalNormClip,
    GradientProcessor as GradientProcessor,
    MapGradient as MapGradient,
    MovingAverageOptimizer as MovingAverageOptimizer,
    PostProcessOptimizer as PostProcessOptimizer,
    ProxyOptimizer as ProxyOptimizer,
    ScaleGradient as ScaleGradient,
    SummaryGradient as SummaryGradient,
    VariableAssignmentOptimizer as VariableAssignmentOptimizer,
    apply_grad_processors as apply_grad_processors,
    averaged_weights as averaged_weights,
)
from tpk.graph.objective import (
    Objective as Objective,
)
from tpk.graph.summaries import (
    add_activation_summary as add_activation_summary,
    add_moving_summary as add_moving_summary,
    add_param_summary as add_param_summary,
    add_tensor_summary as add_tensor_summary,
)
from tpk.input_source import (
    DummyConstantInput as DummyConstantInput,
    FeedInput as FeedInput,
    InputSource as InputSource,
    QueueInput as QueueInput,
    TensorInput as TensorInput,
    TFDatasetInput as TFDatasetInput,
    remap_input_source as remap_input_source,
)
from tpk.monitors import (
    CSVWriter as CSVWriter,
    JSONWriter as JSONWriter,
    Monitor as Monitor,
    Monitors as Monitors,
    ScalarPrinter as ScalarPrinter,
    TFEventWriter as TFEventWriter,
)
from tpk.plugin import (
    Callback as Callback,
    hookimpl as hookimpl,
    use as use,
)
from tpk.predict import (
    OnlinePredictor as OnlinePredictor,
)
from tpk.session import (
    DictRestore as DictRestore,
    HookedSession as HookedSession,
    NewSessionCreator as NewSessionCreator,
    ReuseSessionCreator as ReuseSessionCreator,
    SaverRestore as SaverRestore,
    SessionCreator as SessionCreator,
    SessionInit as SessionInit,
    default_session_config as default_session_config,
)
from tpk.strategies import (
    LeastLoadedDeviceSetter as LeastLoadedDeviceSetter,
    Strategy as Strategy,
    build_on_multi_tower as build_on_multi_tower,
    get_post_init_ops as get_post_init_ops,
)
from tpk.tower import (
    PredictTowerContext as PredictTowerContext,
    TowerContext as TowerContext,
    TowerFunc as TowerFunc,
    TrainTowerContext as TrainTowerContext,
    get_current_tower_context as get_current_tower_context,
)
from tpk.train import (
    AsyncMultiGPUTrainer as AsyncMultiGPUTrainer,
    ModelDesc as ModelDesc,
    MultiObjectiveTrainer as MultiObjectiveTrainer,
    QueueInputTrainer as QueueInputTrainer,
    SimpleTrainer as SimpleTrainer,
    SingleCostTrainer as SingleCostTrainer,
    SyncMultiGPUTrainer as SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer as SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated as SyncMultiGPUTrainerReplicated,
    TowerTrainer as TowerTrainer,
    TrainConfig as TrainConfig,
    Trainer as Trainer,
    launch_train_with_config as launch_train_with_config,
)

__version__: str
