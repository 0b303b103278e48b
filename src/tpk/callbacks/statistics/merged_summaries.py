"""Callbacks that report the summaries of the graph, and averages of tensors over steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least
from tpk.callbacks.graph_ops import RunUpdateOps
from tpk.callbacks.run_tensors import find_tensor
from tpk.errors import ConfigError
from tpk.graph.fetches import FetchDependencies
from tpk.graph.reports.summary_ops import MOVING_SUMMARY_OPS_KEY
from tpk.plugin.callback import Callback, trigger_of


class MovingAverageSummary(RunUpdateOps):
    """Maintains the moving averages that `add_moving_summary` has added to the graph, in each step.

    It does not report them; `MergeAllSummaries` does. A step of a graph without them costs nothing more.

    Args:
        collection: the collection of the ops that update the averages.
        train_op: an op, or its name. The averages are updated in the runs that need it; by default in each run of the
            hooked session.

    Raises:
        KeyError: when the graph is set up, if it has no op of this name.
    """

    chief_only = True

    def __init__(self, collection: str = MOVING_SUMMARY_OPS_KEY, train_op: Any = None) -> None:
        super().__init__(collection)
        self._train_op = train_op
        self._runs: FetchDependencies | None = None

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Group the ops in the collection."""
        super().setup_graph(trainer)
        if self._train_op is not None:
            train_op = trainer.graph.as_graph_element(self._train_op)
            self._runs = FetchDependencies([getattr(train_op, "op", train_op)])

    def before_run(self, run_context: Any) -> Any:
        """Return the op that updates the averages."""
        if self._runs is not None and not self._runs.among(run_context.original_args.fetches):
            return None
        return self.op


class MergeAllSummaries(Callback):
    """Evaluates all summaries at the end of each epoch, and passes them to the monitors.

    Args:
        period: also evaluate them after every `period` steps of an epoch; 0 for only once per epoch. If a run makes
            several steps, they are evaluated in the last step of the run that completes the period.
        run_alone: evaluate them in a separate run instead of along with the step. Then they must not depend on what is
            fed in a step; if they depend on a queue or a dataset, they take data from it, and moving averages are
            updated an additional time.
        key: the collection of the summaries.

    Raises:
        ConfigError: if `period` is negative.
    """

    _once_in_a_step = True
    """Whether they are evaluated only in the first run of a step that makes several runs."""

    def __init__(self, period: int = 0, run_alone: bool = False, key: str = tf.compat.v1.GraphKeys.SUMMARIES) -> None:
        check_at_least(self, 0, period=period)
        self._period = period
        if not run_alone:
            self.unused_hooks = {"trigger_step", "trigger_epoch"}
        else:
            self.unused_hooks = {"before_run", "after_run", *(() if period else ["trigger_step"])}
        self._key = key
        self._summary: Any = None
        self._evaluated_at: tuple[int, int] | None = None

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Merge the summaries in the collection."""
        self._summary = tf.compat.v1.summary.merge_all(self._key)

    def before_run(self, run_context: Any) -> Any:
        """Return the summaries at the end of a period or an epoch."""
        step = self.trainer.local_step
        if step != self.trainer.loop.steps_per_epoch - 1 and not self._ends_period(step):
            return None
        return None if self._evaluated_at == (self.trainer.epoch_num, step) else self._summary

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Pass the summaries to the monitors, if they were evaluated."""
        if run_values.results is not None:
            if self._once_in_a_step:
                self._evaluated_at = (self.trainer.epoch_num, self.trainer.local_step)
            self.trainer.monitors.put_summary(run_values.results)

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Evaluate the summaries at the end of a period; in the last step, the end of the epoch does it."""
        step = trainer.local_step
        if step != trainer.loop.steps_per_epoch - 1 and self._ends_period(step):
            trigger_of(self)(trainer)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Evaluate the summaries in a separate run, and pass them to the monitors.

        Raises:
            ConfigError: if they depend on what is fed.
        """
        if self._summary is None:
            return
        try:
            summary = trainer.sess.run(self._summary)
        except tf.errors.InvalidArgumentError as error:
            if "must feed a value" not in str(error):
                raise
            raise ConfigError(
                "MergeAllSummaries: the summaries depend on what is fed with each step, so they cannot be evaluated in "
                "a separate run, as run_alone=True and PeriodicTrigger do. Give MergeAllSummaries(period=k), or an "
                "input that is in the graph, such as tpk.QueueInput(flow)."
            ) from error
        self.trainer.monitors.put_summary(summary)

    def _ends_period(self, step: int) -> bool:
        """Return whether a period ends within the run whose last step is `step`."""
        return bool(self._period) and (step + 1) % self._period < self.trainer.loop.steps_per_run


class SimpleMovingAverage(Callback):
    """Reports the averages of scalars over a window of steps as ``<name>/SMA``, once per window.

    Args:
        tensors: scalar tensors, or their names; in a trainer with towers, names in the first training tower.
        window_size: the number of steps in a window; if a run makes several steps, only its last step is observed, and
            if a step makes several runs, only its first run.

    Raises:
        ConfigError: if `window_size` is not positive, or `tensors` is empty.

    Example:
        ```python
        SimpleMovingAverage(["cost", "train-error"], window_size=100)
        ```
    """

    state_attributes = ("_window",)

    def __init__(self, tensors: Sequence[Any], window_size: int) -> None:
        if isinstance(tensors, str) or not tensors:
            raise ConfigError(f"SimpleMovingAverage takes a list of tensors or of their names, got {tensors!r}.")
        check_at_least(self, 1, window_size=window_size)
        self._tensors = list(tensors)
        self._names = [tensor if isinstance(tensor, str) else tensor.name for tensor in self._tensors]
        self.state_key = ", ".join(self._names)
        self._request: Any = None
        self._window_size = window_size
        self._values: list[float] = []
        self._window: list[list[float]] = []

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the tensors.

        Raises:
            ConfigError: if one of them is missing or not a scalar.
        """
        fetches = [find_tensor(trainer, each) if isinstance(each, str) else each for each in self._tensors]
        for fetch in fetches:
            if fetch.shape.rank != 0:
                raise ConfigError(f"SimpleMovingAverage takes scalars, but {fetch.name!r} has the shape {fetch.shape}.")
        self._request = fetches

    def before_run(self, run_context: Any) -> Any:
        """Return the tensors."""
        return self._request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep the values of the first run of a step."""
        self._values = self._values or [float(value) for value in run_values.results]

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Add the values to the window; if it is full, report the averages and begin the next one."""
        if self._values:
            self._window.append(self._values)
            self._values = []
        if len(self._window) * trainer.loop.steps_per_run >= self._window_size:
            for name, average in zip(self._names, np.mean(self._window, axis=0), strict=True):
                trainer.monitors.put_scalar(f"{name.removesuffix(':0')}/SMA", average)
            self._window = []
