"""`tf.estimator.experimental`: early stopping, evaluation in memory, and the parts of canned models."""

from __future__ import annotations

from tpk_estimator import canned, early_stopping, in_memory_evaluation

InMemoryEvaluatorHook = in_memory_evaluation.InMemoryEvaluatorHook
dnn_logit_fn_builder = canned.dnn_logit_fn_builder
linear_logit_fn_builder = canned.linear_logit_fn_builder
make_early_stopping_hook = early_stopping.make_early_stopping_hook
make_stop_at_checkpoint_step_hook = early_stopping.make_stop_at_checkpoint_step_hook
stop_if_higher_hook = early_stopping.stop_if_higher_hook
stop_if_lower_hook = early_stopping.stop_if_lower_hook
stop_if_no_decrease_hook = early_stopping.stop_if_no_decrease_hook
stop_if_no_increase_hook = early_stopping.stop_if_no_increase_hook
