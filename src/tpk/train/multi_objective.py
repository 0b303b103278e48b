"""Training with several costs, each minimized over a part of the model: GANs, actor-critic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from math import lcm
from typing import Any

import attrs

from tpk.argument_checks import check_one_of
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.objective import Objective
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.graph.optimizers.proxy_optimizer import unwrapped
from tpk.input_source.base import InputSource
from tpk.plugin.creation import also_spelled
from tpk.train.tower_trainer import SETUP_SPELLINGS, TowerTrainer

UPDATES = ("in_turn", "together")


class MultiObjectiveTrainer(TowerTrainer):
    """Trains a model with several costs, on the devices and processes of its strategy.

    An objective is due in each step whose number is a multiple of its `every`. Steps are counted from 1 through all
    epochs, so a resumed training continues the pattern. At least one objective has ``every=1``, so that each step
    minimizes something.

    - ``"in_turn"``: each due objective has its own run, in the order of the list, so later ones see the updates of
      earlier ones. Each run takes another datapoint from the input for each tower, and calls all hooks, including
      per-step callbacks such as `RunUpdateOps` and moving averages. Together they are one step of `global_step`, which
      the first run counts.
    - ``"together"``: one run minimizes all due objectives. All gradients are computed from the same datapoint and the
      same variables before any of them is applied. Then each objective's optimizer updates its variables. If several
      objectives train the same variable, the later ones in the list continue with its new value.

    Strategies whose towers do not wait for each other (``async``) do not support several objectives.

    Regardless of the objective that a run updates, all tensors that it fetches from the training towers (such as the
    other costs) are computed from the variables before the update; see `Strategy.build`.

    Args:
        strategy: how a step is replicated: an instance, a class, a name, or `tpk.use(name, **options)`.
        update: ``"in_turn"`` or ``"together"``.
        precision: the dtype in which towers compute; see `TowerTrainer`.
        xla: whether towers are compiled; see `TowerTrainer`.
        steps_per_run: the number of steps in one run of the session; see `tpk.session.many_steps`. More than one
            requires that all objectives are minimized together in each step.

    Raises:
        ConfigError: if `update` or the precision is unknown, or this TensorFlow has no XLA.

    Example:
        ```python
        def build_graph(image):
            ...
            return {"discriminator": discriminator_cost, "generator": generator_cost}

        trainer = tpk.MultiObjectiveTrainer(tpk.use("replicated", devices=8), update="in_turn")
        trainer.setup_graph(
            [tf.TensorSpec([None, 28, 28, 1], tf.float32, "image")],
            trainer.default_input(batches),
            build_graph,
            [
                tpk.Objective(get_optimizer, name="discriminator", variables="discriminator/"),
                tpk.Objective(get_optimizer, name="generator", variables="generator/", every=2),
            ],
        )
        trainer.train_with_defaults(steps_per_epoch=len(batches), max_epoch=10)
        ```
    """

    def __init__(
        self,
        strategy: Any = "single",
        update: str = "in_turn",
        precision: str = "float32",
        xla: bool = False,
        steps_per_run: int = 1,
    ) -> None:
        check_one_of(self, UPDATES, update=update)
        super().__init__(strategy, precision, xla, steps_per_run)
        self.update = update
        self._objectives: tuple[Objective, ...] = ()
        self._ops: dict[tuple[int, ...], Any] = {}

    @also_spelled({**SETUP_SPELLINGS, "get_cost_fn": "get_costs"}, get_opt_fn="each of the objectives has its own.")
    def setup_graph(
        self,
        input_signature: Sequence[Any],
        input_source: InputSource,
        get_costs: Callable[..., Any],
        objectives: Sequence[Objective],
    ) -> None:
        """Build the training towers and the train ops in the trainer's graph.

        Args:
            input_signature: a `tf.TensorSpec(shape, dtype, name)` for each input of the model.
            input_source: provides the data; see `tpk.input_source`.
            get_costs: the tower function: takes the input tensors, returns a dict of costs by name.
            objectives: the objectives in order; each names one of the costs. They may train the same variables.

        Raises:
            TrainerStateError: if the graph was set up before.
            ConfigError: if `objectives` is empty, two have the same name, or no objective has ``every=1``; or if the
                strategy or an optimizer does not support them.
            InputError, TowerError: if another argument is invalid.
        """
        self._objectives = _checked(objectives)
        if self.update == "together":
            groups = _due_sets(self._objectives)
        else:
            groups = [(position,) for position in range(len(self._objectives))]
        minimized = [self.scale_loss(objective) for objective in self._objectives]
        for position, objective in enumerate(minimized):
            if sum(position in group for group in groups) > 1:
                minimized[position] = _not_accumulating(objective)
        ops = self.build_towers(input_signature, input_source, get_costs, minimized, groups)
        self._ops = dict(zip(groups, ops, strict=False))
        self.train_op = ops[0] if len(ops) == 1 else ops or None

    @property
    def train_ops(self) -> list[Any]:
        """The ops of a step; each of them has its own run."""
        return list(self._ops.values())

    @property
    def repeats_steps(self) -> bool:
        """Whether all that a step does is to run `train_ops`."""
        return type(self).run_step is MultiObjectiveTrainer.run_step

    def run_step(self) -> None:
        """Minimize the objectives that are due.

        Raises:
            TrainerStateError: if the graph is not set up.
        """
        if not self._ops:
            raise TrainerStateError(f"this {type(self).__name__} has nothing to minimize. Call setup_graph() first.")
        step = (self.epoch_num - 1) * self.loop.steps_per_epoch + self.local_step + 1
        due = _due(self._objectives, step)
        if self.update == "together":
            self.hooked_sess.run(self._ops[due])
        else:
            for position in due:
                self.hooked_sess.run(self._ops[(position,)])


def _checked(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    if not objectives:
        raise ConfigError("objectives is empty. Give one or more tpk.Objective.")
    for objective in objectives:
        if not isinstance(objective, Objective):
            raise ConfigError(f"expected objectives, each a tpk.Objective; got {objective!r}.")
    names = [objective.name for objective in objectives]
    if "" in names:
        raise ConfigError(
            f"the objective at position {names.index('')} has no name. Give the name of the cost that it minimizes."
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"several objectives are called {', '.join(map(repr, repeated))}. Give each its own cost.")
    if all(objective.every > 1 for objective in objectives):
        periods = ", ".join(f"{objective.name!r} every {objective.every}" for objective in objectives)
        raise ConfigError(
            f"no objective is due in the first step ({periods}). Let at least one be minimized in every step (every=1)."
        )
    return tuple(objectives)


def _due(objectives: Sequence[Objective], step: int) -> tuple[int, ...]:
    """Return the positions of the objectives that are due in a step."""
    return tuple(position for position, objective in enumerate(objectives) if step % objective.every == 0)


def _due_sets(objectives: Sequence[Objective]) -> list[tuple[int, ...]]:
    """Return each set of objectives that are due together in some step, as their positions.

    The objectives that are due in a step are also due, and no others, in the step whose number is the least common
    multiple of their periods.
    """
    periods = sorted({objective.every for objective in objectives})
    subsets = chain.from_iterable(combinations(periods, count) for count in range(1, len(periods) + 1))
    return sorted({_due(objectives, lcm(*subset)) for subset in subsets}, key=lambda due: (len(due), due))


def _not_accumulating(objective: Objective) -> Objective:
    """Return the objective, which raises an error if its optimizer accumulates gradients."""

    def get_optimizer() -> Any:
        optimizer = objective.get_optimizer()
        if any(isinstance(each, AccumGradOptimizer) for each in unwrapped(optimizer)):
            raise ConfigError(
                "an AccumGradOptimizer cannot be part of several train ops, because each would accumulate separately. "
                "But update='together' has a train op for each set of objectives that are due in a step. Give all "
                "objectives every=1, or use update='in_turn'."
            )
        return optimizer

    return attrs.evolve(objective, get_optimizer=get_optimizer)
