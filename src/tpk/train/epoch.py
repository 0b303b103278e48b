"""The epochs of a training: the number of steps, and their share of the data."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import tpk
from tpk.dataflow.base import flow_length
from tpk.errors import ConfigError
from tpk.plugin.run_settings import FOREVER
from tpk.text import format_count

_TIMES = " \u00d7 "


def steps_of_one_pass(trainer: tpk.Trainer) -> int:
    """Return the number of steps in one pass over the data, if each tower of each process takes a datapoint per step.

    Datapoints that are too few for another step are used in the next epoch. All processes have the same number of
    steps: the process with the least data determines it.

    Raises:
        ConfigError: if the length of the data is unknown.
    """
    source = trainer.input_source
    sizes = trainer.strategy.process_group.gather_object(
        "the length of the data, for steps_per_epoch=None", source and source.size
    )
    if not all(sizes):
        data = f"the data ({type(source).__name__}) does not know its length" if source else "the trainer has no data"
        raise ConfigError(f"{data}, so the length of an epoch is unknown. Give steps_per_epoch.")
    return max(int(min(sizes)) // trainer.strategy.num_replicas, 1)


def describe_epoch(trainer: tpk.Trainer) -> str:
    """Return a description of an epoch: its steps, towers and batches, its share of the data, and the devices."""
    strategy, source = trainer.strategy, trainer.input_source
    steps = trainer.loop.steps_per_epoch
    factors = ["any number of steps" if steps == FOREVER else format_count(steps, "step")]
    if strategy.num_replicas > 1:
        factors.append(f"{strategy.num_replicas} towers")
    if strategy.world_size > 1:
        factors.append(f"{strategy.world_size} processes")
    data = ""
    if source is not None:
        batch, datapoints = batch_of(source)
        if batch:
            factors.append(f"batch {batch}")
        data = _describe_passes(trainer, source.size, datapoints)
        dropped = source.left_out if data else 0
        if dropped:
            data += f", of which each pass drops the last {dropped} (BatchData(..., remainder=True) keeps them)"
    where = ""
    if strategy.builds_towers:
        where = type(strategy).__name__ + (f" on {', '.join(strategy.devices)}" if strategy.devices else "")
    return f"an epoch is {_TIMES.join(factors)}{data}{where and f' ({where})'}"


def _describe_passes(trainer: tpk.Trainer, size: int | None, datapoints: int | None) -> str:
    if not size or trainer.loop.steps_per_epoch in (0, FOREVER):
        return ""
    taken, world_size = trainer.loop.steps_per_epoch * trainer.strategy.num_replicas, trainer.strategy.world_size
    # Datapoints that are too few for a last step of all towers may be left.
    is_one = taken <= size < taken + trainer.strategy.num_replicas
    passes = "one pass" if is_one else f"{taken / size:.3g} passes"
    about = "" if world_size == 1 else "about "
    return f": {passes} over {about}{format_count((datapoints or size) * world_size, 'datapoint')}"


def as_count(what: str, value: Any, minimum: int) -> int:
    """Return a number of steps or epochs as an `int`. It may be a whole number of any type, including floats.

    Raises:
        ConfigError: if it is not a whole number, or less than `minimum`; the message begins with `what`.
    """
    try:
        is_whole_float = not isinstance(value, bool) and float(value).is_integer()
        count = int(value) if is_whole_float and isinstance(value, float | np.floating) else operator.index(value)
    except (TypeError, ValueError, OverflowError):
        count = -1
    if count < minimum or isinstance(value, bool):
        raise ConfigError(f"{what}: expected a whole number, at least {minimum}.")
    return count


def batch_of(source: tpk.InputSource) -> tuple[int | None, int | None]:
    """Return the batch size of the data and the number of datapoints that are batched; None for what is unknown."""
    stage: Any = source
    while stage is not None:
        inner = next((getattr(stage, name) for name in ("source", "flow") if hasattr(stage, name)), None)
        batch_size = getattr(stage, "batch_size", None)
        if isinstance(batch_size, int):
            return batch_size, None if inner is None else flow_length(inner)
        stage = inner
    return None, None
