"""`train_and_evaluate`: a training with an evaluation, and exports, after its checkpoints."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf
from attrs.validators import ge, instance_of, is_callable, optional

from tpk_estimator.cluster import start_server
from tpk_estimator.estimator import Estimator
from tpk_estimator.exporters import Exporter
from tpk_estimator.run_config import positive_or_none
from tpk_estimator.task import EVALUATOR

logger = logging.getLogger(__name__)
v1 = tf.compat.v1


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return (values,) if isinstance(values, Exporter) else tuple(values or ())


def _tuple_of(kind: type) -> Any:
    validator: Any = attrs.validators.deep_iterable(instance_of(kind))
    return attrs.field(default=(), converter=_as_tuple, validator=validator)


@attrs.frozen(eq=False)
class TrainSpec:
    """The training of `train_and_evaluate`.

    Args:
        input_fn: as for `Estimator.train`.
        max_steps: the global step to stop at; None to train until the input ends.
        hooks: session hooks.
        saving_listeners: `tf.compat.v1.train.CheckpointSaverListener` objects.
    """

    input_fn: Callable[..., Any] = attrs.field(validator=is_callable())
    max_steps: int | None = positive_or_none(None)
    hooks: Sequence[Any] = _tuple_of(v1.train.SessionRunHook)
    saving_listeners: Sequence[Any] = _tuple_of(v1.train.CheckpointSaverListener)


@attrs.frozen(eq=False)
class EvalSpec:
    """The evaluations of `train_and_evaluate`.

    Args:
        input_fn: as for `Estimator.evaluate`.
        steps: the number of batches; None for all of the input.
        name: of the evaluation, as for `Estimator.evaluate`.
        hooks: session hooks.
        exporters: export checkpoints after their evaluation.
        start_delay_secs: how long an evaluator of a cluster waits before its first evaluation.
        throttle_secs: the least time between two evaluations.

    Raises:
        ValueError: if an option is invalid, or two exporters have the same name.
    """

    input_fn: Callable[..., Any] = attrs.field(validator=is_callable())
    steps: int | None = positive_or_none(100)
    name: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    hooks: Sequence[Any] = _tuple_of(v1.train.SessionRunHook)
    exporters: Sequence[Exporter] = _tuple_of(Exporter)
    start_delay_secs: float = attrs.field(default=120, validator=ge(0))
    throttle_secs: float = attrs.field(default=600, validator=ge(0))

    @exporters.validator
    def _check_exporters(self, attribute: Any, exporters: Sequence[Exporter]) -> None:
        names = [exporter.name for exporter in exporters]
        if not all(names) or len(set(names)) < len(names):
            raise ValueError(f"exporters must have different names, but they are {names}.")


def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> Any:
    """Train; evaluate and export after checkpoints, except the first, and at the end.

    In a cluster, which ``TF_CONFIG`` describes, the task ``evaluator`` evaluates and the others train.

    Args:
        estimator: the estimator, whose config says when it saves checkpoints.
        train_spec: the training.
        eval_spec: the evaluations.

    Returns:
        The results of the last evaluation, and what its exporters returned; None for both if there was none.

    Raises:
        TypeError: if an argument has another type.
        ValueError: if the estimator saves no checkpoints.
    """
    for value, kind in ((estimator, Estimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(value, kind):
            raise TypeError(f"train_and_evaluate takes an Estimator, a TrainSpec and an EvalSpec, but got {value!r}.")
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    if estimator.config.task_type == EVALUATOR:
        evaluator.evaluate_continuously()
        return None
    listeners = [*train_spec.saving_listeners]
    if estimator.config.num_ps_replicas:
        start_server(estimator.config)
    elif not estimator.config.task.is_collective:
        listeners.append(_EvaluateCheckpoints(evaluator, eval_spec.throttle_secs))
    estimator.train(train_spec.input_fn, train_spec.hooks, None, train_spec.max_steps, listeners)
    return evaluator.results, evaluator.exports


class _Evaluator:
    """Evaluates and exports the latest checkpoint."""

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._evaluated: str | None = None
        self.results: Any = None
        self.exports: Any = None

    def evaluate(self) -> bool:
        """Evaluate the latest checkpoint, unless that was done; return whether it is that of the last step."""
        path = self._estimator.latest_checkpoint()
        if path is not None and path != self._evaluated:
            spec = self._spec
            self.results = self._estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, path, spec.name)
            self._evaluated = path
            self.exports = [self._export(exporter, path) for exporter in spec.exporters]
        return self._is_final()

    def evaluate_continuously(self) -> None:
        """Evaluate the checkpoints that other processes write, until the one of the last step."""
        time.sleep(self._spec.start_delay_secs)
        while not self.evaluate():
            time.sleep(max(self._spec.throttle_secs, 1))

    def _export(self, exporter: Exporter, path: str) -> Any:
        directory = os.path.join(self._estimator.model_dir, "export", exporter.name)
        return exporter.export(self._estimator, directory, path, self.results, self._is_final())

    def _is_final(self) -> bool:
        return bool(self._max_steps and self.results and self.results["global_step"] >= self._max_steps)


class _EvaluateCheckpoints(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates checkpoints of the training, but not the first one, and not too often."""

    def __init__(self, evaluator: _Evaluator, throttle_secs: float) -> None:
        self._evaluator = evaluator
        self._throttle_secs = throttle_secs
        self._is_first = True
        self._last_step: int | None = None
        self._last_time = 0.0

    def after_save(self, session: Any, global_step: Any) -> None:
        if self._is_first:
            self._is_first = False
        elif global_step != self._last_step and time.time() >= self._last_time + self._throttle_secs:
            self._evaluate(global_step)
        else:
            logger.info("step %d is not evaluated: throttle_secs=%g", global_step, self._throttle_secs)

    def end(self, session: Any, global_step: Any) -> None:
        if global_step != self._last_step:
            self._evaluate(global_step)

    def _evaluate(self, global_step: Any) -> None:
        self._last_step, self._last_time = global_step, time.time()
        self._evaluator.evaluate()
