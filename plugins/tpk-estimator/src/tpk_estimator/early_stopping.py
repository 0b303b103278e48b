"""Session hooks that stop a training early: when a function says so, or a metric of evaluations does."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tpk_estimator.estimator import Estimator

logger = logging.getLogger(__name__)
v1 = tf.compat.v1


def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Return a hook that stops a training when a function returns true.

    The hook adds no variable to the checkpoints, so a training may continue with or without it.

    Args:
        estimator: the estimator that trains.
        should_stop_fn: a function without arguments.
        run_every_secs: the seconds between two calls of the function.
        run_every_steps: the steps between two calls; give None for `run_every_secs` then.

    Raises:
        TypeError: if `estimator` is not an `Estimator`.
        ValueError: unless exactly one of `run_every_secs` and `run_every_steps` is given.

    Example:
        ```python
        hook = make_early_stopping_hook(estimator, lambda: os.path.exists("stop"))
        estimator.train(input_fn, hooks=[hook])
        ```
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator must be an Estimator, but got {estimator!r}.")
    if (run_every_secs is None) == (run_every_steps is None):
        raise ValueError(
            f"give either run_every_secs or run_every_steps, and None for the other one: "
            f"they are {run_every_secs} and {run_every_steps}."
        )
    return _StopHook(should_stop_fn, v1.train.SecondOrStepTimer(run_every_secs, run_every_steps))


def stop_if_higher_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Return a hook that stops a training when a metric of an evaluation was above a threshold.

    Args:
        estimator: the estimator that trains.
        metric_name: the name of the metric.
        threshold: the threshold.
        eval_dir: the directory of the event files of evaluations; by default that of evaluations without a name.
        min_steps: ignore evaluations before this global step.
        run_every_secs: the seconds between two looks at the event files.
        run_every_steps: the steps between two looks; give None for `run_every_secs` then.

    Raises:
        TypeError: if `estimator` is not an `Estimator`.
        ValueError: unless exactly one of `run_every_secs` and `run_every_steps` is given.
    """

    def should_stop(values: Iterator[tuple[int, float]]) -> bool:
        return any(value > threshold for _, value in values)

    return _metric_hook(estimator, metric_name, should_stop, eval_dir, min_steps, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Return a hook that stops a training when a metric of an evaluation was below a threshold.

    The arguments are those of `stop_if_higher_hook`.
    """

    def should_stop(values: Iterator[tuple[int, float]]) -> bool:
        return any(value < threshold for _, value in values)

    return _metric_hook(estimator, metric_name, should_stop, eval_dir, min_steps, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Return a hook that stops a training when a metric of evaluations has not increased for a number of steps.

    The other arguments are those of `stop_if_higher_hook`.
    """

    def should_stop(values: Iterator[tuple[int, float]]) -> bool:
        return _stagnates(values, operator.gt, max_steps_without_increase)

    return _metric_hook(estimator, metric_name, should_stop, eval_dir, min_steps, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Return a hook that stops a training when a metric of evaluations has not decreased for a number of steps.

    The other arguments are those of `stop_if_higher_hook`.
    """

    def should_stop(values: Iterator[tuple[int, float]]) -> bool:
        return _stagnates(values, operator.lt, max_steps_without_decrease)

    return _metric_hook(estimator, metric_name, should_stop, eval_dir, min_steps, run_every_secs, run_every_steps)


def make_stop_at_checkpoint_step_hook(estimator: Estimator, last_step: int, **ignored: Any) -> Any:
    """Return a hook that stops a training at a global step.

    Args:
        estimator: ignored, as is everything but `last_step`: the training stops without waiting for a file.
        last_step: the global step.
    """
    return v1.train.StopAtStepHook(last_step=last_step)


def _stagnates(values: Iterator[tuple[int, float]], is_better: Callable[[float, float], bool], most: int) -> bool:
    best: tuple[int, float] | None = None
    for step, value in values:
        if best is None or is_better(value, best[1]):
            best = step, value
        if step - best[0] >= most:
            return True
    return False


def _metric_hook(
    estimator: Estimator,
    metric_name: str,
    should_stop: Callable[[Iterator[tuple[int, float]]], bool],
    eval_dir: str | None,
    min_steps: int,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> Any:
    def should_stop_fn() -> bool:
        values = _evaluated(eval_dir or estimator.eval_dir(), metric_name)
        return should_stop((step, value) for step, value in values if step >= min_steps)

    return make_early_stopping_hook(estimator, should_stop_fn, run_every_secs, run_every_steps)


def _evaluated(directory: str, name: str) -> list[tuple[int, float]]:
    """Return the steps and values of a metric in the event files of evaluations; the last evaluation of a step counts.

    Raises:
        ValueError: if there are evaluations without this metric.
    """
    values: dict[int, dict[str, float]] = {}
    for path in sorted(tf.io.gfile.glob(os.path.join(directory, "*.tfevents.*"))):
        for event in v1.train.summary_iterator(path):
            scalars = {each.tag: each.simple_value for each in event.summary.value if each.HasField("simple_value")}
            if scalars:
                values.setdefault(event.step, {}).update(scalars)
    for step, metrics in values.items():
        if name not in metrics:
            raise ValueError(
                f"the evaluation at step {step} in {directory!r} has no metric {name!r}: it has {', '.join(metrics)}."
            )
    return sorted((step, metrics[name]) for step, metrics in values.items())


class _StopHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    def __init__(self, should_stop_fn: Callable[[], bool], timer: Any) -> None:
        self._should_stop_fn = should_stop_fn
        self._timer = timer

    def begin(self) -> None:
        self._timer.reset()

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = run_values.results
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop_fn():
                logger.info("early stopping at global step %d", step)
                run_context.request_stop()
