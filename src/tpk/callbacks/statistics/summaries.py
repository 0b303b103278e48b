"""Callbacks that bring what the graph summarizes to the monitors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.callbacks.run_tensors import find_tensor
from tpk.errors import ConfigError
from tpk.graph.reports.summaries import MOVING_SUMMARY_OPS_KEY
from tpk.plugin.callback import Callback, trigger_of
from tpk.tf_internals import add_control_inputs

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class MovingAverageSummary(Callback):
    """Maintains the moving averages that `add_moving_summary` has added to the graph, in each step.

    It does not show them; `MergeAllSummaries` does. Without such averages a step costs nothing more.

    Args:
        collection: the name of the collection of the ops that maintain the averages.
        train_op: an op, or its name, with which the averages are updated. By default they are updated in each
            run of the hooked session.
    """

    def __init__(self, collection: str = MOVING_SUMMARY_OPS_KEY, train_op: Any = None) -> None:
        self.collection = collection
        self._train_op = train_op
        self._updates: Any = None

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Group the ops that the collection holds by now.

        Raises:
            ConfigError: if the graph has no op with the name of `train_op`.
        """
        ops = [getattr(op, "op", op) for op in trainer.graph.get_collection(self.collection)]
        if not ops:
            return
        if self._train_op is None:
            logger.debug("%d ops of the collection %r run along with each step", len(ops), self.collection)
            self._updates = ops[0] if len(ops) == 1 else tf.group(*ops, name="maintain_moving_averages")
        else:
            train_op = self._find_train_op(trainer.graph)
            logger.debug("%d ops of the collection %r run along with %s", len(ops), self.collection, train_op.name)
            add_control_inputs(train_op, ops)

    def before_run(self, run_context: Any) -> Any:
        """Return the ops, as one, to be run along with the step."""
        return self._updates

    def _find_train_op(self, graph: Any) -> Any:
        if not isinstance(self._train_op, str):
            return getattr(self._train_op, "op", self._train_op)
        try:
            return graph.get_operation_by_name(self._train_op)
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"MovingAverageSummary: the graph has no op {self._train_op!r} (train_op). Give the op "
                "itself, or leave train_op out."
            ) from error


class MergeAllSummaries(Callback):
    """Evaluates all summaries at the end of each epoch, and hands them to the monitors.

    Args:
        period: evaluate them after each so many steps of an epoch, too; 0 means at its end only. Where a run makes
            several steps, in the last step of the run that comes to so many.
        run_alone: evaluate them in a run of their own, rather than along with the last step of the epoch.
            Then they must not depend on what feeds the step; if they depend on a queue or a dataset, they
            take from it, and moving averages are updated once more.
        key: the collection of the summaries.

    Raises:
        ConfigError: if `period` is negative.
    """

    # Whether they are evaluated in the first run of a step only, if it has several.
    _once_in_a_step = True

    def __init__(self, period: int = 0, run_alone: bool = False, key: str = tf.compat.v1.GraphKeys.SUMMARIES) -> None:
        if period < 0:
            raise ConfigError(f"MergeAllSummaries: period must be at least 0, got {period!r}.")
        self._period = period
        self._run_alone = run_alone
        self._key = key
        self._summary: Any = None
        self._request: Any = None
        self._last_step = 0
        self._steps_per_run = 1
        self._evaluated_at: tuple[int, int] | None = None

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the way in which summaries are evaluated."""
        hooks = super().hook_implementations()
        if self._run_alone:
            unused = {"before_run", "after_run"} if self._period else {"before_run", "after_run", "trigger_step"}
        else:
            unused = {"trigger_step", "trigger_epoch"}
        return {name: hook for name, hook in hooks.items() if name not in unused}

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Merge the summaries that the collection holds by now."""
        self._summary = tf.compat.v1.summary.merge_all(self._key)
        if self._summary is not None:
            self._request = SessionRunArgs(self._summary)

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Note which step is the last of an epoch."""
        self._last_step = trainer.loop.steps_per_epoch - 1
        self._steps_per_run = trainer.loop.steps_per_run

    def before_run(self, run_context: Any) -> Any:
        """Return the summaries if it is time for them, to be evaluated along with the step."""
        step = self.trainer.local_step
        if step != self._last_step and not self._ends_period(step):
            return None
        return None if self._evaluated_at == (self.trainer.epoch_num, step) else self._request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Hand the summaries to the monitors, if they were evaluated."""
        if run_values.results is not None:
            if self._once_in_a_step:
                self._evaluated_at = (self.trainer.epoch_num, self.trainer.local_step)
            self.trainer.monitors.put_summary(run_values.results)

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Evaluate the summaries if the period is over; those of the last step come with `trigger_epoch`."""
        step = trainer.local_step
        if step != self._last_step and self._ends_period(step):
            trigger_of(self)(trainer)

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Evaluate the summaries in a run of their own."""
        trigger_of(self)(trainer)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Evaluate the summaries in a run of their own, and hand them to the monitors.

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
                "a run of their own, as run_alone=True and PeriodicTrigger do. Give MergeAllSummaries(period=k), or an "
                "input that is in the graph, such as tpk.QueueInput(flow)."
            ) from error
        self.trainer.monitors.put_summary(summary)

    def _ends_period(self, step: int) -> bool:
        """Whether a period is over with the run whose last step that is."""
        return bool(self._period) and (step + 1) % self._period < self._steps_per_run


class SimpleMovingAverage(Callback):
    """Reports the averages of scalars over a window of the last steps, once in each window, as
    ``<name>/SMA``.

    Args:
        tensors: scalar tensors, or their names; in a trainer with towers, names in the first training tower.
        window_size: how many steps are averaged; where a run makes several steps, the last of each run stands for them.

    Raises:
        ConfigError: if `window_size` is not positive, or there are no tensors.

    Example:
        ```python
        SimpleMovingAverage(["cost", "train-error"], window_size=100)
        ```
    """

    def __init__(self, tensors: Sequence[Any], window_size: int) -> None:
        if isinstance(tensors, str) or not tensors:
            raise ConfigError(f"SimpleMovingAverage takes a list of tensors or of their names, got {tensors!r}.")
        if window_size < 1:
            raise ConfigError(f"SimpleMovingAverage: window_size must be at least 1, got {window_size!r}.")
        self._tensors = list(tensors)
        self._names: list[str] = []
        self._request: Any = None
        self._window_size = window_size
        self._window: list[list[float]] = []

    @property
    def state_key(self) -> str:
        """What tells it from others of its kind when a training is resumed."""
        return ", ".join(tensor if isinstance(tensor, str) else tensor.name for tensor in self._tensors)

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the tensors.

        Raises:
            ConfigError: if one of them is missing or not a scalar.
        """
        fetches = [find_tensor(trainer, each) if isinstance(each, str) else each for each in self._tensors]
        for fetch in fetches:
            if fetch.shape.rank != 0:
                raise ConfigError(f"SimpleMovingAverage takes scalars, but {fetch.name!r} has the shape {fetch.shape}.")
        self._names = [
            tensor.removesuffix(":0") if isinstance(tensor, str) else tensor.op.name for tensor in self._tensors
        ]
        self._request = SessionRunArgs(fetches)

    def before_run(self, run_context: Any) -> Any:
        """Return the tensors, to be fetched along with the step."""
        return self._request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep the values for the length of the window."""
        self._window.append([float(value) for value in run_values.results])

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Report the averages if the window is full, and begin the next one."""
        if len(self._window) * trainer.loop.steps_per_run >= self._window_size:
            for name, average in zip(self._names, np.mean(self._window, axis=0), strict=True):
                trainer.monitors.put_scalar(f"{name}/SMA", average)
            self._window = []

    def state_dict(self) -> dict[str, Any]:
        """Return the values in the window; as strings, since JSON has no NaN."""
        return {"window": [[repr(value) for value in values] for values in self._window]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._window = [[float(value) for value in values] for values in state["window"]]
