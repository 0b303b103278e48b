"""Tensors of a training: found by name, and grouped by the runs of a step to which they belong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, TowerError, TpkError
from tpk.graph.fetches import FetchDependencies
from tpk.graph.gradients import gradient_ops_by_cost
from tpk.text import nearest


def find_tensor(trainer: tpk.Trainer, name: str) -> Any:
    """Return a tensor by its name in the main training tower, or else in the graph.

    Inside a tower a tensor has the same name wherever the tower is, so a callback that looks up its tensors like this
    works with every strategy.

    Args:
        trainer: the trainer.
        name: the name inside the tower, with or without ``:0``.

    Raises:
        TowerError: if neither has it; the message shows the nearest names.
        ConfigError: the same, for a trainer without towers.

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


def find_in_each_tower(trainer: tpk.Trainer, name: str) -> list[Any]:
    """Return the tensors of a name in all training towers, the main one first, or else the one in the graph.

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
        except ValueError:  # TensorFlow raises it for an invalid name.
            missing = TowerError(f"there is no tensor {name!r}: the name is invalid.")
    try:
        return [trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")]
    except (KeyError, ValueError):
        names = [op.name for op in trainer.graph.get_operations() if op.outputs]
        hint = nearest(name, names) or " Give it a name with tf.identity(…, name=…)."
        raise missing or ConfigError(f"the graph has no tensor {name!r}.{hint}") from None


NamedTensors = list[tuple[str, Any]]
"""Pairs of the name of a tensor for messages, and the tensor."""

MakeOp = Callable[[NamedTensors, Sequence[Any], Sequence[Any]], Any]


@attrs.frozen(eq=False)
class RunTensor:
    """A tensor, and the runs to which it belongs.

    Attributes:
        name: its name in messages.
        tensor: the tensor.
        belongs_to: ops; the tensor belongs to the runs that need one of them.
    """

    name: str
    tensor: Any
    belongs_to: Sequence[Any]


def run_tensors(graph: Any, named: Iterable[tuple[str, Any]]) -> list[RunTensor]:
    """Return named tensors of `graph`: a cost belongs to the runs that minimize it, others to those that compute them.

    A run that minimizes a cost does not always need the value of the cost.
    """
    of_costs = gradient_ops_by_cost(graph)
    return [RunTensor(name, tensor, of_costs.get(tensor.ref(), [tensor.op])) for name, tensor in named]


class RunCompanions:
    """For each train op, an op that runs along with it and uses the tensors that belong to that run.

    So nothing is computed, and no data is taken, for that op alone: neither for a cost that is not minimized in this
    run, nor for a tower that another thread trains. A tensor that no run needs belongs to the runs that take the data
    on which it depends.

    Args:
        trainer: a trainer that has its train ops.
        wanted: the tensors.
        make_op: takes some of the tensors, the ops of a run, and the input ops that these need; returns the op that
            runs along, or None.

    Attributes:
        left_out: the tensors that belong to no run.
        fetches: the fetches of the last run.
    """

    def __init__(self, trainer: tpk.Trainer, wanted: Sequence[RunTensor], make_op: MakeOp) -> None:
        inputs = [tensor.op for tower in trainer.towers.training() for tensor in tower.inputs]
        runs = [[getattr(op, "op", op) for op in tf.nest.flatten(train_op)] for train_op in trainer.train_ops]
        self.left_out: list[RunTensor] = []
        self.fetches: Any = None
        self._request: Any = None
        self._run_of = [number for number, run in enumerate(runs) for _ in run]
        if not runs:
            self._request = make_op([(each.name, each.tensor) for each in wanted], [], inputs)
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
        """Return the op that runs along with `fetches`, a list of ops, or None."""
        # Most trainings fetch the same object in each step.
        if fetches is not self.fetches:
            self.fetches = fetches
            if self._run_of:
                numbers = {self._run_of[position] for position in self._dependencies.among(fetches)}
                ops = [self._ops[number] for number in sorted(numbers) if self._ops[number] is not None]
                self._request = ops[0] if len(ops) == 1 else ops or None
        return self._request


def _members(
    wanted: Sequence[RunTensor], runs: Sequence[Sequence[Any]], inputs: Sequence[Any]
) -> list[list[RunTensor]]:
    """Return the tensors that belong to each run."""
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
