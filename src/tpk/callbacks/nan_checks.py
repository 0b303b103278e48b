"""Checks of a guard against bad numbers: the tensors, and the runs along with which they are checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.fetches import FetchDependencies
from tpk.graph.gradients import recorded_gradients

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

NamedTensors = list[tuple[str, Any]]
"""Pairs of what to call a tensor in messages, and the tensor."""

MakeCheck = Callable[[NamedTensors, Sequence[Any], Sequence[Any]], Any]


@attrs.frozen(eq=False)
class Checked:
    """A tensor that is to be checked.

    Attributes:
        name: what to call it in messages.
        tensor: the tensor.
        belongs_to: it is checked in runs that need one of these ops.
    """

    name: str
    tensor: Any
    belongs_to: list[Any] = attrs.field()

    @belongs_to.default
    def _itself(self) -> list[Any]:
        return [self.tensor.op]


class StepChecks:
    """For each op that is run in steps a check of the tensors that belong to that run.

    So nothing is computed or taken from the data for a check alone: not the cost of an objective whose turn it is not,
    nor that of a tower that is trained by a thread of its own. A tensor that no run needs is checked in those that take
    the data on which it depends.

    Args:
        trainer: a trainer whose train ops are there.
        wanted: what is to be checked.
        make_check: given some of the tensors, the ops that are run, and the input ops that these need, returns the op
            that checks, or None.

    Raises:
        ConfigError: if nothing could be checked in any run.
    """

    def __init__(self, trainer: TrainerProtocol, wanted: Sequence[Checked], make_check: MakeCheck) -> None:
        towers = getattr(trainer, "towers", ())
        inputs = [tensor.op for tower in towers if tower.is_training for tensor in tower.inputs]
        runs = [[getattr(op, "op", op) for op in tf.nest.flatten(train_op)] for train_op in trainer.train_ops]
        self._run_of = [number for number, run in enumerate(runs) for _ in run]
        if not runs:
            self._checks = [make_check([(each.name, each.tensor) for each in wanted], [], inputs)]
            return
        members = _members(wanted, runs, inputs)
        _tell_what_is_left_out(wanted, members)
        input_dependencies = FetchDependencies(inputs)
        self._checks = [
            make_check(
                [(each.name, each.tensor) for each in chosen],
                run,
                [inputs[position] for position in input_dependencies.among(run)],
            )
            for run, chosen in zip(runs, members, strict=True)
        ]
        self._dependencies = FetchDependencies([op for run in runs for op in run])

    def request_for(self, fetches: Any) -> Any:
        """Return the checks of what running `fetches` runs, as an op or a list of them; None if there is none."""
        if not self._run_of:
            return self._checks[0]
        numbers = {self._run_of[position] for position in self._dependencies.among(fetches)}
        checks = [self._checks[number] for number in sorted(numbers) if self._checks[number] is not None]
        return checks[0] if len(checks) == 1 else checks or None


def find_tensors(trainer: TrainerProtocol, wanted: Sequence[Any]) -> list[Checked]:
    """Return what the option `tensors` of a `NanGuard` stands for, in every tower.

    Raises:
        ConfigError: if there is no such thing, or it is no tensor of floating-point numbers.
        TowerError: if the towers have no tensor of a name.
    """
    found: list[Checked] = []
    for each in wanted:
        if isinstance(each, tf.Tensor):
            found.append(Checked(each.name, each))
        elif each == "cost":
            found += _find_costs(trainer)
        elif each == "gradients":
            found += _find_gradients(trainer)
        elif isinstance(each, str):
            found += [Checked(tensor.name, tensor) for tensor in _find_by_name(trainer, each)]
        else:
            raise ConfigError(f"NanGuard(tensors=...): expected names or tensors, got {each!r}.")
    for checked in found:
        if not checked.tensor.dtype.is_floating:
            raise ConfigError(
                f"NanGuard: {checked.name} is {checked.tensor.dtype.name}, which is always finite. Leave it out."
            )
    return found


def _find_costs(trainer: TrainerProtocol) -> list[Checked]:
    costs: dict[str, Checked] = {}
    for record in recorded_gradients(trainer.graph):
        checked = costs.setdefault(record.cost.name, Checked(record.cost.name, record.cost, []))
        # The gradients may not need the value of the cost itself.
        checked.belongs_to.append(record.gradient.op)
    if not costs:
        raise ConfigError(
            f"NanGuard does not know the cost of a {type(trainer).__name__}. Give it, or its name: "
            "NanGuard(tensors=cost)."
        )
    return list(costs.values())


def _find_gradients(trainer: TrainerProtocol) -> list[Checked]:
    records = recorded_gradients(trainer.graph)
    if not records:
        raise ConfigError(
            f"NanGuard does not know the gradients of a {type(trainer).__name__}. Give them: "
            "NanGuard(tensors=gradients), or compute them by tpk.graph.gradients.compute_gradients."
        )
    return [
        Checked(f"the gradient of {record.variable} ({record.gradient.name})", record.gradient) for record in records
    ]


def _find_by_name(trainer: TrainerProtocol, name: str) -> list[Any]:
    towers = getattr(trainer, "towers", None)
    if towers is not None:
        return [tower.get_tensor(name) for tower in towers.training()]
    try:
        return [trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")]
    except KeyError:
        raise ConfigError(f"NanGuard: the graph has no tensor {name!r}.") from None


def _members(wanted: Sequence[Checked], runs: Sequence[Sequence[Any]], inputs: Sequence[Any]) -> list[list[Checked]]:
    """Return for each run what belongs to it."""
    owners = [each for each in wanted for _ in each.belongs_to]
    input_dependencies = FetchDependencies(inputs)
    dependencies = FetchDependencies([op for each in wanted for op in each.belongs_to])
    members = [{owners[position] for position in dependencies.among(run)} for run in runs]
    for each in set(wanted).difference(*members):
        sources = set(input_dependencies.among(each.tensor))
        for run, chosen in zip(runs, members, strict=True):
            if sources <= set(input_dependencies.among(run)):
                chosen.add(each)
    return [[each for each in wanted if each in chosen] for chosen in members]


def _tell_what_is_left_out(wanted: Sequence[Checked], members: Sequence[Sequence[Checked]]) -> None:
    checked = set().union(*members)
    left_out = [each.name for each in wanted if each not in checked]
    if left_out and len(left_out) == len(wanted):
        raise ConfigError(
            f"NanGuard: no step takes the data on which {', '.join(left_out)} depend, so they cannot be checked along "
            "with one. Name something on which the cost depends."
        )
    if left_out:
        logger.info("NanGuard: not computed in the runs of the steps, so not checked: %s", ", ".join(left_out))
