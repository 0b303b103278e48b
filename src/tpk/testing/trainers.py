"""Rules of trainers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpk.errors import StopTraining, TrainerStateError
from tpk.input_source.feed import FeedInput
from tpk.input_source.queue import QueueInput
from tpk.plugin import HOOK_NAMES, Callback, hookimpl
from tpk.plugin.hooks.hook_names import check_names
from tpk.plugin.options import options_of
from tpk.session.creator import NewSessionCreator
from tpk.testing.leftovers import Leftovers, watching
from tpk.testing.plugins import Making
from tpk.testing.rules import Broken, Rules
from tpk.testing.trainings import (
    EPOCHS,
    STEPS,
    Failure,
    Outcome,
    TinyModel,
    batches,
    check_plain,
    check_same,
    difference,
    flat,
    same_randomness,
    session_config,
    train,
)
from tpk.tf_internals import is_closed
from tpk.train.tower_trainer import SingleCostTrainer
from tpk.train.trainer import Trainer


def check_trainer(make: Callable[[], Trainer], *, skip: Collection[str] = ()) -> list[str]:
    """Check that a trainer keeps the contract of the loop, in some trainings of at most 12 steps each.

    Args:
        make: returns a new trainer each time. It is called in a graph with a seed, and what it returns can train. A
            `SingleCostTrainer` whose ``setup_graph`` was not called gets the tiny model of
            `tpk.testing.trainings.TinyModel`.
        skip: the names of rules that it does not have to keep; say beside it why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if it breaks a rule; the message says which, what was expected and found, where to read.
        ConfigError: if there is no rule of a name in `skip`.

    Example:
        ```python
        def test_keeps_the_rules_of_trainers():
            check_trainer(lambda: MyTrainer(updates=3))
        ```
    """
    making = Making(make, Trainer)
    with tempfile.TemporaryDirectory() as directory:
        case = _Case(making, Path(directory))
        return RULES.check(case, lambda: making.owner, skip)


RULES: Rules[_Case] = Rules("trainers")
"""The rules of trainers."""


class _Case:
    """A trainer that is checked, and the trainings with it, each made when a rule first asks for it."""

    def __init__(self, make: Making[Trainer], directory: Path) -> None:
        self.make, self.directory = make, directory
        self.moments = _Moments()
        self.leftovers, self.leftovers_of_failing = Leftovers(), Leftovers()

    @property
    def copy(self) -> Path:
        """The directory of the first training, as it was when it might have been killed."""
        return self.directory / "killed"

    def set_up(self) -> Trainer:
        """Return a trainer that can train."""
        trainer = self.make()
        if isinstance(trainer, SingleCostTrainer) and trainer.train_op is None and trainer.input_source is None:
            model, data = TinyModel(), batches(8 * STEPS * EPOCHS)
            # Towers that do not wait for each other take their data from the graph.
            source = FeedInput(data) if trainer.strategy.is_reproducible else QueueInput(data)
            trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
        return trainer

    @cached_property
    def first(self) -> Outcome:
        """A training of three epochs."""
        with watching() as self.leftovers:
            return train(self.set_up, [self.moments], run_dir=self.directory / "first", copy=self.copy)

    @cached_property
    def again(self) -> Outcome:
        """The same once more."""
        return train(self.set_up, [_Moments()], run_dir=self.directory / "again")

    @cached_property
    def failing(self) -> tuple[Failure | None, _At, Trainer]:
        """The error by which a training fails in its first step, what raises it, and the trainer."""
        error, made = Failure("this step fails"), list[Trainer]()
        failing = _At(1, _raising(error))

        def set_up() -> Trainer:
            made.append(self.set_up())
            return made[0]

        with watching() as self.leftovers_of_failing:
            try:
                train(set_up, [failing], steps=2, epochs=1)
            except Failure as raised:
                return raised, failing, made[0]
        return None, failing, made[0]


class _Moments(Callback):
    """Records the hooks that are called, with the counters, and what the graph counts."""

    chief_only = False

    def __init__(self) -> None:
        self.hooks: list[str] = []
        self.counters: list[tuple[int, int, int]] = []
        self.counted: list[int] = []

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        hooks = [name for name in HOOK_NAMES if name not in ("before_run", "after_run", "before_checkpoint")]
        return {name: self._recording(name) for name in hooks if name not in ("translate_error", "recover")}

    def _recording(self, hook: str) -> Callable[[], None]:
        @hookimpl(tryfirst=True)
        def record() -> None:
            self.hooks.append(hook)
            if hook == "trigger_step":
                self.counters.append((self.epoch_num, self.local_step, self.global_step))
                with self.trainer.graph.as_default():
                    variable = tf.compat.v1.train.get_global_step(self.trainer.graph)
                self.counted.append(int(self.trainer.sess.run(variable)))

        return record


@RULES.rule(
    "constructs-plainly",
    "to make a trainer opens nothing, starts nothing, and calls its base's __init__ first",
    "tpk.Trainer",
)
def _constructs_plainly(case: _Case) -> None:
    with watching() as leftovers, tf.Graph().as_default():
        trainer = case.make()
    leftovers.check("its constructor")
    json.dumps(options_of(trainer), allow_nan=False)


@RULES.rule(
    "marks-its-hooks",
    "methods that have the name of a hook are marked by tpk.hookimpl, and no name is nearly that of a hook",
    "tpk.plugin: mark them, put them into a tpk.Callback, or override run_step()",
)
def _marks_its_hooks(case: _Case) -> None:
    with tf.Graph().as_default():
        check_names(case.make())


@RULES.rule(
    "describes-itself",
    "options and state_dict() are plain data",
    "tpk.Trainer.options, tpk.Trainer.state_dict",
)
def _describes_itself(case: _Case) -> None:
    with tf.Graph().as_default():
        trainer = case.make()
    json.dumps(trainer.options, allow_nan=False)
    check_plain("the state of the trainer", trainer.state_dict())
    with tf.Graph().as_default():
        check_same("the same options of two that are made alike", flat(trainer.options), flat(case.make().options))


@RULES.rule(
    "follows-the-loop",
    "the hooks are called in the order of the loop, each as often as it is drawn there",
    "tpk.train.loop",
)
def _follows_the_loop(case: _Case) -> None:
    case.first  # noqa: B018
    steps = ["trigger_step"] * STEPS
    epoch = ["before_epoch", *steps, "after_epoch", "trigger_epoch"]
    expected = ["setup_graph", "before_train", *epoch * EPOCHS, "after_train"]
    check_same("the hooks of the loop", _numbered(expected), _numbered(case.moments.hooks))


def _numbered(items: Sequence[Any]) -> dict[str, Any]:
    return {f"call {number}": item for number, item in enumerate(items, 1)}


@RULES.rule(
    "counts-steps",
    "epoch_num, local_step and global_step count, whatever a step is; what counts in the graph agrees",
    "tpk.session.progress, tpk.train.loop; a step counts once, however often it runs the session",
)
def _counts_steps(case: _Case) -> None:
    case.first  # noqa: B018
    expected = [(epoch + 1, step, epoch * STEPS + step + 1) for epoch in range(EPOCHS) for step in range(STEPS)]
    check_same("(epoch_num, local_step, global_step)", _numbered(expected), _numbered(case.moments.counters))
    counted = [global_step for _, _, global_step in expected]
    check_same("the global step in the graph", _numbered(counted), _numbered(case.moments.counted))


class _At(Callback):
    """Does something after a step, and has its `after_train` noted."""

    chief_only = False
    is_over: bool = False

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self._step, self._act = step, act

    def trigger_step(self, trainer: Any) -> None:
        if trainer.global_step == self._step:
            self._act()

    def after_train(self, trainer: Any) -> None:
        self.is_over = True


def _raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@RULES.rule(
    "stops",
    "StopTraining and tf.errors.OutOfRangeError end the training in good order: after_train is called, train() returns",
    "tpk.StopTraining, tpk.train.loop",
)
def _stops(case: _Case) -> None:
    for error in (StopTraining("enough"), tf.errors.OutOfRangeError(None, None, "no more data")):
        stopping = _At(2, _raising(error))
        outcome = train(case.set_up, [stopping])
        what = type(error).__name__
        if outcome.trainer.global_step != 2 or not stopping.is_over:
            done = "" if stopping.is_over else ", without after_train"
            raise Broken(f"an end after 2 steps by {what}", f"{outcome.trainer.global_step} steps{done}")
        if outcome.trainer.loop.failure is not None:
            raise Broken(f"no failure after {what}", repr(outcome.trainer.loop.failure))


@RULES.rule(
    "fails",
    "an error in a hook is raised by train(), with a note that names callback and hook, after after_train",
    "tpk.train.loop, tpk.plugin",
)
def _fails(case: _Case) -> None:
    error, failing, _ = case.failing
    if error is None:
        raise Broken("the error, raised by train()", "a training that ends without it")
    notes = getattr(error, "__notes__", [])
    if "in callback 'At', hook 'trigger_step'" not in notes:
        raise Broken("the note \"in callback 'At', hook 'trigger_step'\"", repr(notes)) from error
    if not failing.is_over:
        raise Broken("after_train", "no call of it")


@RULES.rule(
    "closes-all",
    "its session, threads and files are closed at the end, also of a training that fails",
    "the manual, Plugins, a trainer: it closes its session, threads and workers at the end, however it ends",
)
def _closes_all(case: _Case) -> None:
    _, _, trainer = case.failing
    for each, what in ((case.first.trainer, "a training"), (trainer, "a training that fails")):
        if not is_closed(each.sess):
            raise Broken(f"a closed session at the end of {what}", "an open one")
    case.leftovers.check("a training")
    case.leftovers_of_failing.check("a training that fails")


@RULES.rule("trains-once", "a second train() is an error that says so", "tpk.Trainer")
def _trains_once(case: _Case) -> None:
    trainer = case.first.trainer
    try:
        trainer.train(steps_per_epoch=1, max_epoch=1)
    except TrainerStateError:
        return
    raise Broken("a TrainerStateError of the second train()", "none")


@RULES.rule(
    "trains-in-phases",
    "the phases that setup goes through may be called by hand, and come to the same",
    "tpk.Trainer: setup_callbacks, initialize, main_loop",
)
def _trains_in_phases(case: _Case) -> None:
    values: dict[str, Any] = {}

    class Reading(Callback):
        chief_only = False

        def after_train(self, trainer: Any) -> None:
            variables = tf.compat.v1.global_variables()
            values.update(zip([each.name for each in variables], trainer.sess.run(variables), strict=True))

    with same_randomness(), tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        trainer = case.set_up()
        trainer.setup_callbacks([Reading()])
        trainer.initialize(NewSessionCreator(config=session_config()))
        trainer.main_loop(STEPS, 1, EPOCHS)
    if case.first.trainer.strategy.is_reproducible:
        expected = {name: value for name, value in case.first.values.items() if name in values}
        check_same("the variables that train() leaves", expected, values)


@RULES.rule(
    "resumes",
    "a training that was killed and resumed is the one that was not, bit for bit: variables and states",
    "tpk.Trainer.state_dict; the manual, Concepts, state",
)
def _resumes(case: _Case) -> None:
    first = case.first
    resumed = train(case.set_up, [_Moments()], run_dir=case.copy, resume="must")
    if not first.trainer.strategy.is_reproducible:
        return
    # What is not the same in two trainings either, such as a time, is not compared.
    if difference({**first.values, **first.state}, {**resumed.values, **resumed.state}):
        check_same("the variables of the training that went on", first.values, resumed.values, case.again.values)
        check_same("the state of the training that went on", first.state, resumed.state, case.again.state)
