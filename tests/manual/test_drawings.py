"""The drawings of a launch, of the loop and of a step show what a training calls, in that order."""

from __future__ import annotations

import inspect
import re
from contextlib import contextmanager, nullcontext

import drawings
import numpy as np
import tensorflow as tf

import tpk
from tpk.plugin.callback import HOOK_ARGUMENTS
from tpk.train.loop import TrainLoop
from tpk.train.run.record import RunRecord

TIMES = 2
"""How many epochs there are, and steps in each."""

WHEN_ASKED = {"describe", "replicate_variables", "predict_context"}
"""Methods of a strategy that tell something, and have no moment of their own."""

NOT_DRAWN = {"tpk_add_hookspecs", "translate_error", "recover"}
"""Hooks that are called when a plugin is registered, or when something goes wrong."""

HOOKS = [name for name in HOOK_ARGUMENTS if name not in NOT_DRAWN]


class Record:
    """What was called, as a tree: a name each, and for a phase a pair of its name and what it called in turn."""

    def __init__(self):
        self.calls = self.inner = []
        self._begun = set()

    @contextmanager
    def phase(self, name):
        self._begun.add(name)
        outer, self.inner = self.inner, []
        outer.append((name, self.inner))
        yield
        self.inner = outer

    def call(self, function):
        """Return a method that does what the function does, and is recorded."""

        def recorded(owner, *args, **kwargs):
            self.inner.append(function.__name__)
            return function(owner, *args, **kwargs)

        return recorded

    def phase_of(self, function):
        """The same for a phase; one that is called once more, as `resolve_plugins` is, finds its work done."""

        def recorded(owner, *args, **kwargs):
            name = function.__name__
            with nullcontext() if name in self._begun else self.phase(name):
                return function(owner, *args, **kwargs)

        return recorded


def plugin_of(record):
    """Return a plugin that implements every hook that is drawn."""

    def implementation(name):
        return tpk.hookimpl(lambda self: record.inner.append(name))

    return type("Recorder", (), {name: implementation(name) for name in HOOKS})()


def strategy_of(record):
    """Return a strategy of which every method is recorded, but for its hooks."""
    methods = {
        name: record.call(getattr(tpk.SingleStrategy, name))
        for name, function in vars(tpk.Strategy).items()
        if inspect.isfunction(function) and not name.startswith("_") and name not in WHEN_ASKED
    }
    return type("RecordedStrategy", (tpk.SingleStrategy,), methods)()


def trainer_of(record):
    """Return a class of trainers whose phases are recorded."""

    def __init__(self):
        record.inner.append("make_trainer")
        tpk.SingleCostTrainer.__init__(self, strategy=strategy_of(record))
        self.hooks.register(plugin_of(record))

    phases = {name: record.phase_of(getattr(tpk.SingleCostTrainer, name)) for name in drawings.phases(drawings.LAUNCH)}
    return type("RecordedTrainer", (tpk.SingleCostTrainer,), {**phases, "__init__": __init__})


class Mean(tpk.ModelDesc):
    def __init__(self, record):
        self.record = record

    def inputs(self):
        return [tf.TensorSpec([None], tf.float32, "x")]

    def build_graph(self, x):
        w = tf.compat.v1.get_variable("w", initializer=0.0)
        run = tf.numpy_function(lambda: self.record.inner.append("Session.run"), [], [])
        with tf.control_dependencies([run]):
            return tf.reduce_mean((x - w) ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def test_a_launch_calls_what_is_drawn_in_that_order(tmp_path):
    record = Record()
    data = [[np.ones(4, np.float32)]] * TIMES
    config = tpk.TrainConfig(
        model=Mean(record), dataflow=data, callbacks=["ModelSaver"], max_epoch=TIMES, run_dir=tmp_path / "run"
    )
    tpk.launch_train_with_config(config, trainer_of(record))
    assert record.calls == drawings.calls(drawings.LAUNCH, TIMES)


def test_the_three_classes_have_the_methods_that_are_drawn():
    classes = {"Trainer": tpk.Trainer, "RunRecord": RunRecord, "TrainLoop": TrainLoop}
    boxes = [drawings.CLASSES, *(part for part in drawings.CLASSES.parts if isinstance(part, drawings.Box))]
    assert [box.name for box in boxes] == list(classes)
    calls = [(classes[box.name], part.name) for box in boxes for part in box.parts if isinstance(part, drawings.Call)]
    assert [name for owner, name in calls if name not in vars(owner)] == []


def test_every_hook_is_drawn():
    drawn = str(drawings.calls(drawings.LAUNCH, 1))
    assert [name for name in HOOKS if f"'{name}'" not in drawn] == []


def test_every_phase_that_the_base_of_trainers_names_is_drawn():
    named = re.findall(r"^- `+(\w+)`+(?:,[^:]*)?:", inspect.getdoc(tpk.Trainer), re.MULTILINE)
    assert len(named) == 5 and set(named) <= set(drawings.phases(drawings.LAUNCH))


def test_the_drawing_of_a_step_is_a_part_of_that_of_the_loop():
    assert str(drawings.calls(drawings.STEP, 1))[1:-1] in str(drawings.calls(drawings.LOOP, 1))
