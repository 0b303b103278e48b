"""A learning rate finder: it raises the learning rate in each step, and suggests one from the costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least
from tpk.callbacks.hyper_params.setters import HyperParam, as_hyper_param
from tpk.callbacks.run_tensors import find_in_each_tower
from tpk.durable_files import replace_file
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.gradients import recorded_gradients
from tpk.graph.step_counter import get_global_step_var
from tpk.graph.variables import variable_name
from tpk.plugin import Callback
from tpk.plugin.creation import import_optional

_SMOOTHING = 0.9
_STOP_FACTOR = 4.0


class LRFinder(Callback):
    """Finds a learning rate in a separate training, and ends it.

    Each step uses a greater learning rate, by a constant factor, until the smoothed cost is 4 times the best one so far
    or `steps` are done. Then all variables and the learning rate get back their values from before the search. The
    curve is saved to ``lr_finder.csv`` in the `run_dir`, and the reason why the training ends shows the suggestion: the
    learning rate at which the cost falls fastest. It is a value to start from; check it with `plot`.

    Smith, "Cyclical Learning Rates for Training Neural Networks", 2015 (https://arxiv.org/abs/1506.01186), section 3.3.
    The range of rates and the end of the search are as in fastai; the suggestion is similar to Lightning's. (Both use a
    smoothing of 0.98, whose average over 100 steps lags behind by 49 of them. Here it is 0.9.)

    It copies all variables out of the session before the first step, fetches the cost in each step, and sets a variable
    after it. It works in one process, on ``single``, ``replicated`` and ``parameter_server``, but not on ``async``,
    whose towers are in different steps, and not with several steps in a run. The data, the counters, and random numbers
    do not go back. During the search no checkpoint can be saved.

    Args:
        param: a `HyperParam`, or the name of the variable that is the learning rate.
        start: the first learning rate.
        end: the last learning rate, greater than `start`.
        steps: the number of learning rates, 10 or more; the training must have at least as many steps.
        cost: a tensor, or its name inside the tower; by default the cost that is minimized. With several towers the
            mean is used.

    Raises:
        ConfigError: if an option is invalid; and, when the training is set up, if it cannot work there.

    Attributes:
        rates: the learning rates tried so far.
        costs: the costs at the start of their steps.
        smoothed_costs: the unbiased moving average of the costs.

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
    ) -> None:
        if not 0 < start < end < math.inf:
            raise ConfigError(f"LRFinder: start and end must be positive, and end greater, not {start!r} and {end!r}")
        check_at_least(self, 10, steps=steps)
        self.param = as_hyper_param(self, param)
        self.rates: list[float] = []
        self.costs: list[float] = []
        self.smoothed_costs: list[float] = []
        self._start, self._end = float(start), float(end)
        self._steps = steps
        self._wanted = cost
        self._tensors: list[Any] = []
        # During the search, the values of the variables and of the learning rate from before.
        self._initial: tuple[dict[str, Any], Any] | None = None
        self._cost: float | None = None
        self._average = 0.0

    @property
    def suggestion(self) -> float | None:
        """The learning rate at which the cost falls fastest; None if it never fell, or too few steps were made.

        That is where the moving average falls fastest before its minimum, minus the steps by which the average lags
        behind. The first tenth of the steps is ignored, because an average starts with noise. After the minimum, a cost
        may fall from a peak.
        """
        if not self.rates:
            return None
        first, least = len(self.rates) // 10, int(np.nanargmin(self.smoothed_costs[:-1] or [0.0]))
        curve = self.smoothed_costs[first : least + 1]
        slopes = np.gradient(curve) if len(curve) > 1 else np.zeros(1)
        steepest = int(slopes.argmin())
        lag = round(_SMOOTHING / (1 - _SMOOTHING))
        return self.rates[max(first + steepest - lag, 0)] if slopes[steepest] < 0 else None

    def plot(self) -> Any:
        """Plot the smoothed cost over the learning rate, with the suggestion, with `matplotlib.pyplot`.

        Returns:
            The `matplotlib.axes.Axes`.

        Raises:
            TrainerStateError: if the search has not started.
            PluginImportError: if Matplotlib is not installed.
        """
        if not self.rates:
            raise TrainerStateError("LRFinder has no costs yet. Train with it as a callback, then plot.")
        instead = "The values are in finder.rates and finder.smoothed_costs."
        pyplot = import_optional("matplotlib.pyplot", "LRFinder.plot()", "matplotlib", instead)
        axes = pyplot.figure().subplots()
        axes.plot(self.rates, self.smoothed_costs)
        axes.set(xscale="log", xlabel=self.param.readable_name, ylabel="cost (smoothed)")
        if self.suggestion is not None:
            axes.axvline(self.suggestion, linestyle="--")
            axes.set_title(f"suggestion: {self.suggestion:.3g}")
        return axes

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the learning rate and the cost."""
        strategy = trainer.strategy
        if strategy.world_size > 1:
            raise ConfigError("LRFinder works in one process. Use strategy='replicated' on one host.")
        if strategy.num_replicas > 1 and not strategy.repeats_steps:
            raise ConfigError(
                f"LRFinder: the towers of {type(strategy).__name__} are in different steps. Use 'single' or "
                "'replicated'."
            )
        if trainer.loop.steps_per_run > 1:
            raise ConfigError(
                f"LRFinder changes the learning rate after each step, but a run makes {trainer.loop.steps_per_run} "
                "steps. Leave steps_per_run out."
            )
        self.param.setup_graph()
        self._tensors = _find_cost(trainer, self._wanted)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Check the number of steps."""
        steps = (trainer.loop.max_epoch - trainer.loop.starting_epoch + 1) * trainer.loop.steps_per_epoch
        if steps < self._steps:
            raise ConfigError(
                f"LRFinder(steps={self._steps}): this training only has {steps} steps. Give it more epochs, or "
                "LRFinder fewer steps."
            )
        self.rates, self.costs, self.smoothed_costs, self._average = [], [], [], 0.0

    def before_run(self, run_context: Any) -> Any:
        """Return the cost; start the search before the first step."""
        if self._initial is None and not self.rates:
            self._begin()
        return self._tensors

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep the cost."""
        self._cost = float(np.mean(run_values.results))

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Record the cost, and set the next learning rate or end the search."""
        if self._cost is None:
            raise TrainerStateError(
                "LRFinder: the step had no run by trainer.hooked_sess, so the cost is unknown. In run_step, use "
                "self.hooked_sess instead of self.sess."
            )
        self._record(self._cost)
        if len(self.rates) == self._steps or self._has_diverged():
            self._finish()
            tried = f"{self.param.readable_name} from {self.rates[0]:.3g} to {self.rates[-1]:.3g}"
            result = "the cost did not fall" if self.suggestion is None else f"the suggestion is {self.suggestion:.3g}"
            trainer.request_stop(f"LRFinder: with {tried}, {result}")
        else:
            self.param.set_value(self._next_rate)

    def before_checkpoint(self) -> None:
        """Refuse checkpoints during the search."""
        if self._initial is not None:
            raise ConfigError(
                "LRFinder: a checkpoint during the search would be useless. Leave savers out, and search in a separate "
                "training."
            )

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Restore the values from before the search if the training ends early."""
        if self._initial is not None:
            self._finish()

    @property
    def _next_rate(self) -> float:
        return float(self._start * (self._end / self._start) ** (len(self.rates) / (self._steps - 1)))

    def _begin(self) -> None:
        trainer = self.trainer
        variables = trainer.checkpoints.variables
        values = dict(zip(map(variable_name, variables), trainer.sess.run(list(variables)), strict=True))
        values.pop(variable_name(get_global_step_var()), None)
        self._initial = values, self.param.get_value()
        self.param.set_value(self._next_rate)

    def _record(self, cost: float) -> None:
        self.rates.append(self._next_rate)
        self.costs.append(cost)
        self._average = _SMOOTHING * self._average + (1 - _SMOOTHING) * cost
        self.smoothed_costs.append(self._average / (1 - _SMOOTHING ** len(self.rates)))

    def _has_diverged(self) -> bool:
        *before, now = self.smoothed_costs
        if not math.isfinite(now):
            return True
        best = min(before, default=now)
        # A cost may be negative.
        return now > best + (_STOP_FACTOR - 1) * abs(best)

    def _finish(self) -> None:
        assert self._initial is not None
        (values, rate), self._initial = self._initial, None
        trainer = self.trainer
        trainer.checkpoints.assign(values)
        self.param.set_value(rate)
        if trainer.run_dir is not None and self.rates:
            rows = zip(self.rates, self.costs, self.smoothed_costs, strict=True)
            lines = [f"{self.param.readable_name},cost,smoothed_cost", *(",".join(map(repr, row)) for row in rows)]
            replace_file(trainer.run_dir / "lr_finder.csv", "\n".join([*lines, ""]).encode())


def _find_cost(trainer: tpk.Trainer, wanted: Any) -> list[Any]:
    """Return the cost of each tower."""
    if isinstance(wanted, str):
        return find_in_each_tower(trainer, wanted)
    if wanted is not None:
        return [wanted]
    costs = [tower.output for tower in trainer.towers.training()]
    if not costs:
        costs = list({record.cost.name: record.cost for record in recorded_gradients(trainer.graph)}.values())[:1]
    if not costs or not all(isinstance(cost, tf.Tensor) for cost in costs):
        raise ConfigError(
            f"LRFinder needs one cost, which a {type(trainer).__name__} does not have. Name it: LRFinder(cost='cost')."
        )
    return costs
