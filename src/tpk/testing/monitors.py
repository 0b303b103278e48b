"""Rules of monitors."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.monitors import isolation
from tpk.monitors.base import Monitor, report_methods_of
from tpk.plugin import Callback
from tpk.testing.leftovers import Leftovers, watching
from tpk.testing.plugins import Making, add_rules_of_all_kinds
from tpk.testing.rules import Broken, Rules
from tpk.testing.trainings import EPOCHS, STEPS, Failing, Failure, Outcome, check_same, flat, set_up, train


def check_monitor(
    make: Callable[[], Monitor],
    *,
    read: Callable[[Path], Any] | None = None,
    skip: Collection[str] = (),
) -> list[str]:
    """Check that a monitor keeps the rules of monitors, in some trainings of a tiny model of 12 steps each.

    In each step everything is reported that a training can report: whole and other numbers, NaN, the infinities, names
    of all kinds, images, histograms, summaries and events. Each training has a `run_dir` of its own.

    Args:
        make: returns a new monitor each time. What it writes should be in the `run_dir` of the trainer.
        read: takes a `run_dir`, and returns what has arrived, in any plain form without times: by that it is checked
            that a training which was killed and resumed leaves what an uninterrupted one does.
        skip: the names of rules that it does not have to keep; say beside it why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if it breaks a rule; the message says which, what was expected and found, where to read.
        ConfigError: if there is no rule of a name in `skip`.

    Example:
        ```python
        def test_keeps_the_rules_of_monitors():
            check_monitor(LineWriter, read=lambda run_dir: (run_dir / "lines.txt").read_text())
        ```
    """
    making = Making(make, Monitor)
    with tempfile.TemporaryDirectory() as directory:
        case = _Case(making, Path(directory), read)
        return RULES.check(case, lambda: making.owner, skip)


RULES: Rules[_Case] = Rules("monitors")
"""The rules of monitors."""

add_rules_of_all_kinds(RULES, "monitor")

NUMBERS = (0, -1, 3, 0.5, -0.0, 1e300, -1e-300, 2**53, math.nan, math.inf, -math.inf)
NAMES = (
    "plain",
    "val-error/of the_first.batch:0",
    "äöü/损失/🙂",
    "quotes\"'and\\slashes",
    "comma, semicolon; tab\tline\nend",
    "../up/and/away",
    "%s{}$x",
    "=1+1",
    "n" * 500,
)


class _Case:
    """A monitor that is checked, and the trainings with it, each made when a rule first asks for it."""

    def __init__(self, make: Making[Monitor], directory: Path, read: Callable[[Path], Any] | None) -> None:
        self.make, self.directory, self.read = make, directory, read
        self.leftovers = Leftovers()
        self.failures: list[str] = []
        self.seen_before, self.seen_after = _Seen(), _Seen()

    @property
    def copy(self) -> Path:
        """The directory of the first training, as it was when it might have been killed."""
        return self.directory / "killed"

    @property
    def run_dir(self) -> Path:
        """The directory of the first training."""
        return self.directory / "first"

    @cached_property
    def first(self) -> Outcome:
        """A training in which everything is reported, to two more monitors, too."""
        monitors = [self.seen_before, self.make(), self.seen_after]
        with watching() as self.leftovers, _failures_of_monitors(self.failures):
            return train(set_up, [_ReportingAll()], monitors, self.run_dir, copy=self.copy)


class _ReportingAll(Callback):
    """Reports one of everything in each step."""

    def trigger_step(self, trainer: Any) -> None:
        monitors, step = trainer.monitors, trainer.global_step
        for name, number in zip(NAMES, np.resize(np.array(NUMBERS, object), len(NAMES)), strict=True):
            monitors.put_scalar(name, number)
        for number in NUMBERS:
            monitors.put_scalar("number", number)
        for name, shape in (("grey", (5, 4)), ("rgb", (2, 5, 4, 3)), ("rgba/with alpha", (1, 5, 4, 4))):
            monitors.put_image(name, np.full(shape, step, np.uint8))
        monitors.put_histogram("one", [float(step)])
        monitors.put_histogram("many/values", np.linspace(-step, step, 10_000))
        value = tf.compat.v1.Summary.Value(tag="of_graph", simple_value=float(step))
        monitors.put_summary(tf.compat.v1.Summary(value=[value]))
        event = tf.compat.v1.Event()
        event.tagged_run_metadata.tag = f"step {step}"
        monitors.put_event(event)

    def trigger_epoch(self, trainer: Any) -> None:
        trainer.monitors.put_scalar("epochs", trainer.epoch_num)


class _Seen(Monitor):
    """Keeps what it was given, as it was then."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def process_image(self, name: str, images: Any) -> None:
        self.reports.append((name, images.tobytes()))

    def process_histogram(self, name: str, values: Any) -> None:
        self.reports.append((name, values.tobytes()))

    def process_summary(self, summary: Any) -> None:
        self.reports.append(summary.SerializeToString(deterministic=True))

    def process_event(self, event: Any) -> None:
        self.reports.append(event.SerializeToString(deterministic=True))


class _Handler(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._found.append(record.getMessage() + (f": {type(error).__name__}: {error}" if error else ""))


@contextmanager
def _failures_of_monitors(found: list[str]) -> Iterator[None]:
    """Within the context, add to a list what is logged of monitors that fail."""
    handler = _Handler(found)
    isolation.logger.addHandler(handler)
    try:
        yield
    finally:
        isolation.logger.removeHandler(handler)


@RULES.rule(
    "is-only-in-the-chief", "only the chief writes, so a monitor has chief_only = True", "tpk.Callback: chief_only"
)
def _is_only_in_the_chief(case: _Case) -> None:
    if case.make().chief_only is not True:
        raise Broken("chief_only = True", repr(case.make().chief_only))


@RULES.rule(
    "takes-everything",
    "a monitor takes all that is reported: numbers that are not finite, names of any characters, images, histograms, "
    "summaries, events",
    "tpk.Monitor; what it cannot take it leaves out, without an error",
)
def _takes_everything(case: _Case) -> None:
    if case.first.trainer.global_step != STEPS * EPOCHS:
        raise Broken(f"a training of {STEPS * EPOCHS} steps", f"one of {case.first.trainer.global_step}")
    if case.failures:
        raise Broken("no failure in the log", case.failures[0])


@RULES.rule(
    "changes-nothing-that-is-shared",
    "arrays and protocol buffers are shared with other monitors",
    "tpk.Monitor.process_summary: copy it before you change it",
)
def _changes_nothing_that_is_shared(case: _Case) -> None:
    case.first  # noqa: B018
    before, after = flat(case.seen_before.reports), flat(case.seen_after.reports)
    check_same("the same reports for the monitors after it", before, after)


@RULES.rule(
    "leaves-nothing-behind",
    "what a monitor starts or opens is ended and closed in after_train",
    "tpk.Callback.after_train",
)
def _leaves_nothing_behind(case: _Case) -> None:
    case.first  # noqa: B018
    case.leftovers.check("a training")


@RULES.rule(
    "leaves-nothing-behind-after-a-failure",
    "what a monitor starts or opens is closed in after_train, also of a training that fails, whose error stays what it "
    "is, and of one in which each of its methods fails, which goes on",
    "tpk.Monitor",
)
def _leaves_nothing_behind_after_a_failure(case: _Case) -> None:
    with watching() as leftovers:
        try:
            train(set_up, [_ReportingAll(), Failing()], [case.make()], case.directory / "failing", steps=2, epochs=1)
        except Failure:
            pass
        else:
            raise Broken("the error by which a step fails, raised by train()", "a training that ends without an error")
    leftovers.check("a training that fails")


@RULES.rule(
    "its-failures-stop-nothing",
    "a monitor whose methods fail is logged, and the training goes on",
    "tpk.Monitor; override neither isolation nor hook_implementations so that errors get around it",
)
def _its_failures_stop_nothing(case: _Case) -> None:
    monitor, failures = case.make(), list[str]()

    def fail(*arguments: Any) -> None:
        raise Failure("the destination is gone")

    def fail_in_hook() -> None:
        fail()

    hooks = dict.fromkeys(
        set(monitor.hook_implementations()) - {"setup_graph", "before_train", "after_train"}, fail_in_hook
    )
    vars(monitor).update(dict.fromkeys(report_methods_of(monitor), fail), **hooks)
    with watching() as leftovers, _failures_of_monitors(failures):
        train(set_up, [_ReportingAll()], [monitor], case.directory / "broken", steps=2, epochs=2)
    if not failures:
        raise Broken("a failure in the log", "none")
    leftovers.check("a training in which it fails")


@RULES.rule(
    "works-without-a-directory",
    "without a run_dir a monitor works, or a ConfigError says so before the first step",
    "tpk.Monitor; README, run_dir",
)
def _works_without_a_directory(case: _Case) -> None:
    failures = list[str]()
    try:
        with _failures_of_monitors(failures):
            train(set_up, [_ReportingAll()], [case.make()], steps=1, epochs=1)
    except ConfigError:
        return
    if failures:
        raise Broken("a ConfigError in before_train, or none at all", failures[0])


@RULES.rule(
    "resumes",
    "what has arrived of a training that was killed and resumed is what arrives of one that was not: nothing is lost, "
    "nothing is there twice",
    "tpk.Monitor.start_over, tpk.Callback.state_dict",
)
def _resumes(case: _Case) -> None:
    case.first  # noqa: B018
    monitor, failures = case.make(), list[str]()
    with watching() as leftovers, _failures_of_monitors(failures):
        train(set_up, [_ReportingAll()], [monitor], case.copy, resume="must")
    if failures:
        raise Broken("no failure in the log of the training that went on", failures[0])
    leftovers.check("the training that went on")
    if case.read is not None:
        expected, found = case.read(case.run_dir), case.read(case.copy)
        if not expected:
            raise Broken("what was reported, returned by `read`", repr(expected))
        check_same("what arrives of a training that was not killed", flat(expected), flat(found))
