"""What a strategy is: how one step is replicated over devices and processes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.graph.objective import Objective
from tpk.tower.context import PredictTowerContext
from tpk.tower.tower_func import TowerFunc

if TYPE_CHECKING:
    from tpk.input_source import InputSource
    from tpk.plugin.callback import Callback

GetInputs = Callable[[], Sequence[Any]]


class Strategy(abc.ABC):
    """How one step is replicated over devices and processes.

    A trainer asks a strategy, in this order: `prepare_input`, `build`, `callbacks`, and, when it is about to create
    the session, `session_config`. Checkpoints hold what `replicate_variables` returns besides the global variables, and
    `after_restore` follows whenever these have got their values from one. Third parties ship theirs by the entry-point
    group ``tpk.strategies``.
    """

    is_reproducible: bool = True
    """Whether two runs with one seed train alike, as far as it depends on the strategy."""

    @property
    def num_replicas(self) -> int:
        """How many towers this process trains."""
        return 1

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return 1

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes: checkpoints, statistics, events."""
        return True

    def session_config(self, config: Any) -> Any:
        """Return the `tf.compat.v1.ConfigProto` of the session, given the one that it would have had."""
        return config

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return the input source that delivers the data of `source` to the devices and processes.

        A strategy with towers on several devices tells a `StagingInput` of them by its `place_on`.
        """
        return source

    @abc.abstractmethod
    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the training towers in the default graph.

        Args:
            tower_func: builds a tower, and returns its cost, or a dict of costs.
            get_inputs: each call returns the input tensors of one more tower.
            objectives: what is minimized.
            groups: for each op that is wanted, which objectives it minimizes by one step. All gradients of a group
                are computed before any of them is applied.

        Returns:
            For each group the op that makes one step of all towers.
        """

    def callbacks(self) -> list[Callback]:
        """Return the callbacks that the strategy needs; called after `build`."""
        return []

    def replicate_variables(self) -> list[Any]:
        """Return the variables in which replicates may differ from the first one, so that a checkpoint must hold them.

        Called once the graph is complete.
        """
        return []

    def after_restore(self, sess: Any) -> None:  # noqa: B027 - nothing to do where variables are shared
        """Make the replicates agree, once the variables of the first one have been initialized or restored.

        Args:
            sess: the raw session.
        """

    def predict_context(self, ns_name: str) -> PredictTowerContext:
        """Return the context in which an inference tower with this name scope is built."""
        return PredictTowerContext(ns_name=ns_name)


def apply_in_groups(
    groups: Sequence[Sequence[int]],
    gradients: Sequence[Sequence[Any]],
    apply: Callable[[int, str], Any],
) -> list[Any]:
    """Return one op for each group, which applies the gradients of its objectives once all of them are computed.

    Args:
        groups: the objectives of each op, by their positions.
        gradients: the gradient tensors of each objective.
        apply: given the position of an objective and the name of the op, returns the op that applies its gradients.
    """
    ops = []
    for number, group in enumerate(groups):
        name = "train_op" if number == 0 else f"train_op_{number}"
        if len(group) == 1:
            ops.append(apply(group[0], name))
        else:
            with tf.control_dependencies([tensor for position in group for tensor in gradients[position]]):
                applied = [apply(position, f"{name}_{position}") for position in group]
            ops.append(tf.group(*applied, name=name))
    return ops
