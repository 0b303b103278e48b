"""`tf.contrib.estimator`: the heads of TensorFlow 1, and other names for what this package has."""

from __future__ import annotations

from typing import Any

from tpk_estimator.canned import DNNEstimator, DNNLinearCombinedEstimator, LinearEstimator
from tpk_estimator.experimental import (
    InMemoryEvaluatorHook,
    dnn_logit_fn_builder,
    linear_logit_fn_builder,
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from tpk_estimator.extend import add_metrics
from tpk_estimator.heads import (
    Head,
    LogisticRegressionHead as logistic_regression_head,
    MultiClassHead as multi_class_head,
    PoissonRegressionHead,
    RegressionHead,
    TrapezoidalBinaryClassHead as binary_classification_head,
    TrapezoidalMultiLabelHead as multi_label_head,
)

__all__ = [
    "DNNEstimator",
    "DNNLinearCombinedEstimator",
    "InMemoryEvaluatorHook",
    "LinearEstimator",
    "add_metrics",
    "binary_classification_head",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "logistic_regression_head",
    "make_early_stopping_hook",
    "multi_class_head",
    "multi_label_head",
    "poisson_regression_head",
    "regression_head",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


def regression_head(weight_column: Any = None, label_dimension: int = 1, **options: Any) -> Head:
    """Return a `RegressionHead`, whose first two arguments come in the other order."""
    return RegressionHead(label_dimension, weight_column, **options)


def poisson_regression_head(weight_column: Any = None, label_dimension: int = 1, **options: Any) -> Head:
    """Return a `PoissonRegressionHead`, whose first two arguments come in the other order."""
    return PoissonRegressionHead(label_dimension, weight_column, **options)
