"""Trainings of a tiny model, with which plugins are checked."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import numpy as np
import tensorflow as tf

from tpk.callbacks.savers import ModelSaver
from tpk.callbacks.triggers import Every
from tpk.checkpoint.files import Checkpoint, newest_complete
from tpk.input_source.feed import FeedInput
from tpk.plugin import Callback, hookimpl
from tpk.plugin.environment import VARIABLES
from tpk.session.creator import default_session_config
from tpk.testing.comparison import flat
from tpk.train.model_desc import ModelDesc
from tpk.train.tower_trainer import SingleCostTrainer
from tpk.train.trainer import Trainer

GraphKeys = tf.compat.v1.GraphKeys

STEPS, EPOCHS = 4, 3
"""The steps of an epoch, and the epochs of a training."""

KILLED_AFTER = 7
"""The step, within an epoch, after which a checkpoint is saved; the training is killed in the next step."""

BATCH = 4

WEIGHTS = {"w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)}
"""Initial values for trainings that are compared although their graphs differ. Other variables start as zeros."""

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": tf.compat.v1.train.GradientDescentOptimizer,
    "momentum": lambda rate: tf.compat.v1.train.MomentumOptimizer(rate, 0.9),
    "adam": tf.compat.v1.train.AdamOptimizer,
}


class TinyModel(ModelDesc):
    """The model that plugins are checked with: a classifier with dense and sparse gradients.

    Inputs are ``x`` (float32, ``[None, 3]``), ``row`` and ``label`` (int32, ``[None]``). Tensors are ``cost``,
    ``logits``, ``incorrect_vector`` and ``weights_before``, the weights before the update of the step. Variables are
    ``w``, ``table``, ``learning_rate`` and ``steps_seen``, which an update op increments.

    Args:
        optimizer: one of `OPTIMIZERS`.
    """

    def __init__(self, optimizer: str = "momentum") -> None:
        self._optimizer = optimizer

    def inputs(self) -> list[Any]:
        """Return the specs of the inputs."""
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
        """Return the optimizer."""
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
    """Return datapoints that each concatenate `count` consecutive datapoints of `data`."""
    groups = [data[start : start + count] for start in range(0, len(data), count)]
    return [[np.concatenate(component) for component in zip(*group, strict=True)] for group in groups]


class Reporting(Callback):
    """Reports the scalars ``cost`` and ``error`` at the end of each epoch, which are the same in each training."""

    def trigger_epoch(self, trainer: Any) -> None:
        """Report the scalars."""
        for name, start in (("cost", 2.0), ("error", 0.75)):
            self.trainer.monitors.put_scalar(name, start / (1 + self.global_step))


@attrs.define
class Outcome:
    """The result of a training.

    Attributes:
        trainer: the trainer.
        values: the final values of all variables, by name.
        trained: the names of the trainable variables.
        checkpoint: the last checkpoint; None without a run directory.
    """

    trainer: Trainer
    values: dict[str, np.ndarray]
    trained: list[str]
    checkpoint: Checkpoint | None

    @cached_property
    def state(self) -> dict[str, Any]:
        """The training state in the last checkpoint: each value by its path."""
        return {} if self.checkpoint is None else flat(self.checkpoint.state)


class Failure(Exception):
    """The error that `Failing` raises."""


class Failing(Callback):
    """Raises `Failure` in the first step."""

    def trigger_step(self, trainer: Any) -> None:
        """Raise the error."""
        raise Failure("this step fails")


class ReadVariables(Callback):
    """Reads the variables at the end of a training."""

    chief_only = False
    values: dict[str, np.ndarray]
    trained: Sequence[str] = ()

    @hookimpl(trylast=True)
    def after_train(self, trainer: Any) -> None:
        """Read them."""
        variables = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
        self.values = dict(zip([variable.name for variable in variables], trainer.sess.run(variables), strict=True))
        self.trained = [variable.name for variable in tf.compat.v1.trainable_variables()]


class _Killed(Callback):
    """Copies the run directory in the step after a checkpoint, as if the process had been killed then."""

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
    """Train in a graph with a seed, in an environment without ``TPK_`` variables.

    Args:
        trainer: a trainer that is set up, or a function that returns one in the graph.
        callbacks: the callbacks, in addition to those that save and compare.
        monitors: the monitors.
        run_dir: the run directory, for checkpoints too; None for none.
        resume: as in `Trainer.train`.
        copy: where to copy `run_dir` after a checkpoint, as if the training had been killed then.
        steps: the steps of an epoch.
        epochs: the number of epochs.
        options: further arguments of `Trainer.train`.
    """
    if "session_creator" not in options:
        options["session_config"] = session_config()
    reader = ReadVariables()
    saver = [] if run_dir is None else [ModelSaver(max_to_keep=None, when=Every(steps=KILLED_AFTER))]
    killed = [] if copy is None else [_Killed(copy)]
    with same_randomness(), tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        made = trainer() if callable(trainer) else trainer
        made.train(
            callbacks=[*callbacks, *saver, *killed, reader],
            monitors=monitors,
            run_dir=run_dir,
            resume=resume,
            steps_per_epoch=steps,
            max_epoch=epochs,
            **options,
        )
    checkpoint = None if run_dir is None else newest_complete(run_dir)
    return Outcome(made, reader.values, list(reader.trained), checkpoint)


def session_config() -> Any:
    """Return a session config without graph optimization, which takes longer than it saves for tiny graphs."""
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
    """Return a trainer of `TinyModel`, or of another model, with its graph."""
    model = model or TinyModel()
    trainer = SingleCostTrainer(strategy, **options)
    data = batches(STEPS * EPOCHS) if data is None else data
    trainer.setup_graph(model.get_input_signature(), source(data), model.build_graph, model.get_optimizer)
    return trainer


@contextmanager
def same_randomness() -> Iterator[None]:
    """Seed the global random generators, and hide all ``TPK_`` variables but ``TPK_TRACE``, within the context."""
    states = random.getstate(), np.random.get_state()
    with mock.patch.dict(os.environ):
        for name in VARIABLES:
            if name != "TPK_TRACE":
                os.environ.pop(name, None)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
