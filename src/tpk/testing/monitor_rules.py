"""The rules of monitors."""

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
from tpk.monitors import base
from tpk.monitors.base import Monitor, report_methods_of
from tpk.plugin import Callback
from tpk.testing.comparison import Broken, check_same, flat
from tpk.testing.conformance import Conformance, training_fails
from tpk.testing.leftovers import Leftovers, leaving_nothing, watching
from tpk.testing.trainings import EPOCHS, STEPS, Failing, Failure, Outcome, set_up, train

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


def check_monitor(
    make: Callable[[], Monitor],
    *,
    read: Callable[[Path], Any] | None = None,
    skip: Collection[str] = (),
) -> list[str]:
    """Check that a monitor keeps the rules of monitors, in several trainings of a tiny model of 12 steps each.

    Each step reports everything that a training can report: integers and floats, NaN, the infinities, names of all
    kinds, images, histograms, summaries and events. Each training has its own `run_dir`.

    Args:
        make: returns a new monitor each time. It should write to the `run_dir` of the trainer.
        read: takes a `run_dir` and returns what the monitor has written, as plain data without times. With it, the
            check compares a training that is killed and resumed with an uninterrupted one.
        skip: the names of rules that the monitor need not keep; add a comment that says why.

    Returns:
        The names of the rules that were checked.

    Raises:
        ConformanceError: if a rule is broken. The message says which, what was expected and found, and where to read.
        ConfigError: if `skip` names an unknown rule.

    Example:
        ```python
        def test_keeps_the_rules_of_monitors():
            check_monitor(LineWriter, read=lambda run_dir: (run_dir / "lines.txt").read_text())
        ```
    """
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory() as directory:
        return MonitorConformance(make, Path(directory), read).check(skip)


class MonitorConformance(Conformance[Monitor]):
    """The rules of monitors, and the training that they look at; for the arguments see `check_monitor`."""

    kinds = "monitors"
    base = Monitor

    def __init__(self, make: Callable[[], Monitor], directory: Path, read: Callable[[Path], Any] | None = None) -> None:
        super().__init__(make, directory)
        self._read = read
        self.run_dir = directory / "first"
        self.leftovers = Leftovers()
        self.failures: list[str] = []
        self.seen_before, self.seen_after = _Seen(), _Seen()

    @cached_property
    def first(self) -> Outcome:
        """A training that reports everything, with a monitor before and one behind the monitor that is checked."""
        monitors = [self.seen_before, self.make(), self.seen_after]
        with watching() as self.leftovers, _failures_of_monitors() as self.failures:
            return train(set_up, [_ReportingAll()], monitors, self.run_dir, copy=self.copy)

    def rule_is_only_in_the_chief(self) -> None:
        """Only the chief writes, so a monitor has chief_only = True.

        tpk.Callback: chief_only.
        """
        if self.make().chief_only is not True:
            raise Broken("chief_only = True", repr(self.make().chief_only))

    def rule_takes_everything(self) -> None:
        """A monitor takes all reports: numbers that are not finite, names of any characters, images, histograms,
        summaries and events.

        tpk.Monitor: ignore what the monitor cannot use, without an error.
        """
        if self.first.trainer.global_step != STEPS * EPOCHS:
            raise Broken(f"a training of {STEPS * EPOCHS} steps", f"one of {self.first.trainer.global_step}")
        if self.failures:
            raise Broken("no failure in the log", self.failures[0])

    def rule_changes_nothing_that_is_shared(self) -> None:
        """A monitor does not change arrays and protocol buffers, because other monitors get the same ones.

        tpk.Monitor.process_summary: copy it before you change it.
        """
        _ = self.first
        before, after = flat(self.seen_before.reports), flat(self.seen_after.reports)
        check_same("the same reports for the monitors after it", before, after)

    def rule_leaves_nothing_behind(self) -> None:
        """A monitor ends or closes in after_train whatever it starts or opens.

        tpk.Callback.after_train.
        """
        _ = self.first
        self.leftovers.check("a training")

    def rule_leaves_nothing_behind_after_a_failure(self) -> None:
        """A monitor ends or closes whatever it starts or opens even if the training fails, and hides no error.

        tpk.Callback.after_train.
        """
        with training_fails(Failure):
            train(set_up, [_ReportingAll(), Failing()], [self.make()], self.directory / "failing", steps=2, epochs=1)

    def rule_its_failures_stop_nothing(self) -> None:
        """Failures of a monitor are logged, and the training continues.

        tpk.Monitor: override neither isolation nor hook_implementations in a way that bypasses it.
        """
        monitor = self.make()

        def fail(*arguments: Any) -> None:
            raise Failure("the destination is gone")

        def fail_in_hook() -> None:
            fail()

        hooks = set(monitor.hook_implementations()) - {"setup_graph", "before_train", "after_train"}
        vars(monitor).update(dict.fromkeys(report_methods_of(monitor), fail), **dict.fromkeys(hooks, fail_in_hook))
        with leaving_nothing("a training in which it fails"), _failures_of_monitors() as failures:
            train(set_up, [_ReportingAll()], [monitor], self.directory / "broken", steps=2, epochs=2)
        if not failures:
            raise Broken("a failure in the log", "none")

    def rule_works_without_a_directory(self) -> None:
        """Without a run_dir a monitor works, or raises a ConfigError before the first step.

        tpk.Monitor; README, run_dir.
        """
        try:
            with _failures_of_monitors() as failures:
                train(set_up, [_ReportingAll()], [self.make()], steps=1, epochs=1)
        except ConfigError:
            return
        if failures:
            raise Broken("a ConfigError in before_train, or none at all", failures[0])

    def rule_resumes(self) -> None:
        """After a training is killed and resumed, the destination has each report exactly once.

        tpk.Monitor.start_over, tpk.Callback.state_dict.
        """
        _ = self.first
        monitor = self.make()
        with leaving_nothing("the resumed training"), _failures_of_monitors() as failures:
            train(set_up, [_ReportingAll()], [monitor], self.copy, resume="must")
        if failures:
            raise Broken("no failure in the log of the resumed training", failures[0])
        if self._read is not None:
            expected, found = self._read(self.run_dir), self._read(self.copy)
            if not expected:
                raise Broken("what was reported, returned by `read`", repr(expected))
            check_same("what an uninterrupted training writes", flat(expected), flat(found))


class _ReportingAll(Callback):
    """Reports everything in each step."""

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
    """Keeps a copy of each report."""

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
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(record.getMessage() + (f": {type(error).__name__}: {error}" if error else ""))


@contextmanager
def _failures_of_monitors() -> Iterator[list[str]]:
    """Collect what is logged about failing monitors within the context."""
    handler = _Handler()
    base.logger.addHandler(handler)
    try:
        yield handler.found
    finally:
        base.logger.removeHandler(handler)
