"""`tf.estimator.experimental`: early stopping, evaluation in memory, and the parts of canned models."""

from __future__ import annotations

from tpk_estimator.canned import dnn_logit_fn_builder, linear_logit_fn_builder
from tpk_estimator.early_stopping import (
    make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from tpk_estimator.in_memory_evaluation import InMemoryEvaluatorHook

__all__ = [
    "InMemoryEvaluatorHook",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
