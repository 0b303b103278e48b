"""The rules of callbacks."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf

from tpk.callbacks.triggers import EnableCallbackIf, PeriodicTrigger, innermost
from tpk.errors import CheckpointError, ConfigError, HookError
from tpk.input_source.queue import QueueInput
from tpk.plugin import Callback, hookimpl
from tpk.session.creator import NewSessionCreator
from tpk.testing.comparison import Broken, check_same, difference
from tpk.testing.conformance import Conformance, training_fails
from tpk.testing.leftovers import Leftovers, watching
from tpk.testing.trainings import EPOCHS, STEPS, Failing, Failure, Outcome, Reporting, session_config, set_up, train
from tpk.train.model_desc import ModelDesc


def check_callback(
    make: Callable[[], Callback],
    *,
    model: Callable[[], ModelDesc] | None = None,
    measures: Collection[str] = (),
    skip: Collection[str] = (),
) -> list[str]:
    """Check that a callback keeps the rules of callbacks, in several trainings of a tiny model of 12 steps each.

    The model is `tpk.testing.trainings.TinyModel`. It has the tensors ``cost``, ``logits`` and ``incorrect_vector``,
    and the variables ``w``, ``table`` and ``learning_rate``. At the end of each epoch the scalars ``cost`` and
    ``error`` are reported. The trainings run on one device; test the callback with other strategies yourself.

    Args:
        make: returns a new callback each time.
        model: returns another model, which takes the same datapoints.
        measures: the names of scalars that report measurements of the machine, such as its memory. Their values are
            not compared, because they differ between trainings.
        skip: the names of rules that the callback need not keep; add a comment that says why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if a rule is broken. The message says which, what was expected and found, and where to read.
        ConfigError: if `skip` names an unknown rule, or `measures` a scalar that is not reported.

    Example:
        ```python
        def test_keeps_the_rules_of_callbacks():
            check_callback(lambda: CostCurve(tensor_name="cost:0"))
        ```
    """
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory() as directory:
        conformance = CallbackConformance(make, Path(directory), model, measures)
        checked = conformance.check(skip)
        if measures:
            reported = conformance.first.trainer.history
            if isinstance(measures, str) or not all(name in reported for name in measures):
                raise ConfigError(
                    f"measures={measures!r}: expected a list of scalars that are reported here: {', '.join(reported)}."
                )
        return checked


class CallbackConformance(Conformance[Callback]):
    """The rules of callbacks, and the trainings that they compare; for the arguments see `check_callback`."""

    kinds = "callbacks"
    base = Callback

    def __init__(
        self,
        make: Callable[[], Callback],
        directory: Path,
        model: Callable[[], ModelDesc] | None = None,
        measures: Collection[str] = (),
    ) -> None:
        super().__init__(make, directory)
        self._model, self._measures = model, measures
        self.sessions = _CountingSessions()
        self.leftovers = Leftovers()

    @cached_property
    def first(self) -> Outcome:
        """A training with the callback ahead of the one that reports statistics."""
        with watching() as self.leftovers:
            callbacks = [self.make(), Reporting(), _Steps(self.sessions)]
            return self.train(callbacks, copy=self.copy, session_creator=self.sessions)

    @cached_property
    def error(self) -> Exception | None:
        """The error by which the first training fails; None if it succeeds."""
        try:
            _ = self.first
        except Exception as error:
            return error
        return None

    @cached_property
    def again(self) -> Outcome:
        """The same training with traced hooks."""
        with mock.patch.dict(os.environ, {"TPK_TRACE": "1"}):
            return self.train([self.make(), Reporting()])

    @cached_property
    def last_and_wrapped(self) -> Outcome:
        """The same training with the callback behind the one that reports, in a wrapper that changes nothing."""
        return self.train([Reporting(), EnableCallbackIf(self.make(), lambda _: True)])

    @cached_property
    def without(self) -> Outcome:
        """The training without the callback."""
        return self.train([Reporting()]) if self._model else _training_without()

    def train(self, callbacks: Sequence[Any], **options: Any) -> Outcome:
        """Train in a new directory, unless `options` name one."""
        options.setdefault("run_dir", Path(tempfile.mkdtemp(dir=self.directory)))
        return train(self.set_up, callbacks, **options)

    def set_up(self, **options: Any) -> Any:
        """Return a trainer with its graph."""
        return set_up(model=self._model and self._model(), **options)

    def difference_from_first(self, outcome: Outcome) -> str:
        """Describe how a training differs from the first; ignore what depends on the time."""
        return difference(self.first.values, outcome.values) or difference(
            self.state_of(self.first), self.state_of(outcome), self.again.state
        )

    def state_of(self, outcome: Outcome) -> dict[str, Any]:
        """Return the state at the end of a training without the measurements."""
        measured = tuple(f"['monitors']['history'][{name!r}]['values']" for name in self._measures)
        return {path: value for path, value in outcome.state.items() if not path.startswith(measured)}

    def rule_adds_to_the_graph_in_time(self) -> None:
        """A callback adds ops to the graph in setup_graph only; afterwards the graph is finalized.

        tpk.Callback.setup_graph.
        """
        if isinstance(self.error, RuntimeError) and "finalized" in str(self.error):
            notes = " ".join(f"({note})" for note in getattr(self.error, "__notes__", ()))
            raise Broken("all ops before the graph is finalized", f"{self.error} {notes}") from self.error

    def rule_state_is_plain_data(self) -> None:
        """state_dict() returns what a checkpoint can hold, at any time during a training.

        tpk.Callback.state_dict, tpk.checkpoint.encoding.
        """
        if isinstance(self.error, CheckpointError) and "the state of callback" in str(self.error):
            expected = "numbers, strings, bytes, None, arrays, and lists, tuples and dicts of these"
            raise Broken(expected, str(self.error)) from self.error

    def rule_trains(self) -> None:
        """A training with the callback finishes, or stops cleanly.

        tpk.Callback.
        """
        if self.error is not None:
            raise self.error
        if self.first.trainer.global_step == 0:
            raise Broken("a training with some steps", "none")

    def rule_leaves_nothing_behind(self) -> None:
        """A callback ends or closes in after_train whatever it starts or opens.

        tpk.Callback.after_train.
        """
        _ = self.first
        self.leftovers.check("a training")

    def rule_leaves_nothing_behind_after_a_failure(self) -> None:
        """A callback ends or closes whatever it starts or opens even if the training fails, and hides no error.

        tpk.Callback.after_train.
        """
        with training_fails(Failure):
            self.train([self.make(), Reporting(), Failing()], steps=2, epochs=1)

    def rule_trains_alike(self) -> None:
        """Two trainings with the callback, with and without TPK_TRACE=1, end with the same variables, bit for bit.

        tpk.plugin.environment; draw random numbers from the global generators, or with tpk.graph.random.
        """
        check_same("the same variables", self.first.values, self.again.values)

    def rule_resumes(self) -> None:
        """A training that is killed and resumed equals one that is not, bit for bit: variables, states, statistics.

        tpk.Callback.state_dict: whatever counts or remembers belongs in the state.
        """
        _ = self.first
        if not self.copy.exists():  # The training stopped before it could be killed.
            return
        resumed = self.train([self.make(), Reporting()], run_dir=self.copy, resume="must")
        check_same("the variables of the uninterrupted training", self.first.values, resumed.values)
        expected, found = self.state_of(self.first), self.state_of(resumed)
        check_same("the state of the uninterrupted training", expected, found, self.again.state)

    def rule_order_does_not_matter(self) -> None:
        """A callback that reads statistics sees the current ones, wherever it is in the list of callbacks.

        tpk.plugin: mark the method with @tpk.hookimpl(trylast=True).
        """
        # The wrapper, too, may be why the outcome differs.
        if self.difference_from_first(self.last_and_wrapped):
            problem = self.difference_from_first(self.train([Reporting(), self.make()]))
            if problem:
                raise Broken("the same results at the end of the list as at its beginning", problem)

    def rule_can_be_wrapped(self) -> None:
        """A callback does the same under EnableCallbackIf as alone. Under PeriodicTrigger, and twice in one training,
        it works, or a ConfigError or HookError says why it does not.

        tpk.callbacks.triggers.
        """
        problem = self.difference_from_first(self.last_and_wrapped)
        if problem:
            raise Broken("the same results as without a wrapper", problem)
        callback = self.make()
        periodic = innermost(callback)._overrides("trigger")
        try:
            two = [PeriodicTrigger(callback, every_k_epochs=1) if periodic else callback, self.make()]
            self.train([*two, Reporting()], steps=2, epochs=2)
        except (ConfigError, HookError):
            pass

    def rule_runs_along_with_the_step(self) -> None:
        """Tensors that a callback needs in each step are fetched by the run of the step, not by another run.

        tpk.Callback.before_run: return the tensors from it.
        """
        steps, runs = self.first.trainer.global_step, self.sessions.runs
        if runs >= steps:
            raise Broken(f"fewer additional session runs than steps, {steps}", f"{runs} of them")

    def rule_is_where_it_must_be(self) -> None:
        """A callback that changes what is trained runs in every process of a training, not only in the chief.

        tpk.Callback: chief_only = False.
        """
        callback = self.make()
        if not isinstance(callback.chief_only, bool):
            raise Broken("chief_only = True or False", repr(callback.chief_only))
        stopped_early = self.first.trainer.global_step < STEPS * EPOCHS
        if callback.chief_only and not stopped_early:
            trained = self.without.trained
            check_same(
                "the weights of a training without it, because it is chief_only",
                {name: self.without.values[name] for name in trained},
                {name: self.first.values.get(name) for name in trained},
            )

    def rule_takes_many_steps_in_a_run(self) -> None:
        """With steps_per_run=2 a callback works after each run, or a ConfigError says why it cannot.

        tpk.session.many_steps.
        """
        set_up_many = functools.partial(self.set_up, source=QueueInput, steps_per_run=2)
        try:
            train(set_up_many, [self.make(), Reporting()], run_dir=self.directory / "many", epochs=2)
        except ConfigError:
            pass


@functools.cache
def _training_without() -> Outcome:
    return train(set_up, [Reporting()])


class _CountingSessions(NewSessionCreator):
    """Creates a session that counts its runs while `counts` is true."""

    def __init__(self) -> None:
        super().__init__(config=session_config())
        self.counts = False
        self.runs = 0

    def create_session(self, graph: Any) -> Any:
        creator = self

        class CountingSession(tf.compat.v1.Session):  # type: ignore[misc]
            def run(self, *arguments: Any, **options: Any) -> Any:
                creator.runs += creator.counts
                return super().run(*arguments, **options)

        with graph.as_default():
            sess = CountingSession("", graph, self.config)
            sess.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            sess.run(tf.compat.v1.tables_initializer())
        return sess


class _Steps(Callback):
    """Turns the counting of session runs on for the duration of each step."""

    def __init__(self, sessions: _CountingSessions) -> None:
        self._sessions = sessions

    @hookimpl(tryfirst=True)
    def before_run(self, run_context: Any) -> None:
        self._sessions.counts = True

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: Any) -> None:
        self._sessions.counts = False
