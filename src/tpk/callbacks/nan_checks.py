"""Which tensors a guard against bad numbers checks, and along with what."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.gradients import COSTS_KEY, recorded_gradients
from tpk.input_source.reach import Reach

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer

logger = logging.getLogger(__name__)

NamedTensors = list[tuple[str, Any]]
"""Pairs of what to call a tensor in messages, and the tensor."""

MakeCheck = Callable[[NamedTensors, Sequence[Any], Sequence[Any]], Any]


class StepChecks:
    """For each op that is run in steps a check of those tensors that the op needs anyway.

    So nothing is computed for a check alone: not the cost of an objective whose turn it is not, nor that of a tower
    that is trained by a thread of its own.

    Args:
        trainer: a trainer whose train ops are there.
        named: what is to be checked.
        make_check: given some of the tensors, the ops that are run, and the input ops that these need, returns the op
            that checks, or None.

    Raises:
        ConfigError: if no step needs any of the tensors.
    """

    def __init__(self, trainer: Trainer, named: NamedTensors, make_check: MakeCheck) -> None:
        towers = getattr(trainer, "towers", ())
        inputs = [tensor.op for tower in towers if tower.is_training for tensor in tower.inputs]
        runs = [[getattr(op, "op", op) for op in tf.nest.flatten(train_op)] for train_op in trainer.train_ops]
        self._checks: list[Any] = []
        if not runs:
            self._run_of: list[int] = []
            self._checks = [make_check(named, [], inputs)]
            return
        reach, input_reach = Reach([tensor.op for _, tensor in named]), Reach(inputs)
        checked: set[int] = set()
        for run in runs:
            positions = reach.reached(run)
            checked.update(positions)
            needed_inputs = [inputs[position] for position in input_reach.reached(run)]
            self._checks.append(make_check([named[position] for position in positions], run, needed_inputs))
        _tell_what_is_left_out([name for position, (name, _) in enumerate(named) if position not in checked], named)
        self._run_of = [number for number, run in enumerate(runs) for _ in run]
        self._reach = Reach([op for run in runs for op in run])

    def request_for(self, fetches: Any) -> Any:
        """Return the checks of what running `fetches` runs, as an op or a list of them; None if there is none."""
        if not self._run_of:
            return self._checks[0]
        # One by one: a list may be a new one in each step, but the ops in it are the same.
        parts = [part for part in tf.nest.flatten(fetches, expand_composites=True) if part is not None]
        numbers = {self._run_of[position] for part in parts for position in self._reach.reached(part)}
        checks = [self._checks[number] for number in sorted(numbers) if self._checks[number] is not None]
        return checks[0] if len(checks) == 1 else checks or None


def find_tensors(trainer: Trainer, wanted: Sequence[Any]) -> NamedTensors:
    """Return what the option `tensors` of a `NanGuard` stands for, in every tower.

    Raises:
        ConfigError: if there is no such thing, or it is no tensor of floating-point numbers.
        TowerError: if the towers have no tensor of a name.
    """
    named: NamedTensors = []
    for each in wanted:
        if isinstance(each, tf.Tensor):
            named.append((each.name, each))
        elif each == "cost":
            named += _find_costs(trainer)
        elif each == "gradients":
            named += _find_gradients(trainer)
        elif isinstance(each, str):
            named += [(tensor.name, tensor) for tensor in _find_by_name(trainer, each)]
        else:
            raise ConfigError(f"NanGuard(tensors=...): expected names or tensors, got {each!r}.")
    for name, tensor in named:
        if not tensor.dtype.is_floating:
            raise ConfigError(f"NanGuard: {name} is {tensor.dtype.name}, which is always finite. Leave it out.")
    return named


def _find_costs(trainer: Trainer) -> NamedTensors:
    costs = {cost.name: cost for cost in trainer.graph.get_collection(COSTS_KEY)}
    if not costs:
        raise ConfigError(
            f"NanGuard does not know the cost of a {type(trainer).__name__}. Give it, or its name: "
            "NanGuard(tensors=cost)."
        )
    return list(costs.items())


def _find_gradients(trainer: Trainer) -> NamedTensors:
    gradients = recorded_gradients(trainer.graph)
    if not gradients:
        raise ConfigError(
            f"NanGuard does not know the gradients of a {type(trainer).__name__}. Give them: "
            "NanGuard(tensors=gradients), or compute them by tpk.graph.gradients.compute_gradients."
        )
    return [(f"the gradient of {variable} ({gradient.name})", gradient) for variable, gradient in gradients]


def _find_by_name(trainer: Trainer, name: str) -> list[Any]:
    towers = getattr(trainer, "towers", None)
    if towers is not None:
        return [tower.get_tensor(name) for tower in towers.training()]
    try:
        return [trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")]
    except KeyError:
        raise ConfigError(f"NanGuard: the graph has no tensor {name!r}.") from None


def _tell_what_is_left_out(names: Sequence[str], named: NamedTensors) -> None:
    if not names:
        return
    if len(names) == len(named):
        raise ConfigError(
            f"NanGuard: no step needs {', '.join(names)} for its update, so nothing could be checked along with it. "
            "Name something on which the cost depends."
        )
    logger.info("NanGuard: not needed for the update of a step, so not checked: %s", ", ".join(names))
