"""Rules of strategies."""

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
from tpk.testing.leftovers import watching
from tpk.testing.plugins import Making, add_rules_of_all_kinds
from tpk.testing.rules import Broken, Rules
from tpk.testing.trainings import (
    EPOCHS,
    OPTIMIZERS,
    STEPS,
    WEIGHTS,
    Outcome,
    TinyModel,
    batches,
    check_same,
    concatenated,
    flat,
    set_up,
    train,
)
from tpk.train.multi_objective import MultiObjectiveTrainer

RELATIVE, ABSOLUTE = 2e-4, 2e-5
"""How far a float32 may be from what is expected: sums are made in another order."""


def check_strategy(
    make: Callable[[], Strategy],
    *,
    num_towers: int = 1,
    optimizers: Collection[str] = tuple(OPTIMIZERS),
    skip: Collection[str] = (),
) -> list[str]:
    """Check that a strategy keeps the rules of strategies, in trainings of a tiny model of at most 12 steps each.

    They are in this process. For a strategy of several processes, that is a training of one: let a test of yours start
    several, and compare what they train with `num_towers` of one.

    Of a strategy whose towers do not wait for each other (`is_reproducible` is false), what comes out is not checked.

    Args:
        make: returns a new strategy each time.
        num_towers: how many towers it trains here.
        optimizers: with which of ``"sgd"``, ``"momentum"`` and ``"adam"`` towers are compared with one.
        skip: the names of rules that it does not have to keep; say beside it why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if it breaks a rule; the message says which, what was expected and found, where to read.
        ConfigError: if there is no rule of a name in `skip`, or no such optimizer.

    Example:
        ```python
        def test_keeps_the_rules_of_strategies():
            check_strategy(lambda: MyStrategy(devices=2), num_towers=2)
        ```
    """
    unknown = [name for name in optimizers if name not in OPTIMIZERS]
    if unknown:
        raise ConfigError(f"optimizers={optimizers!r}: expected some of {', '.join(OPTIMIZERS)}.")
    making = Making(make, Strategy)
    with tempfile.TemporaryDirectory() as directory:
        case = _Case(making, Path(directory), num_towers, optimizers)
        return RULES.check(case, lambda: making.owner, skip)


RULES: Rules[_Case] = Rules("strategies")
"""The rules of strategies."""

add_rules_of_all_kinds(RULES, "strategy")


class _Case:
    """A strategy that is checked, and the trainings with it, each made when a rule first asks for it."""

    def __init__(self, make: Making[Strategy], directory: Path, num_towers: int, optimizers: Collection[str]) -> None:
        self.make, self.directory, self.num_towers, self.optimizers = make, directory, num_towers, optimizers

    @cached_property
    def is_reproducible(self) -> bool:
        """Whether two trainings are alike."""
        return self.make().is_reproducible

    @cached_property
    def source(self) -> Callable[..., InputSource]:
        """What feeds its towers: those that do not wait for each other take their data from the graph."""
        return FeedInput if self.is_reproducible else QueueInput

    @property
    def copy(self) -> Path:
        """The directory of the first training, as it was when it might have been killed."""
        return self.directory / "killed"

    def data(self, steps: int = STEPS * EPOCHS) -> list[list[np.ndarray]]:
        """Return the datapoints of so many steps of all towers."""
        return batches(steps * self.num_towers)

    def set_up(self, optimizer: str = "momentum", **options: Any) -> Any:
        """Return a trainer with a new strategy."""
        options.setdefault("source", self.source)
        return set_up(self.make(), options.pop("data", self.data()), TinyModel(optimizer), **options)

    @cached_property
    def towers(self) -> _Towers:
        """What was seen of the towers in the first training."""
        return _Towers()

    @cached_property
    def first(self) -> Outcome:
        """A training of three epochs."""
        return _train(self.set_up, [self.towers], run_dir=self.directory / "first", copy=self.copy)


def _train(trainer: Callable[[], Any], callbacks: Sequence[Any] = (), **options: Any) -> Outcome:
    """Train, from the same weights in each tower and in each strategy."""
    return train(trainer, callbacks, session_init=WEIGHTS, **options)


class _Towers(Callback):
    """Keeps what the towers have at the end, and what they and a predictor compute on the way."""

    chief_only = False

    def __init__(self) -> None:
        self.count = 0
        self.values: list[dict[str, np.ndarray]] = []
        self.before: list[np.ndarray] = []
        self.predicted: Any = None
        self.expected: Any = None

    def setup_graph(self, trainer: Any) -> None:
        self._towers = trainer.towers.training()
        self.count = len(self._towers)
        self._weights = trainer.towers.training()[0].get_variable("w")
        self._predict = trainer.get_predictor(["x", "row"], ["logits"])

    def before_run(self, run_context: Any) -> Any:
        return self._towers[0].get_tensor("weights_before")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.before.append(run_values.results)

    def trigger_step(self, trainer: Any) -> None:
        self.after = trainer.sess.run(self._weights)
        if trainer.global_step == 1:
            self.after_first = self.after

    def after_train(self, trainer: Any) -> None:
        names = ["w", "table"]
        self.values = [
            dict(zip(names, trainer.sess.run(tower.get_variables(names)), strict=True)) for tower in self._towers
        ]
        (x, row, _), main = batches(1)[0], self.values[0]
        (self.predicted,) = self._predict(x, row)
        self.expected = x @ main["w"] + main["table"][row]


@RULES.rule(
    "describes-itself",
    "describe() returns plain data, the same for two that are made alike",
    "tpk.Strategy.describe: it stands in config.json, and processes compare it",
)
def _describes_itself(case: _Case) -> None:
    first, second = case.make().describe(), case.make().describe()
    if not isinstance(first, dict):
        raise Broken("a dict", repr(first))
    json.dumps(first, allow_nan=False)
    check_same("the same description", flat(first), flat(second))


@RULES.rule(
    "is-saved-as-one-tower",
    "a checkpoint has the variables of the model under the names that they have with one tower, so that any other "
    "strategy and a predictor can load it",
    "tpk.Strategy; trainables of the first tower are in the root scope",
)
def _is_saved_as_one_tower(case: _Case) -> None:
    checkpoint = train(case.set_up, run_dir=case.directory / "saved", steps=1, epochs=1).checkpoint
    assert checkpoint is not None
    reader = tf.train.load_checkpoint(checkpoint.prefix)
    expected = {"w", "table", "learning_rate", "steps_seen", "global_step"}
    missing = sorted(expected - reader.get_variable_to_shape_map().keys())
    if missing:
        raise Broken(f"the variables {', '.join(sorted(expected))}", f"no {', '.join(missing)}")


@RULES.rule(
    "trains",
    "a training runs to its end, and leaves no thread and no file behind",
    "tpk.Strategy; tpk.Strategy.leave, tpk.Callback.after_train",
)
def _trains(case: _Case) -> None:
    with watching() as leftovers:
        outcome = case.first
    if outcome.trainer.global_step != STEPS * EPOCHS:
        raise Broken(f"{STEPS * EPOCHS} steps", f"{outcome.trainer.global_step}")
    leftovers.check("a training")


@RULES.rule(
    "has-its-towers",
    "it trains as many towers as num_replicas says, each by the tower function under a TrainTowerContext",
    "tpk.Strategy.build, tpk.tower.context",
)
def _has_its_towers(case: _Case) -> None:
    strategy = case.first.trainer.strategy
    said = strategy.num_replicas * strategy.world_size
    if said != case.num_towers:
        raise Broken(f"num_replicas times world_size is {case.num_towers}, the num_towers of the check", str(said))
    if case.towers.count != strategy.num_replicas:
        raise Broken(f"{strategy.num_replicas} training towers", str(case.towers.count))


@RULES.rule(
    "towers-equal-one",
    "towers on some batches train what one tower does on these batches one after the other",
    "the manual, Plugins, a strategy, Debug it; gradients are averaged",
)
def _towers_equal_one(case: _Case) -> None:
    if not case.is_reproducible:
        return
    steps = 5
    data = case.data(steps)
    for optimizer in case.optimizers:
        many = _train(partial(case.set_up, optimizer, data=data), steps=steps, epochs=1)
        one = _one_tower(optimizer, case.num_towers, steps)
        what = f"with {optimizer!r}, after {steps} steps, what one tower has"
        _check_saved(what, one, many)
        _check_close(what, {name: one.values[name] for name in one.trained}, many.values)


@functools.cache
def _one_tower(optimizer: str, num_towers: int, steps: int) -> Outcome:
    """Return what one tower trains on the batches of so many."""
    data = concatenated(batches(steps * num_towers), num_towers)
    return _train(partial(set_up, "single", data, TinyModel(optimizer)), steps=steps, epochs=1)


def _check_saved(what: str, one: Outcome, many: Outcome) -> None:
    missing = sorted(set(one.trained) - many.values.keys())
    if missing:
        raise Broken(f"{what}: variables {', '.join(one.trained)}, of these names", f"no {', '.join(missing)}")


def _check_close(what: str, expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    for name, value in expected.items():
        if not np.allclose(found[name], value, rtol=RELATIVE, atol=ABSOLUTE):
            problem = f"{name} is {found[name].tolist()} rather than {value.tolist()}"
            raise Broken(f"{what} (rtol={RELATIVE}, atol={ABSOLUTE})", problem)


@RULES.rule(
    "towers-stay-equal",
    "the trained variables of all towers are the same bits at the end, and have changed",
    "the manual, Plugins, a strategy; tpk.Strategy.after_restore; sums over towers are ordered",
)
def _towers_stay_equal(case: _Case) -> None:
    case.first  # noqa: B018
    main, *others = case.towers.values
    if not case.is_reproducible:
        return
    for index, values in enumerate(others, 1):
        check_same(f"in tower {index} what the first tower has", main, values)


@RULES.rule(
    "steps-see-before",
    "what a step fetches from a tower was computed before the update of the variables in that step",
    "tpk.Strategy.build: make train ops by apply_in_groups and after_reads",
)
def _steps_see_before(case: _Case) -> None:
    case.first  # noqa: B018
    if not case.is_reproducible:
        return
    before, after = case.towers.before, case.towers.after_first
    check_same("in the second step the weights as they were after the first", {"w": after}, {"w": before[1]})
    if np.array_equal(before[0], after):
        raise Broken("weights that the first step changes", "the same before and after")


@RULES.rule(
    "predicts",
    "a predictor computes with the variables of the first tower",
    "tpk.Strategy.predict_context",
)
def _predicts(case: _Case) -> None:
    case.first  # noqa: B018
    towers = case.towers
    _check_close("the logits of these variables", {"logits": towers.expected}, {"logits": towers.predicted})


@RULES.rule(
    "resumes",
    "a training that was killed and resumed is the one that was not, bit for bit, in all towers",
    "tpk.Strategy.replicate_variables, after_restore; tpk.Callback.state_dict",
)
def _resumes(case: _Case) -> None:
    towers = _Towers()
    expected = case.first
    resumed = _train(case.set_up, [towers], run_dir=case.copy, resume="must")
    if not case.is_reproducible:
        return
    check_same("the variables of the training that went on", expected.values, resumed.values)
    for index, (one, other) in enumerate(zip(case.towers.values, towers.values, strict=True)):
        check_same(f"in tower {index} the variables of the training that went on", one, other)


@RULES.rule(
    "minimizes-several-objectives",
    "several objectives are minimized, each over its own variables, as one tower does it; or a ConfigError says that "
    "they are not",
    "tpk.Strategy.build: groups; tpk.MultiObjectiveTrainer",
)
def _minimizes_several_objectives(case: _Case) -> None:
    data = case.data(3)
    for update in ("in_turn", "together"):
        # In turn, each of the two takes a datapoint of its own.
        try:
            many = _train(partial(_two_objectives, case.make, data, update, case.source), steps=2, epochs=1)
        except ConfigError:
            return
        one = _two_objectives_of_one(update, case.num_towers)
        if case.is_reproducible:
            what = f"with update={update!r}, what one tower has"
            _check_saved(what, one, many)
            _check_close(what, {name: one.values[name] for name in one.trained}, many.values)


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
    trainer.setup_graph(model.get_input_signature(), source([*data, *data]), costs, objectives)
    return trainer


@RULES.rule(
    "repeats-steps",
    "where repeats_steps is true, two steps in one run train what they do in two, bit for bit",
    "tpk.Strategy.repeats_steps, tpk.train.steps_per_run",
)
def _repeats_steps(case: _Case) -> None:
    if not case.make().repeats_steps:
        return
    one, many = (_train(partial(case.set_up, source=QueueInput, steps_per_run=k), steps=5, epochs=1) for k in (1, 2))
    check_same("the same variables", one.values, many.values)


@RULES.rule(
    "fails-with-its-tower",
    "an error in a tower, whichever it is, ends the training, is raised by train(), and leaves nothing behind",
    "tpk.Strategy; tpk.Callback.after_train",
)
def _fails_with_its_tower(case: _Case) -> None:
    data = case.data(STEPS)
    bad = case.num_towers * 2 - 1  # The last tower of the second step.
    data[bad][1] = data[bad][1][1:]  # It has one row too few.
    with watching() as leftovers:
        try:
            _train(lambda: case.set_up(data=data), steps=STEPS, epochs=1)
        except tf.errors.OpError:
            pass
        else:
            raise Broken("the error of the tower, raised by train()", "a training that ends without an error")
    leftovers.check("a training that fails")


class _Stop(Callback):
    def trigger_step(self, trainer: Any) -> None:
        if trainer.global_step == 2:
            raise StopTraining("two steps are enough")


@RULES.rule(
    "stops",
    "StopTraining ends the training after the step, and leaves nothing behind; so does the end of the data",
    "tpk.StopTraining; tpk.Callback.after_train",
)
def _stops(case: _Case) -> None:
    with watching() as leftovers:
        stopped = _train(case.set_up, [_Stop()]).trainer.global_step
    if stopped != 2:
        raise Broken("a training that ends after 2 steps", f"one of {stopped}")
    leftovers.check("a training that is stopped")
    with watching() as leftovers:
        ended = _train(
            lambda: case.set_up(data=case.data(3), source=lambda flow: case.source(flow, infinite=False)),
            steps=5,
            epochs=1,
        )
    if ended.trainer.global_step > 3 * (1 if case.is_reproducible else case.num_towers):
        raise Broken("a training that ends with its data, after 3 steps", f"one of {ended.trainer.global_step}")
    leftovers.check("a training whose data ends")
