"""Epoch means: of the costs that a training minimizes, and of what `add_moving_summary` was given."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.callbacks.run_companions import RunCompanions, RunTensor
from tpk.graph.gradients import recorded_gradients
from tpk.graph.summaries import EPOCH_SUM_OPS_KEY, moving_summaries, names_of_scalar_summaries
from tpk.graph.variables import assign_values, make_local
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class EpochMeans(Callback):
    """Reports the mean of each training cost over the steps of the epoch, and of what `add_moving_summary` was given.

    So a name stands for its mean over the epoch, in the progress bar (so far), log, statistics and TensorBoard; what is
    smoothed is marked: ``cost/EMA``, ``cost/SMA``.

    - The cost of a single-cost trainer is ``cost``; each of several has the name that it has in the dict that the tower
      function returns. It is the mean over the towers of this process, but for those that train by themselves
      (``async``); of objectives that are not minimized in each step, over the runs that minimize them. If the model
      reports something else as ``cost``, by a summary of that name, the cost is ``training_cost``.
    - What `add_moving_summary` was given has its own name, and is that of the main tower.

    The sums are kept in ``float64`` in the graph, by ops that run along with the step, and nothing is fetched until the
    epoch is over. A cost that is not finite makes its mean so, and is warned of once.

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
        self._companions: RunCompanions | None = None
        self._in_each_run: Any = None
        self._last: tuple[Any, Any] = (None, None)
        self._reset: Any = None
        self._read: Callable[[], list[np.ndarray]] | None = None
        self._means: dict[str, float] = {}
        self._has_warned = False

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add the sums to the graph."""
        taken = names_of_scalar_summaries(trainer.graph)
        summaries = moving_summaries(trainer.graph)
        own = {name: tensor for names, values in summaries for name, tensor in zip(names, values.op.inputs, strict=False)}
        costs = {
            _free_name(name, taken | {other for other in own if not _is_same(own[other], tensors[0])}): tensors
            for name, tensors in _costs_of(trainer).items()
        }
        with tf.name_scope("epoch_means/"), tf.device("/cpu:0"):
            ops = [self._add_to_sum(names, tf.cast(values, tf.float64)) for names, values in summaries]
            if costs and trainer.train_ops:
                self._companions = self._sum_costs(trainer, costs, ops)
            self._in_each_run = tf.group(*ops) if ops else None
            self._reset = tf.group(*(each.variable.initializer for each in self._sums))
        make_local([each.variable for each in self._sums])
        self.costs = tuple(name for each in self._sums[len(summaries) :] for name in each.names)
        # Reported by somebody else, or by the costs.
        hidden = taken | set(self.costs)
        self._sums[: len(summaries)] = [each.without(hidden) for each in self._sums[: len(summaries)]]

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Get ready to read the sums."""
        self._read = trainer.sess.make_callable([each.variable for each in self._sums]) if self._sums else None

    def before_run(self, run_context: Any) -> Any:
        """Return the op that adds to the sums what belongs to the run, to be run along with it."""
        if self._companions is None:
            return self._in_each_run
        fetches = run_context.original_args.fetches
        if fetches is not self._last[0]:
            self._last = (fetches, self._companions.request_for(fetches) or self._in_each_run)
        return self._last[1]

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Report the means, and begin anew; before any `trigger_epoch`, so that all callbacks find them."""
        self._means = {}
        for name, mean in self.read().items():
            trainer.monitors.put_scalar(name, mean)
        if self._sums:
            trainer.sess.run(self._reset)

    def read(self) -> dict[str, float]:
        """Return the means over the epoch so far, by their names; in between two epochs, over the one that is over."""
        if self._read is None:
            return {}
        values = self._read()
        means = {
            name: mean for each, value in zip(self._sums, values, strict=True) for name, mean in each.means(value).items()
        }
        self._means = means or self._means
        self._warn_of_what_is_not_finite()
        return self._means

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        if self._read is None:
            return {}
        return {"sums": {each.key: value for each, value in zip(self._sums, self._read(), strict=True)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        kept = state.get("sums", {})
        pairs = [(each.variable, kept[each.key]) for each in self._sums if each.key in kept]
        assign_values(self.trainer.sess, [pair for pair in pairs if pair[0].shape == np.shape(pair[1])])

    def _sum_costs(self, trainer: TrainerProtocol, costs: Mapping[str, Sequence[Any]], ops: list[Any]) -> RunCompanions:
        gradients: dict[Any, list[Any]] = {}
        for record in recorded_gradients(trainer.graph):
            # The gradients may not need the value of the cost itself.
            gradients.setdefault(record.cost.ref(), []).append(record.gradient.op)
        wanted = [
            RunTensor(name, tensor, gradients.get(tensor.ref(), [tensor.op]))
            for name, tensors in costs.items()
            for tensor in tensors
        ]

        def make_op(named: Sequence[tuple[str, Any]], run: Sequence[Any], inputs: Sequence[Any]) -> Any:
            of_towers: dict[str, list[Any]] = {}
            for name, tensor in named:
                of_towers.setdefault(name, []).append(tensor)
            means = {name: _mean(tensors) for name, tensors in of_towers.items()}
            return tf.group(*ops, *(self._add_cost(name, mean) for name, mean in means.items())) if means else None

        return RunCompanions(trainer, wanted, make_op)

    def _add_cost(self, name: str, mean: Any) -> Any:
        value = tf.stack([mean, tf.ones([], tf.float64)])
        known = next((each for each in self._sums if each.key == name), None)
        return self._add_to_sum([name], value) if known is None else known.add(value)

    def _add_to_sum(self, names: Sequence[str], value: Any) -> Any:
        """Return the op that adds `value`, which ends with a 1, to a sum of its own."""
        variable = tf.compat.v1.Variable(
            np.zeros(value.shape, np.float64), trainable=False, use_resource=True, name=".".join(names)
        )
        self._sums.append(_Sum(",".join(names), {name: index for index, name in enumerate(names)}, variable))
        return self._sums[-1].add(value)

    def _warn_of_what_is_not_finite(self) -> None:
        bad = next((name for name in self.costs if not math.isfinite(self._means.get(name, 0.0))), None)
        if bad is None or self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "%s was %s in epoch %d, in step %d of it at the latest (global step %d). The callback NanGuard stops at "
            "once, names the datapoints, or skips such steps.",
            bad,
            self._means[bad],
            self.epoch_num,
            self.local_step,
            self.global_step,
        )


@attrs.frozen(eq=False)
class _Sum:
    """A variable with sums over the epoch, and behind them how many values that are.

    Attributes:
        key: what it is called in the state.
        names: of what is reported, and where in the variable it is.
        variable: ``float64``, of rank 1.
    """

    key: str
    names: dict[str, int]
    variable: Any

    def add(self, value: Any) -> Any:
        """Return the op that adds a value."""
        op = tf.raw_ops.AssignAddVariableOp(resource=self.variable.handle, value=value)
        tf.compat.v1.add_to_collection(EPOCH_SUM_OPS_KEY, op)
        return op

    def without(self, names: set[str]) -> _Sum:
        """Return the sum, with less to report."""
        return attrs.evolve(self, names={name: index for name, index in self.names.items() if name not in names})

    def means(self, value: np.ndarray) -> dict[str, float]:
        """Return the means; none if there were no values."""
        return {name: float(value[index] / value[-1]) for name, index in self.names.items()} if value[-1] else {}


def _costs_of(trainer: TrainerProtocol) -> dict[str, list[Any]]:
    """Return the costs of each training tower, by their names."""
    towers = getattr(trainer, "towers", None)
    costs: dict[str, list[Any]] = {}
    for tower in () if towers is None else towers.training():
        output = tower.output
        for name, cost in output.items() if isinstance(output, Mapping) else [("cost", output)]:
            if isinstance(cost, tf.Tensor) and cost.shape.rank == 0 and cost.dtype.is_floating:
                costs.setdefault(str(name), []).append(cost)
    return costs


def _free_name(name: str, taken: set[str]) -> str:
    return f"training_{name}" if name in taken else name


def _is_same(one: Any, other: Any) -> bool:
    """Whether a tensor is the other one, if it is not cast."""
    source = one.op.inputs[0] if one.op.type == "Cast" else one
    return other is one or other is source


def _mean(tensors: Sequence[Any]) -> Any:
    values = [tf.cast(tensor, tf.float64) for tensor in tensors]
    return values[0] if len(values) == 1 else tf.add_n(values) / len(values)
