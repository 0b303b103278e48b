"""For each rule there is a plugin that breaks it, and is told so; only that rule is checked of it."""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading

import pytest
import tensorflow as tf

import tpk
from tpk.testing import (
    ConformanceError,
    check_callback,
    check_monitor,
    check_strategy,
    check_trainer,
    leftovers,
)
from tpk.testing.callback_rules import CallbackConformance
from tpk.testing.monitor_rules import MonitorConformance
from tpk.testing.strategy_rules import StrategyConformance
from tpk.testing.trainer_rules import TrainerConformance

pytestmark = pytest.mark.once

v1 = tf.compat.v1
NUMBERS = itertools.count()
RELEASED = threading.Event()


@pytest.fixture(autouse=True)
def threads_end(monkeypatch):
    """Threads that are left behind end with the test, and are not waited for before."""
    monkeypatch.setattr(leftovers, "PATIENCE", 0.0)
    RELEASED.clear()
    yield
    RELEASED.set()


def start_thread():
    thread = threading.Thread(target=RELEASED.wait, name="left behind", daemon=True)
    thread.start()
    return thread


def broken(check, conformance, rule, make, **options):
    """Return what the check of one rule says."""
    with pytest.raises(ConformanceError) as caught:
        check(make, skip=[name for name in conformance.rules() if name != rule], **options)
    message = str(caught.value)
    assert f"breaks the rule {rule!r}" in message
    assert "\n  expected: " in message and "\n  found: " in message and "\n  read: " in message
    return message


def assign(name, function):
    """Return an op that changes a variable of the model; to be run between steps."""
    variable = next(each for each in v1.global_variables() if each.op.name == name)
    return v1.assign(variable, function(variable))


def hooks(base=tpk.Callback, **methods):
    """Return a class of plugins with these methods and attributes."""
    return type("Plugin", (base,), methods)


def report(callback, value):
    callback.trainer.monitors.put_scalar("mine", value)


class Lambda(tpk.Callback):
    def __init__(self, number):
        self.number = number

    def trigger(self):
        pass


class MakesOp(tpk.Callback):
    def __init__(self):
        self.op = tf.constant(1.0)

    def trigger(self):
        pass


class StartsThread(tpk.Callback):
    def __init__(self):
        start_thread()

    def trigger(self):
        pass


class Counter(tpk.Callback):
    """Its state is lost."""

    count = 0

    def trigger_step(self):
        self.count += 1
        report(self, self.count)


class Changer(tpk.Callback):
    """Changes a weight between two epochs."""

    chief_only = False

    def setup_graph(self):
        self.op = assign("w", self.change)

    def change(self, value):
        return value * 0.9

    def trigger(self):
        self.trainer.sess.run(self.op)


class RandomChanger(Changer):
    def change(self, value):
        return value * (1 + int.from_bytes(os.urandom(4), "big") / 2**32)


class ChiefChanger(Changer):
    chief_only = True


class EachStep(Changer):
    def trigger(self):
        pass

    def trigger_step(self):
        self.trainer.sess.run(self.op)


class CountsRuns(tpk.Callback):
    runs = 0

    def trigger_step(self):
        self.runs += 1

    def after_epoch(self, trainer):
        if self.runs % trainer.loop.steps_per_epoch:
            raise ValueError(f"{self.runs} runs")


def needs_registration(self):
    report(self, [*self.trainer.hooks.plugins.values()].index(self))


def read_cost(self, trainer):
    monitors = trainer.monitors
    report(self, monitors.get_latest("cost") if "cost" in monitors.names else -1.0)


SHARED = hooks(trigger=lambda self: None)()
THREAD = {"before_train": lambda self: start_thread()}

CALLBACKS = [
    ("can-be-made", hooks(__init__=lambda self: 1 / 0), "found: ZeroDivisionError: division by zero"),
    ("can-be-made", SHARED, r"a new tpk.Callback: lambda: MyPlugin\(...\)\n  found: Plugin\(\)"),
    ("constructs-plainly", MakesOp, "the ops Const"),
    ("constructs-plainly", StartsThread, "the thread 'left behind'"),
    ("constructs-plainly", lambda: SHARED, "the same object twice"),
    ("constructs-plainly", lambda: Counter, r"lambda: MyPlugin\(...\)"),
    ("constructs-plainly", lambda: tpk.JSONWriter, "a new tpk.Callback"),
    ("hooks-fit", hooks(befor_run=lambda self: None), "did you mean 'before_run'"),
    ("options-are-plain", lambda: Lambda(next(NUMBERS)), r"\['number'\] is \d+ rather than \d+"),
    ("adds-to-the-graph-in-time", hooks(before_train=lambda self: tf.constant(1)), "hook 'before_train'"),
    (
        "state-is-plain-data",
        hooks(trigger=lambda self: None, state_dict=lambda self: {"lock": object()}),
        r"state of callback 'Plugin'\['lock'\] is not plain data: object",
    ),
    ("trains", hooks(trigger=lambda self: 1 / 0), "ZeroDivisionError.*hook 'trigger_epoch'"),
    ("leaves-nothing-behind", hooks(**THREAD), "the thread 'left behind'"),
    (
        "leaves-nothing-behind-after-a-failure",
        hooks(**THREAD, after_train=lambda self, trainer: trainer.loop.failure is None and RELEASED.set()),
        "the thread 'left behind'",
    ),
    (
        "leaves-nothing-behind-after-a-failure",
        hooks(chief_only=False, recover=lambda self, error: True, trigger_step=lambda self: 1 / 0),
        "ZeroDivisionError",
    ),
    ("trains-alike", RandomChanger, "(w|table):0 is array"),
    ("resumes", Counter, "history.*mine"),
    ("order-does-not-matter", hooks(trigger_epoch=read_cost), "history.*mine"),
    ("can-be-wrapped", hooks(trigger=needs_registration), "ValueError"),
    ("runs-along-with-the-step", EachStep, "12 of them"),
    ("is-where-it-must-be", ChiefChanger, "(w|table):0 is array"),
    ("is-where-it-must-be", hooks(trigger=lambda self: None, chief_only="no"), "'no'"),
    ("takes-many-steps-in-a-run", CountsRuns, "2 runs"),
]


@pytest.mark.parametrize(("rule", "make", "found"), CALLBACKS)
def test_a_callback_that_breaks_a_rule(rule, make, found):
    message = broken(check_callback, CallbackConformance, rule, make)
    assert re.search(found, message, re.DOTALL), message


class Lines(tpk.Monitor):
    """Writes lines to a file in the directory of the run, and keeps no state."""

    def before_train(self, trainer):
        self.path = trainer.run_dir / "lines.txt"

    def process_scalar(self, name, value):
        if name == "number":
            with self.path.open("a") as file:
                file.write(f"{self.global_step} {value}\n")


class WritesLate(Lines):
    """Keeps lines in memory until the end."""

    lines = ()

    def process_scalar(self, name, value):
        self.lines = [*self.lines, name]

    def after_train(self):
        self.path.write_text("\n".join(self.lines))


class Whole(tpk.Monitor):
    def process_scalar(self, name, value):
        self.last = int(value)


class Relabels(tpk.Monitor):
    def process_summary(self, summary):
        for value in summary.value:
            value.tag = "mine"


class Unguarded(tpk.Monitor):
    def trigger_epoch(self):
        pass

    def hook_implementations(self):
        return tpk.Callback.hook_implementations(self)


class Silent(tpk.Monitor):
    isolation = type(
        "Quiet",
        (),
        {
            "call": lambda self, *call: None,
            "guarded": lambda self, hook, method: lambda: None,
        },
    )()

    def process_scalar(self, name, value):
        pass


def read_lines(run_dir):
    return (run_dir / "lines.txt").read_text().splitlines()


MONITORS = [
    ("is-only-in-the-chief", hooks(tpk.Monitor, chief_only=False), "False", {}),
    (
        "hooks-fit",
        hooks(tpk.Monitor, proces_scalar=lambda self, name, value: None),
        "did you mean 'process_scalar'",
        {},
    ),
    ("takes-everything", Whole, "cannot convert float", {}),
    ("changes-nothing-that-is-shared", Relabels, "mine", {}),
    ("leaves-nothing-behind", hooks(tpk.Monitor, **THREAD), "the thread 'left behind'", {}),
    (
        "leaves-nothing-behind-after-a-failure",
        hooks(tpk.Monitor, **THREAD, after_train=lambda self, trainer: trainer.loop.failure is None and RELEASED.set()),
        "the thread 'left behind'",
        {},
    ),
    ("its-failures-stop-nothing", Unguarded, "the destination is gone", {}),
    ("its-failures-stop-nothing", Silent, "none", {}),
    ("works-without-a-directory", Lines, "unsupported operand", {}),
    ("resumes", Lines, "rather than", {"read": read_lines}),
    ("resumes", WritesLate, "rather than", {"read": read_lines}),
    ("resumes", hooks(tpk.Monitor), r"\[\]", {"read": lambda run_dir: []}),
]


@pytest.mark.parametrize(("rule", "make", "found", "options"), MONITORS)
def test_a_monitor_that_breaks_a_rule(rule, make, found, options):
    message = broken(check_monitor, MonitorConformance, rule, make, **options)
    assert re.search(found, message, re.DOTALL), message


class Single(tpk.SingleStrategy):
    pass


class Renamed(tpk.Strategy):
    """Its model has a variable scope of its own."""

    def build(self, tower_func, get_inputs, objectives, groups=((0,),)):
        with tpk.TrainTowerContext(ns_name="tower0", vs_name="model"):
            output = tower_func(*get_inputs())
        (objective,) = objectives
        return [objective.get_optimizer().minimize(objective.cost_in(output))]

    def predict_context(self, ns_name):
        return tpk.PredictTowerContext(ns_name=ns_name, vs_name="model")


class UpdatesBefore(tpk.SingleStrategy):
    """Updates the variables before the step, which then sees what it has made of them."""

    def build(self, *args):
        (self.op,) = super().build(*args)
        return [tf.no_op()]

    def before_run(self, run_context):
        data = [[1.0, 2, 3]], [1], [1]
        inputs = self.trainer.tower_func.towers[0].inputs
        run_context.session.run(self.op, dict(zip(inputs, data, strict=True)))


class FirstObjectiveOnly(tpk.SingleStrategy):
    def build(self, tower_func, get_inputs, objectives, groups=((0,),)):
        return super().build(tower_func, get_inputs, objectives, [(0,)]) * len(groups)


class Wandering(tpk.ReplicatedStrategy):
    """Leaves the replicates as they are initialized."""

    def after_restore(self, sess):
        pass


class Decaying(tpk.SingleStrategy):
    """Changes a weight after each run that is not the third: how many there were is lost."""

    runs = 0

    def setup_graph(self):
        self.op = assign("w", lambda value: value * 0.9)

    def trigger_step(self):
        self.runs += 1
        if self.runs != 3:
            self.trainer.sess.run(self.op)


TWO = {"num_towers": 2}
STRATEGIES = [
    ("describes-itself", hooks(Single, describe=lambda self: {"lock": threading.Lock()}), "not JSON serializable", {}),
    ("describes-itself", hooks(Single, describe=lambda self: [1]), r"\[1\]", {}),
    ("trains", hooks(Single, **THREAD), "the thread 'left behind'", {}),
    ("has-its-towers", Single, "found: 1", TWO),
    ("has-its-towers", hooks(Single, num_replicas=2), "expected: 2 training towers", TWO),
    ("towers-equal-one", lambda: tpk.ReplicatedStrategy(2, average=False), "with 'sgd', after 5 steps", TWO),
    ("towers-stay-equal", lambda: Wandering(2), "in tower 1", TWO),
    ("steps-see-before", UpdatesBefore, "in the second step", {}),
    (
        "predicts",
        hooks(Single, predict_context=lambda self, name: tpk.PredictTowerContext(ns_name=name, vs_name="a")),
        "a/w",
        {},
    ),
    ("resumes", Decaying, "(w|table):0 is array", {}),
    ("is-saved-as-one-tower", Renamed, "no steps_seen, table, w", {}),
    ("minimizes-several-objectives", FirstObjectiveOnly, "w:0 is", {}),
    ("repeats-steps", Decaying, "(w|table):0 is array", {}),
    ("fails-with-its-tower", hooks(Single, recover=lambda self, error: True), "ends without an error", {}),
    ("stops", hooks(Single, trigger_step=lambda self: self.trainer.request_stop("now")), "one of 1", {}),
]


@pytest.mark.parametrize(("rule", "make", "found", "options"), STRATEGIES)
def test_a_strategy_that_breaks_a_rule(rule, make, found, options):
    message = broken(check_strategy, StrategyConformance, rule, make, **options)
    assert re.search(found, message, re.DOTALL), message


class StartsThreadToo(tpk.SingleCostTrainer):
    def __init__(self):
        super().__init__()
        start_thread()


class ShortLoop(tpk.SingleCostTrainer):
    def main_loop(self, steps_per_epoch, *counts):
        super().main_loop(steps_per_epoch - 1, *counts)


class CountsTwice(tpk.SingleCostTrainer):
    def run_step(self):
        super().run_step()
        self.loop.progress.global_step += 1


class GoesOn(tpk.SingleCostTrainer):
    def initialize(self, *options):
        super().initialize(*options)
        self.loop.stop.is_set = lambda: False


class Swallows(tpk.SingleCostTrainer):
    def main_loop(self, *counts):
        try:
            super().main_loop(*counts)
        except Exception:
            pass


class Leaves(tpk.SingleCostTrainer):
    def initialize(self, *args):
        super().initialize(*args)
        start_thread()


class KeepsSession(tpk.SingleCostTrainer):
    def initialize(self, session_creator=None, session_init=None):
        self.session = v1.Session(graph=self.graph)
        super().initialize(tpk.ReuseSessionCreator(self.session), session_init)


class Again(tpk.SingleCostTrainer):
    def train(self, **options):
        if not self.phases.has("train"):
            super().train(**options)


class InTrain(tpk.SingleCostTrainer):
    def train(self, **options):
        super().train(**options, session_init={"learning_rate": 0.5})


class Skips(tpk.SingleCostTrainer):
    """Trains twice in each step that is not the third: how many there were is lost."""

    steps = 0

    def run_step(self):
        super().run_step()
        self.steps += 1
        if self.steps != 3:
            super().run_step()


TRAINERS = [
    ("constructs-plainly", StartsThreadToo, "the thread 'left behind'"),
    ("hooks-fit", hooks(tpk.SingleCostTrainer, trigger_epoch=lambda self: None), "defines trigger_epoch"),
    ("options-are-plain", hooks(tpk.SingleCostTrainer, options={"lock": object()}), "not JSON serializable"),
    (
        "options-are-plain",
        hooks(tpk.SingleCostTrainer, state_dict=lambda self: {"lock": object()}),
        "state of the trainer",
    ),
    ("follows-the-loop", ShortLoop, "call 7 is 'after_epoch' rather than 'trigger_step'"),
    ("counts-steps", CountsTwice, r"call 1 is \(1, 0, 2\) rather than \(1, 0, 1\)"),
    ("stops", GoesOn, "12 steps"),
    ("fails", Swallows, "ends without it"),
    ("closes-all", Leaves, "the thread 'left behind'"),
    ("closes-all", KeepsSession, "found: the open <tensorflow.*Session"),
    ("trains-once", Again, "found: none"),
    ("trains-in-phases", InTrain, "learning_rate:0 is"),
    ("resumes", Skips, "(w|table):0 is array"),
]


@pytest.mark.parametrize(("rule", "make", "found"), TRAINERS)
def test_a_trainer_that_breaks_a_rule(rule, make, found):
    message = broken(check_trainer, TrainerConformance, rule, make)
    assert re.search(found, message, re.DOTALL), message


OF_ALL_KINDS = {"can-be-made", "constructs-plainly", "hooks-fit", "options-are-plain"}


@pytest.mark.parametrize(
    ("conformance", "cases"),
    [
        (CallbackConformance, CALLBACKS),
        (MonitorConformance, MONITORS),
        (StrategyConformance, STRATEGIES),
        (TrainerConformance, TRAINERS),
    ],
)
def test_there_is_something_that_breaks_each_rule(conformance, cases):
    assert set(conformance.rules()) - OF_ALL_KINDS == {rule for rule, *_ in cases} - OF_ALL_KINDS
    assert {rule for rule, *_ in CALLBACKS} >= OF_ALL_KINDS


def test_the_message_comes_before_the_log_and_the_traceback_of_the_cause(capfd):
    message = broken(check_callback, CallbackConformance, "trains", hooks(trigger=lambda self: 1 / 0))
    first, *_, last = message.splitlines()
    assert first == (
        "Plugin breaks the rule 'trains' of callbacks: A training with the callback finishes, or stops cleanly."
    )
    assert "  read: tpk.Callback.\n" in message and "Traceback (most recent call last):" in message
    assert last == "in callback 'Plugin', hook 'trigger_epoch'"
    assert "training failed" not in capfd.readouterr().err


def test_a_check_leaves_the_log_as_it_was(caplog):
    check_callback(lambda: Lambda(1), skip=set(CallbackConformance.rules()) - {"trains"})
    assert not caplog.records
    logging.getLogger("tpk").warning("a message")
    assert [record.message for record in caplog.records] == ["a message"]


def test_a_rule_that_there_is_not_cannot_be_left_out():
    with pytest.raises(tpk.ConfigError, match=r"skip=\['resume'\]: expected a list of rules of callbacks: .*resumes"):
        check_callback(Counter, skip=["resume"])
    with pytest.raises(tpk.ConfigError, match="skip='resumes'"):
        check_callback(Counter, skip="resumes")


class Gauge(tpk.Callback):
    """Reports what it finds in its process, as a measurement does: the same in each training from the beginning."""

    def __init__(self):
        self._epochs_here = 0

    def trigger_epoch(self, trainer):
        self._epochs_here += 1
        trainer.monitors.put_scalar("gauge", self._epochs_here)


def test_what_a_callback_measures_is_not_compared():
    assert "['gauge']['values']" in broken(check_callback, CallbackConformance, "resumes", Gauge)
    assert "resumes" in check_callback(Gauge, measures=["gauge"])


@pytest.mark.parametrize("measures", [["guage"], "gauge"])
def test_what_is_measured_is_something_that_is_reported(measures):
    with pytest.raises(tpk.ConfigError, match=r"measures=.*expected a list of scalars .*: gauge, cost, error"):
        check_callback(Gauge, measures=measures, skip=["resumes"])


def test_an_optimizer_that_there_is_not_is_an_error():
    with pytest.raises(tpk.ConfigError, match=r"optimizers=\['rmsprop'\]: expected some of sgd, momentum, adam"):
        check_strategy(Single, optimizers=["rmsprop"])
