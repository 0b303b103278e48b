"""Estimators made from others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpk_estimator.estimator import Estimator
from tpk_estimator.model import argument_names
from tpk_estimator.spec import EstimatorSpec, ModeKeys

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., dict[str, Any]]) -> Estimator:
    """Return an estimator with more metrics, which trains and evaluates in the same directory.

    Args:
        estimator: the estimator.
        metric_fn: a function of ``features``, ``labels``, ``predictions`` and ``config``, or some of them. It returns
            metrics by name, which replace metrics of the same names.

    Raises:
        ValueError: if `metric_fn` has other arguments.

    Example:
        ```python
        def mean_age(features):
            return {"age/mean": tf.compat.v1.metrics.mean(features["age"])}

        estimator = add_metrics(estimator, mean_age)
        ```
    """
    names = argument_names(metric_fn)
    unknown = [name for name in names if name not in _ARGUMENTS]
    if unknown:
        raise ValueError(f"metric_fn may take {', '.join(_ARGUMENTS)}, but it takes {', '.join(unknown)}.")

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        given = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        metrics = metric_fn(**{name: given[name] for name in names})
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **metrics})

    return Estimator(model_fn, estimator.model_dir, estimator.config)
