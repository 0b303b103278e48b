"""`tf.contrib.estimator`: the heads of TensorFlow 1, and other names for what this package has."""

from __future__ import annotations

from typing import Any

from tpk_estimator import canned, experimental, extend, tensorflow1_heads as heads

DNNEstimator = canned.DNNEstimator
DNNLinearCombinedEstimator = canned.DNNLinearCombinedEstimator
LinearEstimator = canned.LinearEstimator
InMemoryEvaluatorHook = experimental.InMemoryEvaluatorHook
add_metrics = extend.add_metrics
binary_classification_head = heads.BinaryClassHead
dnn_logit_fn_builder = experimental.dnn_logit_fn_builder
linear_logit_fn_builder = experimental.linear_logit_fn_builder
logistic_regression_head = heads.LogisticRegressionHead
make_early_stopping_hook = experimental.make_early_stopping_hook
multi_class_head = heads.MultiClassHead
multi_label_head = heads.MultiLabelHead
stop_if_higher_hook = experimental.stop_if_higher_hook
stop_if_lower_hook = experimental.stop_if_lower_hook
stop_if_no_decrease_hook = experimental.stop_if_no_decrease_hook
stop_if_no_increase_hook = experimental.stop_if_no_increase_hook


def regression_head(weight_column: Any = None, label_dimension: int = 1, **options: Any) -> heads.RegressionHead:
    """Return a `RegressionHead`, whose first two arguments come in the other order."""
    return heads.RegressionHead(label_dimension, weight_column, **options)


def poisson_regression_head(
    weight_column: Any = None, label_dimension: int = 1, **options: Any
) -> heads.PoissonRegressionHead:
    """Return a `PoissonRegressionHead`, whose first two arguments come in the other order."""
    return heads.PoissonRegressionHead(label_dimension, weight_column, **options)
