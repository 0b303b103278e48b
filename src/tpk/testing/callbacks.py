"""Rules of callbacks."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpk.callbacks.triggers import EnableCallbackIf, PeriodicTrigger, innermost
from tpk.errors import CheckpointError, ConfigError, HookError
from tpk.input_source.queue import QueueInput
from tpk.plugin import Callback, hookimpl
from tpk.session.creator import NewSessionCreator
from tpk.testing.leftovers import Leftovers, watching
from tpk.testing.plugins import Making, add_rules_of_all_kinds
from tpk.testing.rules import Broken, Rules
from tpk.testing.trainings import (
    EPOCHS,
    STEPS,
    Failing,
    Failure,
    Outcome,
    Reporting,
    check_same,
    difference,
    session_config,
    set_up,
    traced,
    train,
)
from tpk.train.model_desc import ModelDesc


def check_callback(
    make: Callable[[], Callback],
    *,
    beside: Callable[[], Sequence[Any]] = tuple,
    model: Callable[[], ModelDesc] | None = None,
    data: Sequence[Any] | None = None,
    measures: Collection[str] = (),
    skip: Collection[str] = (),
) -> list[str]:
    """Check that a callback keeps the rules of callbacks, in some trainings of a tiny model of 12 steps each.

    The model is `tpk.testing.trainings.TinyModel`: it has tensors ``cost``, ``logits`` and ``incorrect_vector``, and
    variables ``w``, ``table`` and ``learning_rate``. At the end of each epoch the scalars ``cost`` and ``error`` are
    reported. The training is on one device; whether the callback works on others, `check_strategy` does not tell
    either: train with it.

    Args:
        make: returns a new callback each time.
        beside: returns further callbacks that it needs in a training, new ones each time; they come first.
        model: returns another model for it.
        data: the datapoints of that model, 12 or more.
        measures: the names of the scalars by which it reports a measurement of the machine, such as its memory: their
            values are not compared, as two trainings may happen to have the same and a third others.
        skip: the names of rules that it does not have to keep; say beside it why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if it breaks a rule; the message says which, what was expected and found, where to read.
        ConfigError: if there is no rule of a name in `skip`, or no scalar of one in `measures`.

    Example:
        ```python
        def test_keeps_the_rules_of_callbacks():
            check_callback(lambda: CostCurve(tensor_name="cost:0"))
        ```
    """
    making = Making(make, Callback)
    with tempfile.TemporaryDirectory() as directory:
        case = _Case(making, Path(directory), beside, model, data, measures)
        checked = RULES.check(case, lambda: making.owner, skip)
        if measures:
            reported = case.first.trainer.history
            if isinstance(measures, str) or not all(name in reported for name in measures):
                raise ConfigError(
                    f"measures={measures!r}: expected a list of scalars that are reported here: {', '.join(reported)}."
                )
        return checked


RULES: Rules[_Case] = Rules("callbacks")
"""The rules of callbacks."""

add_rules_of_all_kinds(RULES, "callback")


class _Case:
    """A callback that is checked, and the trainings with it, each made when a rule first asks for it."""

    def __init__(
        self,
        make: Making[Callback],
        directory: Path,
        beside: Callable[[], Sequence[Any]],
        model: Callable[[], ModelDesc] | None,
        data: Sequence[Any] | None,
        measures: Collection[str],
    ) -> None:
        self.make, self.directory = make, directory
        self._beside, self._model, self._data, self._measures = beside, model, data, measures
        self.sessions = _CountingSessions()
        self.leftovers = Leftovers()

    @property
    def copy(self) -> Path:
        """The directory of the first training, as it was when it might have been killed."""
        return self.directory / "killed"

    @property
    def first(self) -> Outcome:
        """A training in which the callback comes before what reports."""
        if isinstance(self.first_or_error, Exception):
            raise self.first_or_error
        return self.first_or_error

    @cached_property
    def first_or_error(self) -> Outcome | Exception:
        """That training, or the error by which it fails."""
        try:
            with watching() as self.leftovers:
                return self.train([self.make(), Reporting()], copy=self.copy, session_creator=self.sessions)
        except Exception as error:
            return error

    @cached_property
    def again(self) -> Outcome:
        """The same, traced."""
        with traced():
            return self.train([self.make(), Reporting()])

    @cached_property
    def last_and_enabled(self) -> Outcome:
        """The same again, with the callback after what reports, and in a wrapper that changes nothing."""
        return self.train([Reporting(), EnableCallbackIf(self.make(), lambda _: True)])

    def problem_of(self, outcome: Outcome) -> str:
        """Return in what a training differs from the first, but for what depends on the time."""
        return difference(self.first.values, outcome.values) or difference(
            self.state_of(self.first), self.state_of(outcome), self.again.state
        )

    def state_of(self, outcome: Outcome) -> dict[str, Any]:
        """Return the state at the end of a training, but for what was measured."""
        measured = tuple(f"['monitors']['history'][{name!r}]['values']" for name in self._measures)
        return {path: value for path, value in outcome.state.items() if not path.startswith(measured)}

    @cached_property
    def alone(self) -> Outcome:
        """The training without the callback."""
        return self.train([Reporting()]) if self._model or self._beside() else _training_without()

    def train(self, callbacks: Sequence[Any], **options: Any) -> Outcome:
        """Train in a new directory, or in one that is given."""
        options.setdefault("run_dir", Path(tempfile.mkdtemp(dir=self.directory)))
        callbacks = [*self._beside(), *callbacks, *([_Steps(self.sessions)] if "session_creator" in options else [])]
        return train(self.set_up, callbacks, **options)

    def set_up(self, **options: Any) -> Any:
        """Return a trainer."""
        return set_up(model=self._model and self._model(), data=self._data, **options)


@functools.cache
def _training_without() -> Outcome:
    return train(set_up, [Reporting()])


class _CountingSessions(NewSessionCreator):
    """Makes a session that counts how often it is run, while `counts`."""

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
    """Has runs of the session counted that belong to a step."""

    def __init__(self, sessions: _CountingSessions) -> None:
        self._sessions = sessions

    @hookimpl(tryfirst=True)
    def before_run(self, run_context: Any) -> None:
        self._sessions.counts = True

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: Any) -> None:
        self._sessions.counts = False


@RULES.rule(
    "adds-to-the-graph-in-time",
    "a callback adds ops to the graph in setup_graph only; then it is finalized",
    "tpk.Callback.setup_graph",
)
def _adds_to_the_graph_in_time(case: _Case) -> None:
    error = case.first_or_error
    if isinstance(error, RuntimeError) and "finalized" in str(error):
        raise Broken("all ops before the graph is finalized", f"{error} {_notes(error)}") from error


@RULES.rule(
    "state-is-plain-data",
    "state_dict() returns what a checkpoint can hold, at any moment of a training",
    "tpk.Callback.state_dict, tpk.checkpoint.encoding",
)
def _state_is_plain_data(case: _Case) -> None:
    error = case.first_or_error
    if isinstance(error, CheckpointError) and "the state of callback" in str(error):
        raise Broken("numbers, texts, bytes, None, arrays, and lists, tuples and dicts of these", f"{error}") from error


@RULES.rule(
    "trains", "a training with the callback runs to its end, or until it is stopped in good order", "tpk.Callback"
)
def _trains(case: _Case) -> None:
    if case.first.trainer.global_step == 0:
        raise Broken("a training with some steps", "none")


@RULES.rule(
    "leaves-nothing-behind",
    "what a callback starts or opens is ended and closed in after_train",
    "tpk.Callback.after_train",
)
def _leaves_nothing_behind(case: _Case) -> None:
    case.first  # noqa: B018
    case.leftovers.check("a training")


@RULES.rule(
    "leaves-nothing-behind-after-a-failure",
    "what a callback starts or opens is closed in after_train, also of a training that fails; its error stays",
    "tpk.Callback.after_train",
)
def _leaves_nothing_behind_after_a_failure(case: _Case) -> None:
    with watching() as leftovers:
        try:
            case.train([case.make(), Reporting(), Failing()], steps=2, epochs=1)
        except Failure:
            pass
        else:
            raise Broken("the error by which a step fails, raised by train()", "a training that ends without an error")
    leftovers.check("a training that fails")


@RULES.rule(
    "trains-alike",
    "with and without TPK_TRACE=1, two trainings with the callback end with the same variables, bit for bit",
    "tpk.plugin.environment; draw random numbers from the global generators, or by tpk.graph.random",
)
def _trains_alike(case: _Case) -> None:
    check_same("the same variables", case.first.values, case.again.values)


@RULES.rule(
    "resumes",
    "a training that was killed and resumed is the one that was not, bit for bit: variables, states, reports",
    "tpk.Callback.state_dict; what counts up or is remembered belongs in it",
)
def _resumes(case: _Case) -> None:
    case.first  # noqa: B018
    if not case.copy.exists():  # It has ended before.
        return
    resumed = case.train([case.make(), Reporting()], run_dir=case.copy, resume="must")
    check_same("the variables of the training that went on", case.first.values, resumed.values)
    expected, found = case.state_of(case.first), case.state_of(resumed)
    check_same("the state of the training that went on", expected, found, case.again.state)


@RULES.rule(
    "order-does-not-matter",
    "what reads statistics sees those of now, wherever in the list of callbacks it stands",
    "tpk.plugin: mark the method by @tpk.hookimpl(trylast=True)",
)
def _order_does_not_matter(case: _Case) -> None:
    if case.problem_of(case.last_and_enabled):
        problem = case.problem_of(case.train([Reporting(), case.make()]))
        if problem:
            raise Broken(
                "what comes out where the callback is the first in the list, also where it is the last", problem
            )


@RULES.rule(
    "can-be-wrapped",
    "under EnableCallbackIf a callback does what it does alone; under PeriodicTrigger and in twos it works, or a "
    "ConfigError or HookError says why it does not",
    "tpk.callbacks.triggers",
)
def _can_be_wrapped(case: _Case) -> None:
    problem = case.problem_of(case.last_and_enabled)
    if problem:
        raise Broken("what comes out without a wrapper", problem)
    callback = case.make()
    periodic = innermost(callback)._overrides("trigger")
    try:
        two = [PeriodicTrigger(callback, every_k_epochs=1) if periodic else callback, case.make()]
        case.train([*two, Reporting()], steps=2, epochs=2)
    except (ConfigError, HookError):
        pass


@RULES.rule(
    "runs-along-with-the-step",
    "what a callback needs in each step runs along with it, not in a run of its own",
    "tpk.Callback.return it from before_run",
)
def _runs_along_with_the_step(case: _Case) -> None:
    steps, runs = case.first.trainer.global_step, case.sessions.runs
    if runs >= steps:
        raise Broken(f"fewer runs of the session of its own than there are steps, {steps}", f"{runs} of them")


@RULES.rule(
    "is-where-it-must-be",
    "a callback that changes what is trained runs in every process of a training, not in the chief alone",
    "tpk.Callback: chief_only = False",
)
def _is_where_it_must_be(case: _Case) -> None:
    callback = case.make()
    if not isinstance(callback.chief_only, bool):
        raise Broken("chief_only = True or False", repr(callback.chief_only))
    ended_early = case.first.trainer.global_step < STEPS * EPOCHS
    if not callback.chief_only or ended_early:
        return
    check_same(
        "the weights of a training without it, since it is chief_only",
        {name: case.alone.values[name] for name in case.alone.trained},
        {name: case.first.values.get(name) for name in case.alone.trained},
    )


@RULES.rule(
    "takes-many-steps-in-a-run",
    "with steps_per_run=2 a callback does its part after each run, or a ConfigError says why it cannot",
    "tpk.train.steps_per_run",
)
def _takes_many_steps_in_a_run(case: _Case) -> None:
    set_up_many = functools.partial(case.set_up, source=QueueInput, steps_per_run=2)
    try:
        train(set_up_many, [*case._beside(), case.make(), Reporting()], run_dir=case.directory / "many", epochs=2)
    except ConfigError:
        pass


def _notes(error: BaseException) -> str:
    return " ".join(f"({note})" for note in getattr(error, "__notes__", ()))
