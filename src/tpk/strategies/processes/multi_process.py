"""Base of strategies of several processes, where each device of each process holds a whole replicate of the model."""

from __future__ import annotations

import abc
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.checkpoint.variables import assign_by_name
from tpk.graph.devices import Devices
from tpk.graph.variables import saveable_variables, variable_name
from tpk.input_source.base import InputSource
from tpk.strategies.replicated import DEFAULT_PACK_BYTES, ReplicatedStrategy

logger = logging.getLogger(__name__)


class MultiProcessStrategy(ReplicatedStrategy):
    """Base of the strategies that reduce gradients over processes, after those of the devices of each process.

    A subclass says who it is (`rank`, `world_size`, `process_group`), joins the others (`join`, `leave`), and adds two
    collective operations to the graph.

    Args:
        devices: the devices of this process: a count, indices, or device strings; see `resolve_devices`.
        mode: how gradients are reduced within the process; see `ReplicatedStrategy`.
        pack_bytes: gradients smaller than that travel together within the process.
        sync_variables: as for `ReplicatedStrategy`, over the devices of this process; then those of the chief.
        shard_data: whether each process takes its share of the data; otherwise all of what it is given.
        average: whether the gradients of all towers of all processes are averaged, else summed up.
    """

    def __init__(
        self,
        devices: Devices = None,
        mode: str | None = "auto",
        pack_bytes: int = DEFAULT_PACK_BYTES,
        sync_variables: str | None = "broadcast",
        shard_data: bool = True,
        average: bool = True,
    ) -> None:
        super().__init__(devices, mode, pack_bytes, sync_variables, average)
        self._shard_data = shard_data
        self._broadcast: Any = None
        self._broadcast_untrained: Any = None
        self._sess: Any = None

    def describe(self) -> dict[str, Any]:
        """Return how gradients become one, and whether the data is divided."""
        return {**super().describe(), "shard_data": self._shard_data}

    @abc.abstractmethod
    def reduce_over_processes(self, tensors: Sequence[Any]) -> list[Any]:
        """Add to the graph what gives the means of these gradients over all processes, the same bits in each.

        They are sums in place of means if `average` is false.

        Args:
            tensors: tensors or `tf.IndexedSlices`, on the first device of the process; the same number, dtypes and
                shapes (but for the number of slices) in each process.

        Returns:
            Their means or sums, in the same order; those of `tf.IndexedSlices` are `tf.IndexedSlices`.
        """

    @abc.abstractmethod
    def sum_over_processes(self, tensor: Any) -> Any:
        """Add to the graph the sum of a tensor over all processes, the same bits in each, whatever `average` is.

        It is a part of the model, such as what synchronized batch normalization adds up: values are not compressed.

        Args:
            tensor: of ``float32`` or ``float64``, and of the same shape in each process.
        """

    @abc.abstractmethod
    def broadcast_from_chief(self, variables: Sequence[Any]) -> Any:
        """Return an op that gives the variables of all processes the values that they have in the chief.

        Args:
            variables: variables of any dtype (strings are never among them), the same ones in each process.
        """

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return `source`, which delivers only the share of this process if that is wanted."""
        if self._shard_data and self.world_size > 1:
            source.shard(self.rank, self.world_size)
        return super().prepare_input(source)

    def reduce_further(self, reduced: list[list[Any]]) -> list[list[Any]]:
        """Return the means or sums over all processes, given those over the devices of this one."""
        if self.world_size == 1:
            return reduced
        with tf.device(self.devices[0]), tf.name_scope("over_processes"):
            of_all = self.reduce_over_processes(reduced[0])
        return [[_copy_to(device, tensor) for tensor in of_all] for device in self.devices]

    def complete_graph(self) -> None:
        """Add the ops that make all replicates alike, once all variables are there."""
        super().complete_graph()
        if self.world_size > 1:
            with tf.name_scope("broadcast"):
                self._broadcast = self.broadcast_from_chief(saveable_variables(tf.compat.v1.get_default_graph()))
            untrained = [variable for variable in self.main_variables if not variable.trainable]
            if untrained:
                with tf.name_scope("broadcast_untrained"):
                    self._broadcast_untrained = self.broadcast_from_chief(untrained)

    def state_dict(self) -> dict[str, Any]:
        """Return what this process has accumulated of an update; what the chief has is among the variables.

        It is nothing where an update has just been made, so a checkpoint of such a moment is smaller.
        """
        accumulating = [optimizers for optimizers in self._accumulating if not self.is_chief]
        if self._sess is None or not accumulating:
            return {}
        counts = self._sess.run([optimizers[0].counters for optimizers in accumulating])
        if not any(map(any, counts)):
            return {}
        variables = [variable for own in accumulating for each in own for variable in each.accumulated]
        values = self._sess.run(variables)
        return {"accumulated": dict(zip(map(variable_name, variables), values, strict=True))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with what this process has accumulated.

        Raises:
            CheckpointError: if a shape does not fit.
        """
        variables = [variable for own in self._accumulating for each in own for variable in each.accumulated]
        assign_by_name(self._sess, state["accumulated"], variables)

    def synchronize_processes(self, sess: Any) -> None:
        """Give the first towers of all processes the chief's non-trainable variables.

        Otherwise, processes that share an evaluation would each evaluate another model, and none the one that is saved.
        """
        if self._broadcast_untrained is not None:
            sess.run(self._broadcast_untrained)

    def after_restore(self, sess: Any) -> None:
        """Give the variables of all processes the chief's values, and those of all devices the first one's."""
        self._sess = sess
        if self._broadcast is not None:
            sess.run(self._broadcast)
        super().after_restore(sess)


def _copy_to(device: str, tensor: Any) -> Any:
    with tf.device(device):
        if isinstance(tensor, tf.IndexedSlices):
            shape = None if tensor.dense_shape is None else tf.identity(tensor.dense_shape)
            return tf.IndexedSlices(tf.identity(tensor.values), tf.identity(tensor.indices), shape)
        return tf.identity(tensor)
