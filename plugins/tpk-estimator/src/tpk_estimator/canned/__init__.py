"""Estimators whose models are ready: deep, linear, both together, and baselines.

They mean what `tf.compat.v1.estimator` means by them, and so does TensorFlow 1: variables have the names of
TensorFlow 1, losses are sums over the batch by default, and optimizers are `tf.compat.v1.train.Optimizer` objects.
"""

from __future__ import annotations

from tpk_estimator.canned.baseline import BaselineClassifier, BaselineEstimator, BaselineRegressor
from tpk_estimator.canned.combined import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
)
from tpk_estimator.canned.dnn import DNNClassifier, DNNEstimator, DNNRegressor, dnn_logit_fn_builder
from tpk_estimator.canned.linear import LinearClassifier, LinearEstimator, LinearRegressor, linear_logit_fn_builder

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
]
