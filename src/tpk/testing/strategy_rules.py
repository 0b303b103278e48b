"""The rules of strategies."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError, StopTraining
from tpk.graph.objective import Objective
from tpk.input_source.base import InputSource
from tpk.input_source.feed import FeedInput
from tpk.input_source.queue import QueueInput
from tpk.plugin import Callback
from tpk.strategies.base import Strategy
from tpk.testing.comparison import Broken, check_same, flat
from tpk.testing.conformance import Conformance, training_fails
from tpk.testing.leftovers import leaving_nothing
from tpk.testing.trainings import (
    EPOCHS,
    OPTIMIZERS,
    STEPS,
    WEIGHTS,
    Outcome,
    TinyModel,
    batches,
    concatenated,
    set_up,
    train,
)
from tpk.train.multi_objective import MultiObjectiveTrainer

RELATIVE, ABSOLUTE = 2e-4, 2e-5
"""Tolerances for float32: towers add in another order."""


def check_strategy(
    make: Callable[[], Strategy],
    *,
    num_towers: int = 1,
    optimizers: Collection[str] = tuple(OPTIMIZERS),
    skip: Collection[str] = (),
) -> list[str]:
    """Check that a strategy keeps the rules of strategies, in trainings of a tiny model of at most 12 steps each.

    The trainings run in this process. A strategy for several processes trains as one of them here; let one of your
    tests start several processes, and compare the result with `num_towers` towers in one.

    Results of a strategy whose towers do not wait for each other (`is_reproducible` is false) are not checked.

    Args:
        make: returns a new strategy each time.
        num_towers: how many towers it trains here.
        optimizers: the optimizers with which towers are compared with one: ``"sgd"``, ``"momentum"``, ``"adam"``.
        skip: the names of rules that the strategy need not keep; add a comment that says why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if a rule is broken. The message says which, what was expected and found, and where to read.
        ConfigError: if `skip` names an unknown rule, or `optimizers` an unknown optimizer.

    Example:
        ```python
        def test_keeps_the_rules_of_strategies():
            check_strategy(lambda: MyStrategy(devices=2), num_towers=2)
        ```
    """
    __tracebackhide__ = True
    if not set(optimizers) <= set(OPTIMIZERS):
        raise ConfigError(f"optimizers={optimizers!r}: expected some of {', '.join(OPTIMIZERS)}.")
    with tempfile.TemporaryDirectory() as directory:
        return StrategyConformance(make, Path(directory), num_towers, optimizers).check(skip)


class StrategyConformance(Conformance[Strategy]):
    """The rules of strategies, and the training that most look at; for the arguments see `check_strategy`."""

    kinds = "strategies"
    base = Strategy

    def __init__(
        self,
        make: Callable[[], Strategy],
        directory: Path,
        num_towers: int = 1,
        optimizers: Collection[str] = tuple(OPTIMIZERS),
    ) -> None:
        super().__init__(make, directory)
        self.num_towers, self.optimizers = num_towers, optimizers
        self.towers = _Towers()

    @cached_property
    def is_reproducible(self) -> bool:
        """Whether two trainings are the same."""
        return self.make().is_reproducible

    @cached_property
    def source(self) -> Callable[..., InputSource]:
        """The input source. Towers that do not wait for each other take their data from the graph."""
        return FeedInput if self.is_reproducible else QueueInput

    @cached_property
    def first(self) -> Outcome:
        """A training of three epochs."""
        return _train(self.set_up, [self.towers], run_dir=self.directory / "first", copy=self.copy)

    def data(self, steps: int = STEPS * EPOCHS) -> list[list[np.ndarray]]:
        """Return the datapoints of all towers for a number of steps."""
        return batches(steps * self.num_towers)

    def set_up(self, optimizer: str = "momentum", **options: Any) -> Any:
        """Return a trainer with a new strategy and its graph."""
        options = {"source": self.source, "data": self.data(), **options}
        return set_up(self.make(), model=TinyModel(optimizer), **options)

    def check_equal(self, what: str, one: Outcome, many: Outcome) -> None:
        """Check that many towers have the same trained variables as one.

        Raises:
            Broken: if they have not.
        """
        missing = sorted(set(one.trained) - many.values.keys())
        if missing:
            raise Broken(f"{what}: variables {', '.join(one.trained)}, of these names", f"no {', '.join(missing)}")
        _check_close(what, {name: one.values[name] for name in one.trained}, many.values)

    def rule_describes_itself(self) -> None:
        """describe() returns plain data, the same for two strategies that are made alike.

        tpk.Strategy.describe: it is written to config.json, and processes compare it.
        """
        first, second = self.make().describe(), self.make().describe()
        if not isinstance(first, dict):
            raise Broken("a dict", repr(first))
        json.dumps(first, allow_nan=False)
        check_same("the same description", flat(first), flat(second))

    def rule_is_saved_as_one_tower(self) -> None:
        """A checkpoint has the variables of the model under the names that they have with one tower, so that any other
        strategy and a predictor can load it.

        tpk.Strategy; the trainable variables of the first tower are in the root scope.
        """
        checkpoint = train(self.set_up, run_dir=self.directory / "saved", steps=1, epochs=1).checkpoint
        assert checkpoint is not None
        reader = tf.train.load_checkpoint(checkpoint.prefix)
        expected = {"w", "table", "learning_rate", "steps_seen", "global_step"}
        missing = sorted(expected - reader.get_variable_to_shape_map().keys())
        if missing:
            raise Broken(f"the variables {', '.join(sorted(expected))}", f"no {', '.join(missing)}")

    def rule_trains(self) -> None:
        """A training finishes, and leaves no thread and no file behind.

        tpk.Strategy; tpk.Strategy.leave, tpk.Callback.after_train.
        """
        with leaving_nothing("a training"):
            steps = self.first.trainer.global_step
        if steps != STEPS * EPOCHS:
            raise Broken(f"{STEPS * EPOCHS} steps", f"{steps}")

    def rule_has_its_towers(self) -> None:
        """A strategy trains num_replicas towers, and calls the tower function for each under a TrainTowerContext.

        tpk.Strategy.build, tpk.tower.context.
        """
        strategy = self.first.trainer.strategy
        said = strategy.num_replicas * strategy.world_size
        if said != self.num_towers:
            raise Broken(f"num_replicas times world_size is {self.num_towers}, the num_towers of the check", str(said))
        if len(self.towers.values) != strategy.num_replicas:
            raise Broken(f"{strategy.num_replicas} training towers", str(len(self.towers.values)))

    def rule_towers_equal_one(self) -> None:
        """Training several towers on one batch each equals training one tower on all these batches concatenated.

        The manual, Plugins, a strategy, Debug it; gradients are averaged.
        """
        if not self.is_reproducible:
            return
        steps = 5
        data = self.data(steps)
        for optimizer in self.optimizers:
            many = _train(partial(self.set_up, optimizer, data=data), steps=steps, epochs=1)
            one = _one_tower(optimizer, self.num_towers, steps)
            self.check_equal(f"with {optimizer!r}, after {steps} steps, the variables of one tower", one, many)

    def rule_towers_stay_equal(self) -> None:
        """The trained variables of all towers have the same bits at the end.

        The manual, Plugins, a strategy; tpk.Strategy.after_restore; sums over towers are ordered.
        """
        _ = self.first
        main, *others = self.towers.values
        if self.is_reproducible:
            for index, values in enumerate(others, 1):
                check_same(f"in tower {index} the values of the first tower", main, values)

    def rule_steps_see_before(self) -> None:
        """Fetches from a tower are computed before the step updates the variables.

        tpk.Strategy.build: make train ops with apply_in_groups and after_reads.
        """
        _ = self.first
        if not self.is_reproducible:
            return
        before, after = self.towers.before, self.towers.after_first
        check_same("in the second step the weights after the first", {"w": after}, {"w": before[1]})
        if np.array_equal(before[0], after):
            raise Broken("weights that the first step changes", "the same before and after")

    def rule_predicts(self) -> None:
        """A predictor computes with the variables of the first tower.

        tpk.Strategy.predict_context.
        """
        _ = self.first
        expected, found = self.towers.expected, self.towers.predicted
        _check_close("the logits of these variables", {"logits": expected}, {"logits": found})

    def rule_resumes(self) -> None:
        """A training that is killed and resumed equals one that is not, bit for bit, in all towers.

        tpk.Strategy.replicate_variables, after_restore; tpk.Callback.state_dict.
        """
        expected, towers = self.first, _Towers()
        resumed = _train(self.set_up, [towers], run_dir=self.copy, resume="must")
        if not self.is_reproducible:
            return
        check_same("the variables of the uninterrupted training", expected.values, resumed.values)
        for index, (one, other) in enumerate(zip(self.towers.values, towers.values, strict=True)):
            check_same(f"in tower {index} the variables of the uninterrupted training", one, other)

    def rule_minimizes_several_objectives(self) -> None:
        """Several objectives are minimized, each over its own variables, as with one tower, or a ConfigError says that
        they are not supported.

        tpk.Strategy.build: groups; tpk.MultiObjectiveTrainer.
        """
        data = self.data(3)
        for update in ("in_turn", "together"):
            try:
                many = _train(partial(_two_objectives, self.make, data, update, self.source), steps=2, epochs=1)
            except ConfigError:
                return
            if self.is_reproducible:
                one = _two_objectives_of_one(update, self.num_towers)
                self.check_equal(f"with update={update!r}, the variables of one tower", one, many)

    def rule_repeats_steps(self) -> None:
        """If repeats_steps is true, two steps in one run train the same as two runs, bit for bit.

        tpk.Strategy.repeats_steps, tpk.session.many_steps.
        """
        if not self.make().repeats_steps:
            return
        one, many = (
            _train(partial(self.set_up, source=QueueInput, steps_per_run=k), steps=5, epochs=1) for k in (1, 2)
        )
        check_same("the same variables", one.values, many.values)

    def rule_fails_with_its_tower(self) -> None:
        """An error in any tower ends the training, is raised by train(), and leaves nothing behind.

        tpk.Strategy; tpk.Callback.after_train.
        """
        data = self.data(STEPS)
        bad = self.num_towers * 2 - 1  # The last tower of the second step.
        data[bad][1] = data[bad][1][1:]  # It has one row too few.
        with training_fails(tf.errors.OpError):
            _train(partial(self.set_up, data=data), steps=STEPS, epochs=1)

    def rule_stops(self) -> None:
        """StopTraining ends the training after the step, as does the end of the data, and nothing is left behind.

        tpk.StopTraining; tpk.Callback.after_train.
        """
        with leaving_nothing("a training that is stopped"):
            stopped = _train(self.set_up, [_Stop()]).trainer.global_step
        if stopped != 2:
            raise Broken("a training that ends after 2 steps", f"one of {stopped}")
        source = partial(self.source, infinite=False)
        with leaving_nothing("a training whose data ends"):
            ended = _train(partial(self.set_up, data=self.data(3), source=source), steps=5, epochs=1)
        if ended.trainer.global_step > 3 * (1 if self.is_reproducible else self.num_towers):
            raise Broken("a training that ends with its data, after 3 steps", f"one of {ended.trainer.global_step}")


def _train(trainer: Callable[[], Any], callbacks: Sequence[Any] = (), **options: Any) -> Outcome:
    """Train from the same weights in each tower and with each strategy."""
    return train(trainer, callbacks, session_init=WEIGHTS, **options)


@functools.cache
def _one_tower(optimizer: str, num_towers: int, steps: int) -> Outcome:
    """Train one tower on the concatenated batches of `num_towers`."""
    data = concatenated(batches(steps * num_towers), num_towers)
    return _train(partial(set_up, "single", data, TinyModel(optimizer)), steps=steps, epochs=1)


def _check_close(what: str, expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    for name, value in expected.items():
        if not np.allclose(found[name], value, rtol=RELATIVE, atol=ABSOLUTE):
            problem = f"{name} is {found[name].tolist()} rather than {value.tolist()}"
            raise Broken(f"{what} (rtol={RELATIVE}, atol={ABSOLUTE})", problem)


@functools.cache
def _two_objectives_of_one(update: str, num_towers: int) -> Outcome:
    data = concatenated(batches(3 * num_towers), num_towers)
    return _train(partial(_two_objectives, lambda: "single", data, update, FeedInput), steps=2, epochs=1)


def _two_objectives(
    make_strategy: Callable[[], Any], data: Sequence[Any], update: str, source: Callable[[Any], Any]
) -> Any:
    model = TinyModel()

    def costs(*inputs: Any) -> dict[str, Any]:
        cost = model.build_graph(*inputs)
        return {"first": cost, "second": tf.multiply(2.0, cost)}

    def optimizer() -> Any:
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)

    objectives = [Objective(optimizer, "first", variables="w"), Objective(optimizer, "second", variables="table")]
    trainer = MultiObjectiveTrainer(make_strategy(), update=update)
    # In turn, each objective takes another datapoint.
    trainer.setup_graph(model.get_input_signature(), source([*data, *data]), costs, objectives)
    return trainer


class _Towers(Callback):
    """Keeps the final values of the towers, and what they and a predictor compute during the training."""

    chief_only = False

    def __init__(self) -> None:
        self.values: list[dict[str, np.ndarray]] = []
        self.before: list[np.ndarray] = []

    def setup_graph(self, trainer: Any) -> None:
        self._towers = trainer.towers.training()
        self._weights = self._towers[0].get_variable("w")
        self._predict = trainer.get_predictor(["x", "row"], ["logits"])

    def before_run(self, run_context: Any) -> Any:
        return self._towers[0].get_tensor("weights_before")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.before.append(run_values.results)

    def trigger_step(self, trainer: Any) -> None:
        if trainer.global_step == 1:
            self.after_first = trainer.sess.run(self._weights)

    def after_train(self, trainer: Any) -> None:
        names = ["w", "table"]
        self.values = [
            dict(zip(names, trainer.sess.run(tower.get_variables(names)), strict=True)) for tower in self._towers
        ]
        (x, row, _), main = batches(1)[0], self.values[0]
        (self.predicted,) = self._predict(x, row)
        self.expected = x @ main["w"] + main["table"][row]


class _Stop(Callback):
    def trigger_step(self, trainer: Any) -> None:
        if trainer.global_step == 2:
            raise StopTraining("two steps are enough")
