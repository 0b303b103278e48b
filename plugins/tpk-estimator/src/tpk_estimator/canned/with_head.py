"""Canned estimators with a head for classes or for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk_estimator.estimator import Estimator
from tpk_estimator.tensorflow1_heads import BinaryClassHead, MultiClassHead, RegressionHead

_SUM = tf.compat.v1.losses.Reduction.SUM


class Classifier(Estimator):
    """Makes a classifier of the estimator with a head that comes next in the list of base classes.

    Args:
        arguments: the positional arguments of the estimator after its head.
        n_classes: the number of classes.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        label_vocabulary: the names of the classes, if the labels are strings.
        loss_reduction: how the losses of examples become one.
        options: further arguments of the estimator.
    """

    def __init__(
        self,
        *arguments: Any,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = _SUM,
        **options: Any,
    ) -> None:
        if n_classes == 2:
            head: Any = BinaryClassHead(weight_column, (), label_vocabulary, loss_reduction)
        else:
            head = MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, *arguments, **options)


class Regressor(Estimator):
    """Makes a regressor of the estimator with a head that comes next in the list of base classes.

    Args:
        arguments: the positional arguments of the estimator after its head.
        label_dimension: how many numbers each example has.
        weight_column: the name of a feature with the weights of examples, or a numeric feature column.
        loss_reduction: how the losses of examples become one.
        options: further arguments of the estimator.
    """

    def __init__(
        self,
        *arguments: Any,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = _SUM,
        **options: Any,
    ) -> None:
        head: Any = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, *arguments, **options)
