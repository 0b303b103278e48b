"""What a guard against bad numbers checks: costs, gradients, and tensors by their names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.callbacks.run_companions import RunTensor
from tpk.callbacks.tensor_names import find_in_each_tower
from tpk.errors import ConfigError
from tpk.graph.gradients import recorded_gradients

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


def tensors_to_check(trainer: TrainerProtocol, wanted: Sequence[Any]) -> list[RunTensor]:
    """Return what the option `tensors` of a `NanGuard` stands for, in every tower.

    Raises:
        ConfigError: if there is no such thing, or it is no tensor of floating-point numbers.
        TowerError, ConfigError: if there is no tensor of a name, see `tpk.find_tensor`.
    """
    found: list[RunTensor] = []
    for each in wanted:
        if isinstance(each, tf.Tensor):
            found.append(RunTensor(each.name, each))
        elif each == "cost":
            found += _find_costs(trainer)
        elif each == "gradients":
            found += _find_gradients(trainer)
        elif isinstance(each, str):
            found += [RunTensor(tensor.name, tensor) for tensor in find_in_each_tower(trainer, each)]
        else:
            raise ConfigError(f"NanGuard(tensors=...): expected names or tensors, got {each!r}.")
    for checked in found:
        if not checked.tensor.dtype.is_floating:
            raise ConfigError(
                f"NanGuard: {checked.name} is {checked.tensor.dtype.name}, which is always finite. Leave it out."
            )
    return found


def _find_costs(trainer: TrainerProtocol) -> list[RunTensor]:
    costs: dict[str, RunTensor] = {}
    for record in recorded_gradients(trainer.graph):
        checked = costs.setdefault(record.cost.name, RunTensor(record.cost.name, record.cost, []))
        # The gradients may not need the value of the cost itself.
        checked.belongs_to.append(record.gradient.op)
    if not costs:
        raise ConfigError(
            f"NanGuard does not know the cost of a {type(trainer).__name__}. Give it, or its name: "
            "NanGuard(tensors=cost)."
        )
    return list(costs.values())


def _find_gradients(trainer: TrainerProtocol) -> list[RunTensor]:
    records = recorded_gradients(trainer.graph)
    if not records:
        raise ConfigError(
            f"NanGuard does not know the gradients of a {type(trainer).__name__}. Give them: "
            "NanGuard(tensors=gradients), or compute them by tpk.graph.gradients.compute_gradients."
        )
    return [
        RunTensor(f"the gradient of {record.variable} ({record.gradient.name})", record.gradient) for record in records
    ]


def tell_what_is_left_out(wanted: Sequence[RunTensor], left_out: Sequence[RunTensor]) -> None:
    """Log what cannot be checked along with a step.

    Raises:
        ConfigError: if that is everything.
    """
    names = ", ".join(each.name for each in left_out)
    if left_out and len(left_out) == len(wanted):
        raise ConfigError(
            f"NanGuard: no step takes the data on which {names} depend, so they cannot be checked along "
            "with one. Name something on which the cost depends."
        )
    if left_out:
        logger.info("NanGuard: not computed in the runs of the steps, so not checked: %s", names)
