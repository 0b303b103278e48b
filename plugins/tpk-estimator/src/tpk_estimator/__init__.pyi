from . import contrib as contrib, experimental as experimental, export as export, inputs as inputs, tpu as tpu
from .canned import (
    BaselineClassifier as BaselineClassifier,
    BaselineEstimator as BaselineEstimator,
    BaselineRegressor as BaselineRegressor,
    DNNClassifier as DNNClassifier,
    DNNEstimator as DNNEstimator,
    DNNLinearCombinedClassifier as DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator as DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor as DNNLinearCombinedRegressor,
    DNNRegressor as DNNRegressor,
    LinearClassifier as LinearClassifier,
    LinearEstimator as LinearEstimator,
    LinearRegressor as LinearRegressor,
)
from .estimator import Estimator as Estimator
from .evaluated_training import (
    EvalSpec as EvalSpec,
    TrainSpec as TrainSpec,
    train_and_evaluate as train_and_evaluate,
)
from .exporters import (
    BestExporter as BestExporter,
    Exporter as Exporter,
    FinalExporter as FinalExporter,
    LatestExporter as LatestExporter,
)
from .extend import add_metrics as add_metrics
from .heads import (
    BinaryClassHead as BinaryClassHead,
    Head as Head,
    LogisticRegressionHead as LogisticRegressionHead,
    MultiClassHead as MultiClassHead,
    MultiLabelHead as MultiLabelHead,
    PoissonRegressionHead as PoissonRegressionHead,
    RegressionHead as RegressionHead,
)
from .hooks import (
    CheckpointSaverHook as CheckpointSaverHook,
    CheckpointSaverListener as CheckpointSaverListener,
    FeedFnHook as FeedFnHook,
    FinalOpsHook as FinalOpsHook,
    GlobalStepWaiterHook as GlobalStepWaiterHook,
    LoggingTensorHook as LoggingTensorHook,
    NanLossDuringTrainingError as NanLossDuringTrainingError,
    NanTensorHook as NanTensorHook,
    ProfilerHook as ProfilerHook,
    SecondOrStepTimer as SecondOrStepTimer,
    SessionRunArgs as SessionRunArgs,
    SessionRunContext as SessionRunContext,
    SessionRunHook as SessionRunHook,
    SessionRunValues as SessionRunValues,
    StepCounterHook as StepCounterHook,
    StopAtStepHook as StopAtStepHook,
    SummarySaverHook as SummarySaverHook,
)
from .run_config import RunConfig as RunConfig
from .spec import EstimatorSpec as EstimatorSpec, ModeKeys as ModeKeys
from .warm_start import VocabInfo as VocabInfo, WarmStartSettings as WarmStartSettings
