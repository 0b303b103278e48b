"""The heads of `tf.contrib.estimator`, which canned estimators also have.

The trapezoidal rule integrates their precision-recall curves, and optimizers stay in the name scope of the head.
Programs know the average loss of a training by its name, ``head/truediv``, and log it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk_estimator import heads


class _HeadOfTensorFlow1(heads.Head):
    _summation_method = "trapezoidal"

    @contextmanager
    def _train_scope(self) -> Iterator[None]:
        yield

    def _average_loss(self, losses: Any, weights: Any) -> Any:
        return tf.reduce_sum(weights * losses) / tf.reduce_sum(weights * tf.ones_like(losses))


class BinaryClassHead(_HeadOfTensorFlow1, heads.BinaryClassHead):
    """See `tpk_estimator.BinaryClassHead`."""


class LogisticRegressionHead(_HeadOfTensorFlow1, heads.LogisticRegressionHead):
    """See `tpk_estimator.LogisticRegressionHead`."""


class MultiClassHead(_HeadOfTensorFlow1, heads.MultiClassHead):
    """See `tpk_estimator.MultiClassHead`."""


class MultiLabelHead(_HeadOfTensorFlow1, heads.MultiLabelHead):
    """See `tpk_estimator.MultiLabelHead`."""


class PoissonRegressionHead(_HeadOfTensorFlow1, heads.PoissonRegressionHead):
    """See `tpk_estimator.PoissonRegressionHead`."""


class RegressionHead(_HeadOfTensorFlow1, heads.RegressionHead):
    """See `tpk_estimator.RegressionHead`."""
