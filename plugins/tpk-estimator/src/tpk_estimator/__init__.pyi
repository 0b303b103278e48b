from . import export as export, inputs as inputs
from .estimator import Estimator as Estimator
from .heads import (
    BinaryClassHead as BinaryClassHead,
    Head as Head,
    LogisticRegressionHead as LogisticRegressionHead,
    MultiClassHead as MultiClassHead,
    MultiLabelHead as MultiLabelHead,
    PoissonRegressionHead as PoissonRegressionHead,
    RegressionHead as RegressionHead,
)
from .run_config import RunConfig as RunConfig
from .spec import EstimatorSpec as EstimatorSpec, ModeKeys as ModeKeys
from .warm_start import VocabInfo as VocabInfo, WarmStartSettings as WarmStartSettings
