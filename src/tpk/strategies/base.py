"""What a strategy is: how one step is replicated over devices and processes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tpk.tower.context import PredictTowerContext
from tpk.tower.tower_func import TowerFunc

if TYPE_CHECKING:
    from tpk.input_source import InputSource
    from tpk.plugin.callback import Callback


class Strategy(abc.ABC):
    """How one step is replicated over devices and processes.

    A trainer asks a strategy, in this order: `prepare_input`, `build`, `callbacks`, and, when it is about to create
    the session, `session_config`. Third parties ship theirs by the entry-point group ``tpk.strategies``.
    """

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
        """Return the input source that delivers the data of `source` to the devices and processes."""
        return source

    @abc.abstractmethod
    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: Callable[[], Sequence[Any]],
        get_optimizer: Callable[[], Any],
    ) -> Any:
        """Build the training towers in the default graph.

        Args:
            tower_func: returns the cost of a tower, a scalar.
            get_inputs: each call returns the input tensors of one more tower.
            get_optimizer: returns a `tf.compat.v1.train.Optimizer`; called once.

        Returns:
            The op that makes one step of all towers.
        """

    def callbacks(self) -> list[Callback]:
        """Return the callbacks that the strategy needs."""
        return []

    def predict_context(self, ns_name: str) -> PredictTowerContext:
        """Return the context in which an inference tower with this name scope is built."""
        return PredictTowerContext(ns_name=ns_name)
