"""The seed of a training, and its determinism."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.determinism import check_updates_are_ordered, deterministic_ops
from tpk.train.epoch import as_count

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


@contextmanager
def reproducible(
    trainer: TrainerProtocol, seed: int | None, deterministic: bool, *, is_built: bool = True
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
                f"call tf.compat.v1.set_random_seed({seed}) under `with trainer.graph.as_default():`."
            )
        with trainer.graph.as_default():
            tf.compat.v1.set_random_seed(seed)
        if trainer.input_source is not None:
            trainer.input_source.seed(seed)
        # Data code draws different numbers in each process. In the first one, they are the same as in a single process.
        own = seed + trainer.strategy.process_group.rank
        random.seed(own)
        np.random.seed(own % 2**32)
    with deterministic_ops() if deterministic else nullcontext():
        yield


def check_determinism(trainer: TrainerProtocol) -> None:
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
