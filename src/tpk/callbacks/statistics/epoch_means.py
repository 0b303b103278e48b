"""Epoch means: of the costs that a training minimizes, and of what `add_moving_summary` was given."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.callbacks.run_tensors import RunCompanions, run_tensors
from tpk.graph.reports.summaries import moving_summaries, names_of_scalar_summaries
from tpk.graph.variables import assign_values, make_local, variable_name
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

    The sums are kept in the graph, by an op that runs along with the step, and nothing is fetched for them in most
    steps. A cost that is not finite makes its mean so, and is warned of once.

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
        self._sums_of: dict[Any, tuple[_Sum, ...]] = {}
        # What runs along with the run under way, for which fetches, and what it adds to.
        self._fetches: Any = None
        self._op: Any = None
        self._adding: tuple[_Sum, ...] = ()
        self._in_each_run: Any = None
        # How many runs there were in this epoch, and how many of them the sums know of.
        self._runs = self._counted = 0
        self._reset: Any = None
        self._read: Callable[[], list[Any]] | None = None
        self._start_anew: Callable[[], None]
        self._means: dict[str, float] = {}
        self._has_warned = False

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add the sums to the graph."""
        taken = names_of_scalar_summaries(trainer.graph)
        summaries = moving_summaries(trainer.graph)
        own = {
            name: tensor for names, values in summaries for name, tensor in zip(names, values.op.inputs, strict=False)
        }
        costs = {
            _free_name(name, taken | {other for other in own if not _is_same(own[other], tensors[0])}): tensors
            for name, tensors in _costs_of(trainer).items()
        }
        # A cost that is summed up already needs no sum of its own.
        is_simple = len(trainer.train_ops) == 1 and all(len(tensors) == 1 for tensors in costs.values())
        summed = {name for name in costs if is_simple and name in own}
        with tf.name_scope("epoch_means/"), tf.device("/cpu:0"):
            ops = []
            hidden = taken | (costs.keys() - summed)
            for names, values in summaries:
                places = {name: slice(i, i + 1) for i, name in enumerate(names) if name not in hidden}
                ops.append(self._add_sum(names, values, places))
                hidden |= places.keys()
            if trainer.train_ops and costs.keys() - summed:
                sums, others = tuple(self._sums), {name: costs[name] for name in costs if name not in summed}
                self._companions = self._sum_costs(trainer, others, ops, sums)
            self._adding = tuple(self._sums[: len(ops)])
            self._in_each_run = self._op = ops[0] if len(ops) == 1 else tf.group(*ops) if ops else None
            self._sums_of[self._in_each_run] = self._adding
            self._reset = tf.group(*(each.variable.initializer for each in self._sums))
        make_local([each.variable for each in self._sums])
        reported = {name for each in self._sums for name in each.places}
        self.costs = tuple(name for name in costs if name in reported)

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Get ready to read the sums."""
        if self._sums:
            self._read = trainer.sess.make_callable([each.variable for each in self._sums])
            self._start_anew = trainer.sess.make_callable(self._reset)

    def before_run(self, run_context: Any) -> Any:
        """Return the op that adds to the sums what belongs to the run, to be run along with it."""
        if self._companions is not None:
            fetches = run_context.original_args.fetches
            if fetches is not self._fetches:
                self._choose(fetches)
        return self._op

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count the run; now and then, take what was summed up out of the graph, where it is of single precision."""
        steps = run_context.steps
        self._runs += steps
        if self._runs % _RUNS_BETWEEN_FETCHES < steps:
            self._fetch()

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Report the means, and begin anew; before any `trigger_epoch`, so that all callbacks find them."""
        self._means = {}
        for name, mean in self.read().items():
            trainer.monitors.put_scalar(name, mean)
        if self._sums:
            self._fetch()
            for each in self._sums:
                each.runs, each.kept = 0, np.zeros_like(each.kept)
            self._runs = self._counted = 0

    def read(self) -> dict[str, float]:
        """Return the means over the epoch so far, by their names; in between two epochs, over the one that is over."""
        if self._read is None:
            return {}
        self._count()
        means: dict[str, float] = {}
        for each, value in zip(self._sums, self._read(), strict=True):
            means |= each.means(value)
        self._means = means or self._means
        self._warn_of_what_is_not_finite()
        return self._means

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        if self._read is None:
            return {}
        self._count()
        sums = {
            each.key: {"runs": each.runs, "kept": each.kept, "in_graph": np.asarray(value)}
            for each, value in zip(self._sums, self._read(), strict=True)
        }
        return {"runs": self._runs, "sums": sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; what is of another shape by now begins anew."""
        kept = state.get("sums", {})
        fitting = [each for each in self._sums if each.key in kept and each.kept.shape == kept[each.key]["kept"].shape]
        for each in fitting:
            each.runs, each.kept = kept[each.key]["runs"], kept[each.key]["kept"]
        assign_values(self.trainer.sess, [(each.variable, kept[each.key]["in_graph"]) for each in fitting])
        self._runs = self._counted = state.get("runs", 0)

    def _sum_costs(
        self, trainer: TrainerProtocol, costs: Mapping[str, Sequence[Any]], ops: Sequence[Any], sums: tuple[_Sum, ...]
    ) -> RunCompanions:
        """Return for each run the op that adds to the sums of the costs that belong to it, along with `ops`."""
        named = [(name, tensor) for name, tensors in costs.items() for tensor in tensors]
        wanted = run_tensors(trainer.graph, named)
        added: dict[str, tuple[_Sum, Any]] = {}

        def make_op(named: Sequence[tuple[str, Any]], run: Sequence[Any], inputs: Sequence[Any]) -> Any:
            of_towers: dict[str, list[Any]] = {}
            for name, tensor in named:
                of_towers.setdefault(name, []).append(tensor)
            for name, tensors in of_towers.items():
                if name not in added:
                    value = tensors[0] if len(tensors) == 1 else tf.stack(tensors)
                    op = self._add_sum([name], value, {name: slice(None)})
                    added[name] = self._sums[-1], op
            own = [added[name] for name in of_towers]
            along = [*ops, *(op for _, op in own)]
            op = along[0] if len(along) == 1 else tf.group(*along) if own else None
            self._sums_of[op] = (*sums, *(each for each, _ in own))
            return op

        return RunCompanions(trainer, wanted, make_op)

    def _add_sum(self, names: Sequence[str], value: Any, places: dict[str, slice]) -> Any:
        """Return the op that adds `value` to a sum of its own."""
        dtype = tf.float64 if value.dtype == tf.float64 else tf.float32
        variable = tf.compat.v1.Variable(
            np.zeros(value.shape, dtype.as_numpy_dtype), trainable=False, use_resource=True, name=".".join(names)[:200]
        )
        self._sums.append(_Sum(variable, places, np.zeros(value.shape.num_elements())))
        return tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=tf.cast(value, dtype))

    def _choose(self, fetches: Any) -> None:
        """Find out what runs along with `fetches`."""
        assert self._companions is not None
        self._count()
        found = self._companions.request_for(fetches) or self._in_each_run
        self._fetches, self._op = fetches, found
        chosen = [self._sums_of.get(op, ()) for op in (found if isinstance(found, list) else [found])]
        self._adding = tuple(dict.fromkeys(each for sums in chosen for each in sums))

    def _count(self) -> None:
        """Let the sums know of the runs since the last time."""
        for each in self._adding:
            each.runs += self._runs - self._counted
        self._counted = self._runs

    def _fetch(self) -> None:
        """Take what was summed up out of the graph."""
        if self._read is not None:
            for each, value in zip(self._sums, self._read(), strict=True):
                each.kept = each.kept + np.ravel(value)
            self._start_anew()

    def _warn_of_what_is_not_finite(self) -> None:
        bad = next((name for name in self.costs if not math.isfinite(self._means.get(name, 0.0))), None)
        if bad is None or self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "%s is %s in epoch %d, noticed after step %d of it (global step %d). The callback NanGuard stops at once, "
            "names the datapoints, or skips such steps.",
            bad,
            self._means[bad],
            self.epoch_num,
            self.local_step + 1,
            self.global_step,
        )


_RUNS_BETWEEN_FETCHES = 1024
"""So many values may be summed up in single precision: the sum then still has five digits."""


@attrs.define(eq=False)
class _Sum:
    """What was added up over the epoch so far.

    Attributes:
        variable: what has been added of late.
        places: where in it is what, of what is reported; several numbers are those of as many towers.
        kept: what was added before, ``float64``.
        runs: how many values that are, all in all.
    """

    variable: Any
    places: dict[str, slice]
    kept: np.ndarray
    runs: int = 0

    @property
    def key(self) -> str:
        """What it is called in the state."""
        return str(variable_name(self.variable))

    def means(self, value: Any) -> dict[str, float]:
        """Return the means, given the value of the variable; none if nothing was added."""
        if not self.runs:
            return {}
        totals = self.kept + np.ravel(value)
        return {name: float(np.mean(totals[place])) / self.runs for name, place in self.places.items()}


def _costs_of(trainer: TrainerProtocol) -> dict[str, list[Any]]:
    """Return the costs of each training tower, by their names."""
    costs: dict[str, list[Any]] = {}
    for tower in trainer.towers.training():
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
