"""Trainings of a tiny model, by which plugins are checked, and what is compared of them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.callbacks.savers import ModelSaver
from tpk.callbacks.triggers import Every
from tpk.checkpoint.encoding import encode
from tpk.checkpoint.files import Checkpoint, newest_complete
from tpk.input_source.feed import FeedInput
from tpk.plugin import Callback, hookimpl
from tpk.plugin.environment import VARIABLES
from tpk.session.creator import default_session_config
from tpk.testing.rules import Broken
from tpk.train.model_desc import ModelDesc
from tpk.train.tower_trainer import SingleCostTrainer
from tpk.train.trainer import Trainer

GraphKeys = tf.compat.v1.GraphKeys

STEPS, EPOCHS = 4, 3
"""How many steps an epoch of a training has, and how many epochs."""

KILLED_AFTER = 7
"""The step after which a checkpoint is taken, and in the next one the training is killed; within an epoch."""

BATCH = 4

WEIGHTS = {"w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)}
"""What trainings begin with that are compared, whatever their graphs: other variables begin as zeros."""

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": tf.compat.v1.train.GradientDescentOptimizer,
    "momentum": lambda rate: tf.compat.v1.train.MomentumOptimizer(rate, 0.9),
    "adam": tf.compat.v1.train.AdamOptimizer,
}


class TinyModel(ModelDesc):
    """What plugins are checked with: a classifier with three inputs, some of whose gradients are sparse.

    Inputs are ``x`` (float32, ``[None, 3]``), ``row`` and ``label`` (int32, ``[None]``). Tensors are ``cost``,
    ``logits``, ``incorrect_vector`` and, of before the step, ``weights_before``; variables ``w``, ``table``,
    ``learning_rate`` and ``steps_seen``, which an update op counts up.

    Args:
        optimizer: one of `OPTIMIZERS`.
    """

    def __init__(self, optimizer: str = "momentum") -> None:
        self._optimizer = optimizer

    def inputs(self) -> list[Any]:
        """Return the three."""
        vector = [tf.TensorSpec([None], tf.int32, name) for name in ("row", "label")]
        return [tf.TensorSpec([None, 3], tf.float32, "x"), *vector]

    def build_graph(self, x: Any, row: Any, label: Any) -> Any:
        """Return the cost."""
        zeros = tf.compat.v1.zeros_initializer()
        w = tf.compat.v1.get_variable("w", [3, 2], initializer=tf.compat.v1.glorot_uniform_initializer())
        table = tf.compat.v1.get_variable("table", [5, 2], initializer=zeros)
        seen = tf.compat.v1.get_variable("steps_seen", [], initializer=zeros, trainable=False)
        tf.compat.v1.add_to_collection(GraphKeys.UPDATE_OPS, tf.compat.v1.assign_add(seen, 1.0))
        tf.identity(w, name="weights_before")
        logits = tf.add(x @ w, tf.gather(table, row), name="logits")
        best = tf.argmax(logits, 1, output_type=tf.int32)
        tf.cast(tf.not_equal(best, label), tf.float32, name="incorrect_vector")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        cost = tf.reduce_mean(losses, name="cost")
        tf.compat.v1.summary.scalar("cost_of_step", cost)
        return cost

    def optimizer(self) -> Any:
        """Return one whose learning rate is a variable."""
        rate = tf.compat.v1.get_variable("learning_rate", initializer=0.05, trainable=False)
        return OPTIMIZERS[self._optimizer](rate)


def batches(count: int) -> list[list[np.ndarray]]:
    """Return datapoints for `TinyModel`; the first ones are always the same."""
    rng = np.random.default_rng(0)
    return [
        [rng.normal(size=(BATCH, 3)).astype(np.float32), *rng.integers(0, 2, (2, BATCH)).astype(np.int32)]
        for _ in range(count)
    ]


def concatenated(data: Sequence[Sequence[np.ndarray]], count: int) -> list[list[np.ndarray]]:
    """Return datapoints, each so many of those of `data` one after the other."""
    groups = [data[start : start + count] for start in range(0, len(data), count)]
    return [[np.concatenate(component) for component in zip(*group, strict=True)] for group in groups]


class Reporting(Callback):
    """Reports the scalars ``cost`` and ``error`` at the end of each epoch, which are the same in each training."""

    def trigger_epoch(self, trainer: Any) -> None:
        """Report both."""
        for name, start in (("cost", 2.0), ("error", 0.75)):
            self.trainer.monitors.put_scalar(name, start / (1 + self.global_step))


@attrs.define
class Outcome:
    """What a training has left.

    Attributes:
        trainer: what has trained.
        values: the values of all variables at the end, by their names.
        trained: the names of those that are trained.
        checkpoint: the last one, if there is a directory.
    """

    trainer: Trainer
    values: dict[str, np.ndarray]
    trained: list[str]
    checkpoint: Checkpoint | None

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the last checkpoint says of the training, by the path of each piece of data in it."""
        return {} if self.checkpoint is None else flat(self.checkpoint.state)


class Failure(Exception):
    """What `Failing` raises."""


class Failing(Callback):
    """Lets the first step fail."""

    def trigger_step(self, trainer: Any) -> None:
        """Raise the error."""
        raise Failure("this step fails")


class _Values(Callback):
    """Reads the variables at the end."""

    chief_only = False
    values: dict[str, np.ndarray]
    trained: Sequence[str] = ()

    @hookimpl(trylast=True)
    def after_train(self, trainer: Any) -> None:
        variables = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
        self.values = dict(zip([variable.name for variable in variables], trainer.sess.run(variables), strict=True))
        self.trained = [variable.name for variable in tf.compat.v1.trainable_variables()]


class _Killed(Callback):
    """Copies the directory of the run in the step after a checkpoint: what is there when the process is killed then."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy

    @hookimpl(trylast=True)
    def trigger_step(self, trainer: Any) -> None:
        if trainer.global_step > KILLED_AFTER and not self._copy.exists():
            checkpoint = trainer.checkpoints.newest()
            if checkpoint is not None:
                shutil.copytree(trainer.run_dir, self._copy)


def train(
    trainer: Trainer | Callable[[], Trainer],
    callbacks: Sequence[Any] = (),
    monitors: Sequence[Any] = (),
    run_dir: Path | None = None,
    resume: str = "never",
    copy: Path | None = None,
    steps: int = STEPS,
    epochs: int = EPOCHS,
    **options: Any,
) -> Outcome:
    """Train, in a graph with a seed, in an environment without ``TPK_`` variables.

    Args:
        trainer: makes a trainer that is set up, in the graph.
        callbacks: further ones, besides those that save and compare.
        monitors: the monitors.
        run_dir: where, with checkpoints; None for nowhere.
        resume: as for `Trainer.train`.
        copy: where to copy `run_dir`, as if the training had been killed then.
        steps: how many an epoch has.
        epochs: how many there are.
        options: further ones of `Trainer.train`.
    """
    if "session_creator" not in options:
        options["session_config"] = session_config()
    values = _Values()
    saver = [] if run_dir is None else [ModelSaver(max_to_keep=None, when=Every(steps=KILLED_AFTER))]
    killed = [] if copy is None else [_Killed(copy)]
    with same_randomness(), tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        made = trainer() if callable(trainer) else trainer
        made.train(
            callbacks=[*callbacks, *saver, *killed, values],
            monitors=monitors,
            run_dir=run_dir,
            resume=resume,
            steps_per_epoch=steps,
            max_epoch=epochs,
            **options,
        )
    checkpoint = None if run_dir is None else newest_complete(run_dir)
    return Outcome(made, values.values, list(values.trained), checkpoint)


def session_config() -> Any:
    """Return a config of sessions that runs graphs as they are: to optimize tiny ones takes longer than to run them."""
    config = default_session_config()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config


def set_up(
    strategy: Any = "single",
    data: Sequence[Any] | None = None,
    model: ModelDesc | None = None,
    source: Callable[[Any], Any] = FeedInput,
    **options: Any,
) -> SingleCostTrainer:
    """Return a trainer of `TinyModel`, or of another model, that is set up."""
    model = model or TinyModel()
    trainer = SingleCostTrainer(strategy, **options)
    data = batches(STEPS * EPOCHS) if data is None else data
    trainer.setup_graph(model.get_input_signature(), source(data), model.build_graph, model.get_optimizer)
    return trainer


@contextmanager
def same_randomness() -> Iterator[None]:
    """Within the context, the global random numbers are the same each time, and ``TPK_`` variables are not set.

    ``TPK_TRACE`` stays.
    """
    states = random.getstate(), np.random.get_state()
    hidden = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ and name != "TPK_TRACE"}
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        os.environ.update(hidden)


@contextmanager
def traced() -> Iterator[None]:
    """Within the context, new trainers trace their hooks."""
    before = os.environ.get("TPK_TRACE")
    os.environ["TPK_TRACE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TPK_TRACE"]
        else:
            os.environ["TPK_TRACE"] = before


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return each piece of data within mappings and lists, by its path."""
    if isinstance(value, Mapping):
        parts = [flat(item, f"{path}[{key!r}]") for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [flat(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return {path: value}
    return {key: item for part in parts for key, item in part.items()}


def difference(expected: Mapping[str, Any], found: Mapping[str, Any], but: Mapping[str, Any] | None = None) -> str:
    """Return in what two sets of named values differ, bit for bit; an empty string if they do not.

    Args:
        expected: what was expected.
        found: what was found.
        but: a second run of what was expected; what differs there depends on the time, say, and is not compared.
    """
    names = [name for name in {**expected, **found} if but is None or _same(expected, but, name)]
    wrong = [name for name in names if not _same(expected, found, name)]
    if not wrong:
        return ""
    shown = [f"{name} is {_shown(found, name)} rather than {_shown(expected, name)}" for name in wrong[:3]]
    return "; ".join([*shown, *([f"and {len(wrong) - 3} more"] if len(wrong) > 3 else [])])


def check_same(
    what: str, expected: Mapping[str, Any], found: Mapping[str, Any], but: Mapping[str, Any] | None = None
) -> None:
    """See to it that two sets of named values are the same, as `difference` compares them.

    Raises:
        Broken: if they are not.
    """
    problem = difference(expected, found, but)
    if problem:
        raise Broken(what, problem)


def check_plain(what: str, value: Any) -> None:
    """See to it that a checkpoint can hold `value`.

    Raises:
        CheckpointError: if it cannot.
    """
    encode(value, what)


_MISSING = object()


def _same(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    first, second = one.get(name, _MISSING), other.get(name, _MISSING)
    if first is _MISSING or second is _MISSING:
        return first is second
    if isinstance(first, np.ndarray | np.generic) and isinstance(second, np.ndarray | np.generic):
        return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    return type(first) is type(second) and repr(first) == repr(second)


def _shown(values: Mapping[str, Any], name: str) -> str:
    text = "missing" if name not in values else " ".join(repr(values[name]).split())
    return text if len(text) <= 100 else f"{text[:100]}…"
