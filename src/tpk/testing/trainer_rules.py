"""The rules of trainers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from tpk.checkpoint.encoding import encode
from tpk.errors import StopTraining, TrainerStateError
from tpk.input_source.feed import FeedInput
from tpk.input_source.queue import QueueInput
from tpk.plugin import Callback, hookimpl
from tpk.plugin.callback import HOOK_NAMES
from tpk.plugin.hook_names import check_names
from tpk.plugin.recorded_options import options_of
from tpk.session.creator import NewSessionCreator
from tpk.testing.comparison import Broken, check_same, difference, flat
from tpk.testing.conformance import Conformance
from tpk.testing.leftovers import Leftovers, leaving_nothing, watching
from tpk.testing.trainings import (
    EPOCHS,
    STEPS,
    Failure,
    Outcome,
    ReadVariables,
    TinyModel,
    batches,
    same_randomness,
    session_config,
    train,
)
from tpk.train.tower_trainer import SingleCostTrainer
from tpk.train.trainer import Trainer


def check_trainer(make: Callable[[], Trainer], *, skip: Collection[str] = ()) -> list[str]:
    """Check that a trainer keeps the contract of the loop, in several trainings of at most 12 steps each.

    Args:
        make: returns a new trainer each time. It is called in a graph with a seed, and the trainer must be ready to
            train. A `SingleCostTrainer` whose ``setup_graph`` was not called gets the tiny model of
            `tpk.testing.trainings.TinyModel`.
        skip: the names of rules that the trainer need not keep; add a comment that says why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if a rule is broken. The message says which, what was expected and found, and where to read.
        ConfigError: if `skip` names an unknown rule.

    Example:
        ```python
        def test_keeps_the_rules_of_trainers():
            check_trainer(lambda: MyTrainer(updates=3))
        ```
    """
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory() as directory:
        return TrainerConformance(make, Path(directory)).check(skip)


class TrainerConformance(Conformance[Trainer]):
    """The rules of trainers, and the trainings that they look at; for the arguments see `Conformance`."""

    kinds = "trainers"
    base = Trainer

    def __init__(self, make: Callable[[], Trainer], directory: Path) -> None:
        super().__init__(make, directory)
        self.moments = _Moments()
        self.leftovers = Leftovers()

    def set_up(self) -> Trainer:
        """Return a trainer that is ready to train."""
        trainer = self.make()
        if isinstance(trainer, SingleCostTrainer) and trainer.train_op is None and trainer.input_source is None:
            model, data = TinyModel(), batches(8 * STEPS * EPOCHS)
            trainer.resolve_plugins()
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
        """The same training again."""
        return train(self.set_up, [_Moments()], run_dir=self.directory / "again")

    @cached_property
    def failing(self) -> _Failing:
        """A training that fails in its first step."""
        callback, raised = _RaiseAt(1, Failure("this step fails")), None
        with watching() as leftovers:
            try:
                train(self.set_up, [callback], steps=2, epochs=1)
            except Failure as error:
                raised = error
        return _Failing(callback, callback.trainer, raised, leftovers)

    def rule_constructs_plainly(self) -> None:
        """Making a trainer opens nothing and starts nothing, and calls the __init__ of its base first.

        tpk.Trainer.
        """
        with leaving_nothing("its constructor"), tf.Graph().as_default():
            self.make()

    def rule_hooks_fit(self) -> None:
        """Methods with the name of a hook are marked with tpk.hookimpl, and no name is almost that of a hook.

        tpk.plugin: mark the methods, put them into a tpk.Callback, or override run_step().
        """
        with tf.Graph().as_default():
            check_names(self.make())

    def rule_options_are_plain(self) -> None:
        """The options and state_dict() are plain data; the options are the same for two trainers that are made alike.

        tpk.Trainer.options, tpk.Trainer.state_dict.
        """
        with tf.Graph().as_default():
            first = self.make()
        with tf.Graph().as_default():
            second = self.make()
        json.dumps([options_of(first), first.options], allow_nan=False)
        encode(first.state_dict(), "the state of the trainer")
        check_same("the same options of two that are made alike", flat(first.options), flat(second.options))

    def rule_follows_the_loop(self) -> None:
        """The hooks are called in the order of the loop, each as often as the loop does.

        tpk.train.loop.
        """
        _ = self.first
        steps = ["trigger_step"] * STEPS
        epoch = ["before_epoch", *steps, "after_epoch", "trigger_epoch"]
        expected = ["setup_graph", "before_train", *epoch * EPOCHS, "after_train"]
        check_same("the hooks of the loop", _numbered(expected), _numbered(self.moments.hooks))

    def rule_counts_steps(self) -> None:
        """epoch_num, local_step and global_step count, whatever a step is, and so does the step counter in the graph.

        tpk.session.progress, tpk.train.loop; a step counts once, however often it runs the session.
        """
        _ = self.first
        expected = [(epoch + 1, step, epoch * STEPS + step + 1) for epoch in range(EPOCHS) for step in range(STEPS)]
        check_same("(epoch_num, local_step, global_step)", _numbered(expected), _numbered(self.moments.counters))
        counted = [global_step for _, _, global_step in expected]
        check_same("the global step in the graph", _numbered(counted), _numbered(self.moments.counted))

    def rule_stops(self) -> None:
        """StopTraining and tf.errors.OutOfRangeError end the training cleanly: after_train is called, train() returns.

        tpk.StopTraining, tpk.train.loop.
        """
        for error in (StopTraining("enough"), tf.errors.OutOfRangeError(None, None, "no more data")):
            stopping = _RaiseAt(2, error)
            trainer = train(self.set_up, [stopping]).trainer
            what = type(error).__name__
            if trainer.global_step != 2 or not stopping.is_over:
                done = "" if stopping.is_over else ", without after_train"
                raise Broken(f"an end after 2 steps by {what}", f"{trainer.global_step} steps{done}")
            if trainer.loop.failure is not None:
                raise Broken(f"no failure after {what}", repr(trainer.loop.failure))

    def rule_fails(self) -> None:
        """An error in a hook is raised by train(), after after_train, with a note that names callback and hook.

        tpk.train.loop, tpk.plugin.
        """
        error = self.failing.error
        if error is None:
            raise Broken("the error, raised by train()", "a training that ends without it")
        notes = getattr(error, "__notes__", [])
        if "in callback 'RaiseAt', hook 'trigger_step'" not in notes:
            raise Broken("the note \"in callback 'RaiseAt', hook 'trigger_step'\"", repr(notes)) from error
        if not self.failing.callback.is_over:
            raise Broken("after_train", "no call of it")

    def rule_closes_all(self) -> None:
        """The session, threads and files are closed at the end, even if the training fails.

        The manual, Plugins, a trainer: it closes its session, threads and workers at the end, however it ends.
        """
        failing = self.failing
        for trainer, what in ((self.first.trainer, "a training"), (failing.trainer, "a training that fails")):
            with suppress(TrainerStateError):
                raise Broken(f"a closed session at the end of {what}", f"the open {trainer.sess}")
        self.leftovers.check("a training")
        failing.leftovers.check("a training that fails")

    def rule_trains_once(self) -> None:
        """A second train() is an error that says so.

        tpk.Trainer.
        """
        try:
            self.first.trainer.train(steps_per_epoch=1, max_epoch=1)
        except TrainerStateError:
            return
        raise Broken("a TrainerStateError of the second train()", "none")

    def rule_trains_in_phases(self) -> None:
        """The phases of setup can be called one by one, with the same result.

        tpk.Trainer: setup_callbacks, initialize, main_loop.
        """
        reader = ReadVariables()
        with same_randomness(), tf.Graph().as_default():
            tf.compat.v1.set_random_seed(1)
            trainer = self.set_up()
            trainer.setup_callbacks([reader])
            trainer.initialize(NewSessionCreator(config=session_config()))
            trainer.main_loop(STEPS, 1, EPOCHS)
        if self.first.trainer.strategy.is_reproducible:
            expected = {name: value for name, value in self.first.values.items() if name in reader.values}
            check_same("the variables after train()", expected, reader.values)

    def rule_resumes(self) -> None:
        """A training that is killed and resumed equals one that is not, bit for bit: variables and states.

        tpk.Trainer.state_dict; the manual, Concepts, state.
        """
        first = self.first
        resumed = train(self.set_up, [_Moments()], run_dir=self.copy, resume="must")
        if not first.trainer.strategy.is_reproducible:
            return
        # `again` tells what differs between any two trainings, such as a time; it is needed only if something differs.
        if difference({**first.values, **first.state}, {**resumed.values, **resumed.state}):
            check_same("the variables of the uninterrupted training", first.values, resumed.values, self.again.values)
            check_same("the state of the uninterrupted training", first.state, resumed.state, self.again.state)


class _Moments(Callback):
    """Records the hooks that are called, the counters, and the step counter in the graph."""

    chief_only = False

    def __init__(self) -> None:
        self.hooks: list[str] = []
        self.counters: list[tuple[int, int, int]] = []
        self.counted: list[int] = []

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        others = ("before_run", "after_run", "before_checkpoint", "translate_error", "recover")
        return {name: self._recording(name) for name in HOOK_NAMES if name not in others}

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


class _RaiseAt(Callback):
    """Raises an error after a step, and records whether `after_train` is called."""

    chief_only = False
    is_over: bool = False

    def __init__(self, step: int, error: Exception) -> None:
        self._step, self._error = step, error

    def trigger_step(self, trainer: Any) -> None:
        if trainer.global_step == self._step:
            raise self._error

    def after_train(self, trainer: Any) -> None:
        self.is_over = True


class _Failing(NamedTuple):
    """A training that fails in its first step, the error raised by train(), and what is left behind."""

    callback: _RaiseAt
    trainer: Any
    error: Failure | None
    leftovers: Leftovers


def _numbered(items: Sequence[Any]) -> dict[str, Any]:
    return {f"call {number}": item for number, item in enumerate(items, 1)}
