"""Companions of runs: what is computed along with the runs of a step, of the tensors that belong to each."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError, TowerError, TpkError
from tpk.graph.steps import FetchDependencies

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

NamedTensors = list[tuple[str, Any]]
"""Pairs of what to call a tensor in messages, and the tensor."""

MakeOp = Callable[[NamedTensors, Sequence[Any], Sequence[Any]], Any]


@attrs.frozen(eq=False)
class RunTensor:
    """A tensor that is looked at along with the runs to which it belongs.

    Attributes:
        name: what to call it in messages.
        tensor: the tensor.
        belongs_to: it belongs to runs that need one of these ops.
    """

    name: str
    tensor: Any
    belongs_to: list[Any] = attrs.field()

    @belongs_to.default
    def _itself(self) -> list[Any]:
        return [self.tensor.op]


class RunCompanions:
    """For each op that is run in steps an op that runs along, made of the tensors that belong to that run.

    So nothing is computed or taken from the data for that op alone: not the cost of an objective whose turn it is not,
    nor that of a tower that is trained by a thread of its own. A tensor that no run needs belongs to those that take
    the data on which it depends.

    Args:
        trainer: a trainer whose train ops are there.
        wanted: what is to be looked at.
        make_op: given some of the tensors, the ops that are run, and the input ops that these need, returns the op that
            runs along, or None.

    Attributes:
        left_out: what belongs to no run.
    """

    def __init__(self, trainer: TrainerProtocol, wanted: Sequence[RunTensor], make_op: MakeOp) -> None:
        inputs = [tensor.op for tower in trainer.towers.training() for tensor in tower.inputs]
        runs = [[getattr(op, "op", op) for op in tf.nest.flatten(train_op)] for train_op in trainer.train_ops]
        self.left_out: list[RunTensor] = []
        self._run_of = [number for number, run in enumerate(runs) for _ in run]
        if not runs:
            self._ops = [make_op([(each.name, each.tensor) for each in wanted], [], inputs)]
            return
        members = _members(wanted, runs, inputs)
        self.left_out = [each for each in wanted if not any(each in chosen for chosen in members)]
        input_dependencies = FetchDependencies(inputs)
        self._ops = [
            make_op(
                [(each.name, each.tensor) for each in chosen],
                run,
                [inputs[position] for position in input_dependencies.among(run)],
            )
            for run, chosen in zip(runs, members, strict=True)
        ]
        self._dependencies = FetchDependencies([op for run in runs for op in run])

    def request_for(self, fetches: Any) -> Any:
        """Return what runs along when `fetches` are run, as an op or a list of them; None if there is none."""
        if not self._run_of:
            return self._ops[0]
        numbers = {self._run_of[position] for position in self._dependencies.among(fetches)}
        ops = [self._ops[number] for number in sorted(numbers) if self._ops[number] is not None]
        return ops[0] if len(ops) == 1 else ops or None


def _members(
    wanted: Sequence[RunTensor], runs: Sequence[Sequence[Any]], inputs: Sequence[Any]
) -> list[list[RunTensor]]:
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


def find_tensor(trainer: TrainerProtocol, name: str) -> Any:
    """Return the tensor of a name in the main training tower, if there is one, or else in the graph.

    So a callback that was given the name of a tensor works with every strategy: inside a tower a tensor has the same
    name wherever the tower is.

    Args:
        trainer: whose graph it is in.
        name: as it is inside the tower, with or without ``:0``.

    Raises:
        TowerError: if there is none in either; the message has the nearest names.
        ConfigError: likewise, where there is no tower.

    Example:
        ```python
        class Accuracies(tpk.Callback):
            def setup_graph(self, trainer):
                self.accuracy = tpk.find_tensor(trainer, "accuracy")

            def before_run(self, run_context):
                return self.accuracy
        ```
    """
    return find_in_each_tower(trainer, name)[0]


def find_in_each_tower(trainer: TrainerProtocol, name: str) -> list[Any]:
    """Return the tensors of a name in all training towers, the main one first, or else the one in the graph.

    Args:
        trainer: whose graph they are in.
        name: see `find_tensor`.

    Raises:
        TowerError, ConfigError: see `find_tensor`.
    """
    missing: TpkError | None = None
    training = trainer.towers.training()
    if training:
        try:
            return [tower.get_tensor(name) for tower in training]
        except TowerError as error:
            missing = error
        except ValueError:  # TensorFlow's own, of what can be no name.
            missing = TowerError(f"there is no tensor {name!r}: that can be no name of one.")
    try:
        return [trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")]
    except (KeyError, ValueError):
        raise missing or ConfigError(f"the graph has no tensor {name!r}. {_nearest(trainer, name)}") from None


def _nearest(trainer: TrainerProtocol, name: str) -> str:
    names = [op.name for op in trainer.graph.get_operations() if op.outputs]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"Nearest: {', '.join(near)}." if near else "Give it a name with tf.identity(…, name=…)."
