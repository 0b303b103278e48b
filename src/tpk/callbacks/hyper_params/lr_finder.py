"""Learning rate finder: the cost over learning rates that rise from step to step, and which of them to take."""

from __future__ import annotations

import csv
import io
import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.callbacks.hyper_params.setters import GraphVarParam, HyperParam
from tpk.callbacks.run_tensors import find_in_each_tower
from tpk.durable_files import replace_file
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.gradients import recorded_gradients
from tpk.graph.steps import get_global_step_var
from tpk.graph.variables import variable_name
from tpk.plugin import Callback
from tpk.plugin.creation import import_optional

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class LRFinder(Callback):
    """Finds a learning rate, in a training of its own, which it ends.

    In each step it takes a greater one, up by the same factor, until the smoothed cost is `stop_factor` times the best
    so far, or `steps` are done. Then it gives all variables, and the learning rate, the values that they had before,
    writes the curve to ``lr_finder.csv`` in the `run_dir`, logs what it suggests, and ends the training. It suggests
    the learning rate at which the cost falls fastest: a value to start from, to be checked against `plot`.

    Smith, "Cyclical Learning Rates for Training Neural Networks", 2015 (https://arxiv.org/abs/1506.01186), section 3.3.
    The range of rates, and when it ends, are those of fastai, and the suggestion is after Lightning's. (Both smooth by
    0.98, with which an average over 100 steps comes 49 of them late.)

    It copies all variables out of the session before the first step, fetches the cost in each step, and sets a variable
    after it. It works within one process, on ``single``, ``replicated`` and ``parameter_server``; not on ``async``,
    whose towers take other learning rates meanwhile, and with one step in a run. What the steps have taken of the data,
    the counters, and random numbers do not go back. While it searches, no checkpoint can be saved.

    Args:
        param: a `HyperParam`, or the name of the variable that is the learning rate.
        start: the first learning rate.
        end: the last one, more than `start`.
        steps: how many there are, 10 or more; the training must have as many steps.
        cost: a tensor, or its name inside the tower; by default the cost that is minimized. Of several towers it is the
            mean.
        smoothing: the decay of the moving average of the cost, from 0 (none) to less than 1; it is unbiased.
        stop_factor: how many times the best smoothed cost is too much; more than 1.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if it cannot work
            there.

    Attributes:
        rates: the learning rates that were tried so far.
        costs: the costs with which their steps began.
        smoothed_costs: their moving average.

    Example:
        ```python
        finder = tpk.LRFinder("learning_rate")
        tpk.launch_train_with_config(tpk.TrainConfig(model=Model(), dataflow=batches, callbacks=[finder]))
        finder.suggestion  # 0.0038
        finder.plot()
        ```
    """

    def __init__(
        self,
        param: HyperParam | str = "learning_rate",
        start: float = 1e-7,
        end: float = 10.0,
        steps: int = 100,
        *,
        cost: Any = None,
        smoothing: float = 0.9,
        stop_factor: float = 4.0,
    ) -> None:
        if not 0 < start < end < math.inf:
            raise ConfigError(
                f"LRFinder(start={start!r}, end={end!r}): expected positive numbers, end the greater one."
            )
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 10:
            raise ConfigError(f"LRFinder(steps={steps!r}): expected a whole number, 10 or more.")
        if not 0 <= smoothing < 1:
            raise ConfigError(f"LRFinder(smoothing={smoothing!r}): expected a number from 0 to less than 1.")
        if not stop_factor > 1:
            raise ConfigError(f"LRFinder(stop_factor={stop_factor!r}): expected more than 1.")
        self.param = GraphVarParam(param) if isinstance(param, str) else param
        if not isinstance(self.param, HyperParam):
            raise ConfigError(f"LRFinder: expected a HyperParam or the name of a variable, but got {param!r}.")
        self.rates: list[float] = []
        self.costs: list[float] = []
        self.smoothed_costs: list[float] = []
        self._start, self._end = float(start), float(end)
        self._steps = steps
        self._wanted = cost
        self._smoothing = smoothing
        self._stop_factor = stop_factor
        self._tensors: list[Any] = []
        # What there was before the search, while it lasts.
        self._initial: tuple[dict[str, Any], Any] | None = None
        self._cost: float | None = None
        self._average = 0.0

    @property
    def suggestion(self) -> float | None:
        """The learning rate at which the cost falls fastest; None if it never fell, or too little was tried.

        That is where the moving average falls fastest on its way to its least value, less the ``smoothing / (1 -
        smoothing)`` steps by which it comes late. The first tenth of the steps is left out, as an average begins with
        noise, and so is what comes after the least value: there, a cost may fall from a height to which it had leapt.
        """
        if not self.rates:
            return None
        first, least = len(self.rates) // 10, int(np.nanargmin(self.smoothed_costs[:-1] or [0.0]))
        curve = self.smoothed_costs[first : least + 1]
        slopes = np.gradient(curve) if len(curve) > 1 else np.zeros(1)
        steepest = int(slopes.argmin())
        late = round(self._smoothing / (1 - self._smoothing))
        return self.rates[max(first + steepest - late, 0)] if slopes[steepest] < 0 else None

    def plot(self) -> Any:
        """Plot the smoothed cost over the learning rate, with the suggestion, as a figure of `matplotlib.pyplot`.

        Returns:
            The `matplotlib.axes.Axes`.

        Raises:
            TrainerStateError: if it has not run yet.
            PluginImportError: if Matplotlib is not installed.
        """
        if not self.rates:
            raise TrainerStateError("LRFinder has tried nothing yet. Train with it as a callback, then plot.")
        instead = "The values are in finder.rates and finder.smoothed_costs."
        pyplot = import_optional("matplotlib.pyplot", "LRFinder.plot()", "matplotlib", instead)
        axes = pyplot.figure().subplots()
        axes.plot(self.rates, self.smoothed_costs)
        axes.set(xscale="log", xlabel=self.param.readable_name, ylabel="cost (smoothed)")
        if self.suggestion is not None:
            axes.axvline(self.suggestion, linestyle="--")
            axes.set_title(f"suggestion: {self.suggestion:.3g}")
        return axes

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the learning rate and the cost.

        Raises:
            ConfigError: if there is no such thing, or it cannot work in this training.
        """
        strategy = trainer.strategy
        if strategy.world_size > 1:
            raise ConfigError("LRFinder works within one process. Search with strategy='replicated' on one host.")
        if strategy.num_replicas > 1 and not strategy.repeats_steps:
            raise ConfigError(
                f"LRFinder: with {type(strategy).__name__}, towers do not train in step. Search with 'single' or "
                "'replicated'."
            )
        if trainer.loop.steps_per_run > 1:
            raise ConfigError(
                f"LRFinder takes another learning rate in each step, and a run makes {trainer.loop.steps_per_run} "
                "(steps_per_run). Leave steps_per_run out."
            )
        self.param.setup_graph()
        self._tensors = _find_cost(trainer, self._wanted)

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Check that there are steps enough.

        Raises:
            ConfigError: if there are not.
        """
        steps = (trainer.loop.max_epoch - trainer.loop.starting_epoch + 1) * trainer.loop.steps_per_epoch
        if steps < self._steps:
            raise ConfigError(
                f"LRFinder(steps={self._steps}): this training has {steps} steps. Give it more epochs, or LRFinder "
                "less steps."
            )
        self.rates, self.costs, self.smoothed_costs, self._average = [], [], [], 0.0

    def before_run(self, run_context: Any) -> Any:
        """Return the cost, to be fetched along with the step; before the first one, begin."""
        if self._initial is None and not self.rates:
            self._begin()
        return self._tensors

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Take the cost."""
        self._cost = float(np.mean(run_values.results))

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Take note of the cost, and take the next learning rate, or end the search.

        Raises:
            TrainerStateError: if the step has run nothing that hooks see.
        """
        if self._cost is None:
            raise TrainerStateError(
                "LRFinder: the step ran nothing by trainer.hooked_sess, so there is no cost. Where run_step runs "
                "self.sess, write self.hooked_sess."
            )
        self._take(self._cost)
        if len(self.rates) == self._steps or self._has_diverged():
            self._finish()
            trainer.request_stop(f"LRFinder: {self._outcome()}")
        else:
            self.param.set_value(self._next_rate)

    def before_checkpoint(self) -> None:
        """Prevent checkpoints of the search.

        Raises:
            ConfigError: while it lasts.
        """
        if self._initial is not None:
            raise ConfigError(
                "LRFinder: checkpoints while it searches are of no use. Leave savers out; it is for a training of its "
                "own."
            )

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Go back to what there was before, if the training ends before the search."""
        if self._initial is not None:
            self._finish()

    @property
    def _next_rate(self) -> float:
        rate: float = self._start * (self._end / self._start) ** (len(self.rates) / (self._steps - 1))
        return rate

    def _begin(self) -> None:
        trainer = self.trainer
        variables = trainer.checkpoints.variables
        values = dict(zip(map(variable_name, variables), trainer.sess.run(list(variables)), strict=True))
        values.pop(variable_name(get_global_step_var()), None)
        self._initial = values, self.param.get_value()
        self.param.set_value(self._next_rate)

    def _take(self, cost: float) -> None:
        self.rates.append(self._next_rate)
        self.costs.append(cost)
        self._average = self._smoothing * self._average + (1 - self._smoothing) * cost
        self.smoothed_costs.append(self._average / (1 - self._smoothing ** len(self.rates)))

    def _has_diverged(self) -> bool:
        *before, now = self.smoothed_costs
        if not math.isfinite(now):
            return True
        best = min(before, default=now)
        # Of a cost that may be negative, it is as far above the best.
        return now > best + (self._stop_factor - 1) * abs(best)

    def _finish(self) -> None:
        assert self._initial is not None
        (values, rate), self._initial = self._initial, None
        trainer = self.trainer
        trainer.checkpoints.assign(values)
        self.param.set_value(rate)
        if trainer.run_dir is not None and self.rates:
            path = trainer.run_dir / "lr_finder.csv"
            replace_file(path, self._table().encode(), path.with_name(".lr_finder.csv.new"))

    def _table(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([self.param.readable_name, "cost", "smoothed_cost"])
        writer.writerows(zip(self.rates, self.costs, self.smoothed_costs, strict=True))
        return text.getvalue()

    def _outcome(self) -> str:
        tried = f"{self.param.readable_name} from {self.rates[0]:.3g} to {self.rates[-1]:.3g}"
        if self.suggestion is None:
            return f"of {tried}, none lets the cost fall"
        return f"of {tried}, it suggests {self.suggestion:.3g}"


def _find_cost(trainer: TrainerProtocol, wanted: Any) -> list[Any]:
    """Return the cost of each tower that has one."""
    if isinstance(wanted, str):
        return find_in_each_tower(trainer, wanted)
    if wanted is not None:
        return [wanted]
    costs = [tower.output for tower in trainer.towers.training()]
    if not costs:
        costs = list({record.cost.name: record.cost for record in recorded_gradients(trainer.graph)}.values())[:1]
    if not costs or not all(isinstance(cost, tf.Tensor) for cost in costs):
        raise ConfigError(
            f"LRFinder does not know the one cost of a {type(trainer).__name__}. Give it, or its name: "
            "LRFinder(cost='cost')."
        )
    return costs
