"""Epoch means of the training costs, and of the tensors given to `add_moving_summary`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

import tpk
from tpk.callbacks.run_tensors import NamedTensors, RunCompanions, run_tensors
from tpk.graph.reports.summary_ops import moving_summaries, names_of_scalar_summaries
from tpk.graph.variables import assign_values, make_local, variable_name
from tpk.plugin import Callback

logger = logging.getLogger(__name__)


class EpochMeans(Callback):
    """Reports the mean over the epoch of each training cost, and of each tensor given to `add_moving_summary`.

    A plain name is always a mean over the epoch, in the progress bar (so far), log, statistics and TensorBoard;
    smoothed values are marked: ``cost/EMA``, ``cost/SMA``.

    - The cost of a single-cost trainer is ``cost``; several costs have their names in the dict that the tower function
      returns. It is the mean over the towers of this process, except with ``async``, where towers train independently.
      The cost of an objective is the mean over the runs that minimize it. If the model reports another scalar named
      ``cost`` in a summary, the cost is called ``training_cost``.
    - The tensors given to `add_moving_summary` keep their names, and come from the main tower.

    The sums are kept in the graph, by an op that runs along with the step; nothing is fetched in a step. If a cost is
    not finite, neither is its mean, and the first such mean is logged as a warning.

    Attributes:
        costs: the names of the costs.

    Example:
        ```python
        trainer.train(callbacks=["EpochMeans"], monitors=["ScalarPrinter"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    def __init__(self) -> None:
        self.costs: tuple[str, ...] = ()
        self._sums: list[_Sum] = []
        self._update: Any = None
        self._companions: RunCompanions | None = None
        self._read: Callable[[], list[Any]] | None = None
        self._reset: Callable[[], None]
        self._means: dict[str, float] = {}
        self._has_warned = False

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Add the sums to the graph."""
        reported = names_of_scalar_summaries(trainer.graph)
        summaries = moving_summaries(trainer.graph)
        costs = _costs_of(trainer, reported, summaries)
        with tf.name_scope("epoch_means/"), tf.device("/cpu:0"):
            updates = []
            taken = reported | costs.keys()
            for names, values in summaries:
                places = {name: slice(i, i + 1) for i, name in enumerate(names) if name not in taken}
                taken |= places.keys()
                if places:
                    updates.append(self._add_sum(values, places))
            self._update = _as_one(updates)
            if trainer.train_ops and costs:
                self._companions = self._sum_costs(trainer, costs, updates)
        make_local([each.variable for each in self._sums])
        self.costs = tuple(name for name in costs if any(name in each.places for each in self._sums))
        trainer.monitors.set_costs(self.costs, self.read)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Prepare to read and reset the sums."""
        if self._sums:
            variables = [each.variable for each in self._sums]
            self._read = trainer.sess.make_callable(variables)
            self._reset = trainer.sess.make_callable([variable.initializer for variable in variables])

    def before_run(self, run_context: Any) -> Any:
        """Return the op that adds to the sums of the tensors that belong to this run."""
        if self._companions is None:
            return self._update
        return self._companions.request_for(run_context.original_args.fetches) or self._update

    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Report the means and reset the sums, before any `trigger_epoch`, so that all callbacks can read the means."""
        self._means = {}
        for name, mean in self.read().items():
            trainer.monitors.put_scalar(name, mean)
        if self._sums:
            self._reset()

    def read(self) -> dict[str, float]:
        """Return the means over the epoch so far by name; between two epochs, over the last epoch."""
        if self._read is None:
            return {}
        means: dict[str, float] = {}
        for each, value in zip(self._sums, self._read(), strict=True):
            means |= each.means(value)
        self._means = means or self._means
        self._warn_if_not_finite()
        return self._means

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        values = [] if self._read is None else self._read()
        return {each.key: np.asarray(value) for each, value in zip(self._sums, values, strict=True)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the sums; the sums of tensors that are new or have another shape start from zero."""
        fitting = [each for each in self._sums if each.key in state and each.variable.shape == state[each.key].shape]
        assign_values(self.trainer.sess, [(each.variable, state[each.key]) for each in fitting])

    def _sum_costs(
        self, trainer: tpk.Trainer, costs: Mapping[str, Sequence[Any]], updates: Sequence[Any]
    ) -> RunCompanions:
        """Return the ops that add the costs of a run to their sums, grouped with `updates`."""
        added: dict[str, Any] = {}

        def make_op(named: NamedTensors, run: Sequence[Any], inputs: Sequence[Any]) -> Any:
            of_towers: dict[str, list[Any]] = {}
            for name, tensor in named:
                of_towers.setdefault(name, []).append(tf.cast(tensor, tf.float64))
            for name, tensors in of_towers.items():
                if name not in added:
                    one = tf.constant(1, tf.float64)
                    added[name] = self._add_sum(tf.stack([*tensors, one]), {name: slice(len(tensors))})
            return _as_one([*updates, *(added[name] for name in of_towers)]) if of_towers else None

        named = [(name, tensor) for name, tensors in costs.items() for tensor in tensors]
        return RunCompanions(trainer, run_tensors(trainer.graph, named), make_op)

    def _add_sum(self, values: Any, places: dict[str, slice]) -> Any:
        """Return an op that adds `values`, the last of which is 1, to a new sum."""
        variable = tf.compat.v1.Variable(
            np.zeros(values.shape), trainable=False, use_resource=True, name=".".join(places)[:200]
        )
        self._sums.append(_Sum(variable, places))
        return tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=tf.cast(values, tf.float64))

    def _warn_if_not_finite(self) -> None:
        bad = next((name for name in self.costs if not math.isfinite(self._means.get(name, 0.0))), None)
        if bad is None or self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "the mean of %s over the epoch so far is %s in %s. The callback NanGuard stops immediately, names the "
            "datapoints, or skips such steps.",
            bad,
            self._means[bad],
            str(self.trainer.loop.progress),
        )


@attrs.frozen(eq=False)
class _Sum:
    """The sums of some tensors over the epoch so far.

    Attributes:
        variable: the sums, in double precision; the last number is how many values were added.
        places: where the sums of each reported name are: one, or one for each tower.
    """

    variable: Any
    places: dict[str, slice]

    @property
    def key(self) -> str:
        """Its name in the state."""
        return str(variable_name(self.variable))

    def means(self, value: Any) -> dict[str, float]:
        """Return the means, given the value of the variable; none if nothing was added."""
        count = value[-1]
        return {name: float(np.mean(value[place]) / count) for name, place in self.places.items()} if count else {}


def _costs_of(
    trainer: tpk.Trainer, reported: set[str], summaries: Sequence[tuple[Sequence[str], Any]]
) -> dict[str, list[Any]]:
    """Return the costs of the training towers by the names under which they are reported.

    Args:
        trainer: the trainer.
        reported: the names of scalar summaries.
        summaries: the names and values of moving summaries.
    """
    summarized = {
        name: tensor for names, values in summaries for name, tensor in zip(names, values.op.inputs[:-1], strict=True)
    }
    costs: dict[str, list[Any]] = {}
    for tower in trainer.towers.training():
        output = tower.output
        for name, cost in output.items() if isinstance(output, Mapping) else [("cost", output)]:
            if isinstance(cost, tf.Tensor) and cost.shape.rank == 0 and cost.dtype.is_floating:
                costs.setdefault(str(name), []).append(cost)

    def is_taken(name: str, cost: Any) -> bool:
        return name in reported or (name in summarized and not _is_same(summarized[name], cost))

    return {f"training_{name}" if is_taken(name, own[0]) else name: own for name, own in costs.items()}


def _is_same(summarized: Any, tensor: Any) -> bool:
    """Return whether a moving summary is of `tensor`, which it may cast."""
    return summarized is tensor or (summarized.op.type == "Cast" and summarized.op.inputs[0] is tensor)


def _as_one(ops: Sequence[Any]) -> Any:
    """Return an op that runs all of `ops`, or None if the list is empty."""
    return tf.group(*ops) if len(ops) > 1 else next(iter(ops), None)
