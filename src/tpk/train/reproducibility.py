"""The seed of a training, and its determinism."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk.graph.determinism import check_updates_are_ordered, deterministic_ops
from tpk.train.epoch import as_count


def set_random_seed(seed: int) -> None:
    """Seed Python's `random`, NumPy and the current default graph, before the graph is built.

    For scripts that build the graph of a trainer themselves. The `seed` of `TrainConfig` and `Trainer.train` also seeds
    the data.

    Args:
        seed: a whole number, at least 0.

    Raises:
        ConfigError: if it is not.

    Example:
        ```python
        trainer = tpk.Trainer()
        with trainer.graph.as_default():
            tpk.set_random_seed(0)
            ...  # Build the graph.
        trainer.train(seed=0, steps_per_epoch=100, max_epoch=2)
        ```
    """
    seed = as_count(f"set_random_seed({seed!r})", seed, 0)
    tf.compat.v1.set_random_seed(seed)
    _seed_generators(seed)


@contextmanager
def reproducible(
    trainer: tpk.Trainer, seed: int | None, deterministic: bool, *, is_built: bool = True
) -> Iterator[None]:
    """Seed a training. Within the context, TensorFlow's ops are deterministic if `deterministic` is set.

    The graph, the global generators of Python and NumPy, and the input source (if there is one already) are seeded.

    Args:
        trainer: the trainer, which has met the other processes.
        seed: the seed; None to leave everything as it is.
        deterministic: whether ops must be deterministic.
        is_built: whether the graph is already built, and must have been given the seed before.

    Raises:
        ConfigError: if the graph was built without the seed.
    """
    if deterministic and seed is None:
        raise ConfigError("deterministic=True needs a seed: without one, no two runs are the same.")
    if seed is not None:
        as_count(f"train(seed={seed!r})", seed, 0)
        if is_built and trainer.graph.seed != seed and trainer.graph.get_operations():
            raise ConfigError(
                f"seed={seed} comes too late for the ops that are already in the graph. Before you build the graph, "
                f"call tpk.set_random_seed({seed}) under `with trainer.graph.as_default():`."
            )
        with trainer.graph.as_default():
            tf.compat.v1.set_random_seed(seed)
        if trainer.input_source is not None:
            trainer.input_source.seed(seed)
        # Data code draws different numbers in each process. In the first one, they are the same as in a single process.
        _seed_generators(seed + trainer.strategy.process_group.rank)
    with deterministic_ops() if deterministic else nullcontext():
        yield


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)


def check_determinism(trainer: tpk.Trainer) -> None:
    """Check that the towers of a training wait for each other, and that its updates are ordered.

    Raises:
        ConfigError: if they do not.
    """
    if not trainer.strategy.is_reproducible:
        raise ConfigError(
            f"{type(trainer.strategy).__name__} cannot be deterministic: its towers do not wait for each other. Use "
            "'replicated' or 'parameter_server', or leave deterministic=True out."
        )
    check_updates_are_ordered(trainer.train_ops)
