"""The base of strategies with several processes, with a replica of the whole model on each device of each process."""

from __future__ import annotations

import abc
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.checkpoint.variable_writer import assign_by_name
from tpk.graph.devices import Devices
from tpk.graph.variables import saveable_variables, variable_name
from tpk.input_source.base import InputSource
from tpk.strategies.replicated import DEFAULT_PACK_BYTES, ReplicatedStrategy

logger = logging.getLogger(__name__)


class MultiProcessStrategy(ReplicatedStrategy):
    """The base of strategies that reduce gradients over the devices of each process, and then over processes.

    A subclass implements `rank`, `world_size`, `process_group`, `join` and `leave`, and adds collective operations to
    the graph.

    Args:
        devices: the devices of this process: a count, indices, or device strings; see `resolve_devices`.
        mode: how gradients are reduced within the process; see `ReplicatedStrategy`.
        pack_bytes: smaller gradients are sent together within the process.
        sync_variables: synchronization over the devices of this process, as in `ReplicatedStrategy`; then the chief's
            values are sent to all processes.
        shard_data: let each process take only its share of the data, instead of all data that it is given.
        average: average the gradients of all towers of all processes instead of summing them.
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
        """Return the options that must be the same in all processes."""
        return {**super().describe(), "shard_data": self._shard_data}

    @abc.abstractmethod
    def reduce_over_processes(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the means of gradients over all processes, with the same bits in each; without `average`, the sums.

        Args:
            tensors: tensors or `tf.IndexedSlices`, on the first device of the process. Their number, dtypes and shapes
                are the same in each process, except for the number of slices.

        Returns:
            The means or sums, in the same order. The result for `tf.IndexedSlices` is a `tf.IndexedSlices`.
        """

    @abc.abstractmethod
    def sum_over_processes(self, tensor: Any) -> Any:
        """Return the sum of a tensor over all processes, with the same bits in each, also if `average` is True.

        It is a part of the model, such as a sum of synchronized batch normalization, so values are not compressed.

        Args:
            tensor: a ``float32`` or ``float64`` tensor, of the same shape in each process.
        """

    @abc.abstractmethod
    def broadcast_from_chief(self, variables: Sequence[Any]) -> Any:
        """Return an op that copies the chief's variables to all processes.

        Args:
            variables: variables of any dtype except strings; the same variables in each process.
        """

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return `source`; with `shard_data`, it delivers only the share of this process."""
        if self._shard_data and self.world_size > 1:
            source.shard(self.rank, self.world_size)
        return super().prepare_input(source)

    def reduce_further(self, reduced: list[list[Any]]) -> list[list[Any]]:
        """Return the means or sums over all processes."""
        if self.world_size == 1:
            return reduced
        with tf.device(self.devices[0]), tf.name_scope("over_processes"):
            of_all = self.reduce_over_processes(reduced[0])
        return [[_copy_to(device, tensor) for tensor in of_all] for device in self.devices]

    def complete_graph(self) -> None:
        """Add the ops that synchronize all replicas, now that all variables exist."""
        super().complete_graph()
        if self.world_size > 1:
            with tf.name_scope("broadcast"):
                self._broadcast = self.broadcast_from_chief(saveable_variables(tf.compat.v1.get_default_graph()))
            untrained = [variable for variable in self.main_variables if not variable.trainable]
            if untrained:
                with tf.name_scope("broadcast_untrained"):
                    self._broadcast_untrained = self.broadcast_from_chief(untrained)

    def state_dict(self) -> dict[str, Any]:
        """Return the gradients that this process has accumulated; the chief's are saved as variables.

        It is empty directly after an update, so checkpoints at that time are smaller.
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
        """Restore the gradients that this process has accumulated.

        Raises:
            CheckpointError: if a shape does not fit.
        """
        variables = [variable for own in self._accumulating for each in own for variable in each.accumulated]
        assign_by_name(self._sess, state["accumulated"], variables)

    def synchronize_processes(self, sess: Any) -> None:
        """Copy the chief's non-trainable variables to the first towers of all processes.

        Otherwise, processes that share an evaluation would evaluate different models.
        """
        if self._broadcast_untrained is not None:
            sess.run(self._broadcast_untrained)

    def after_restore(self, sess: Any) -> None:
        """Copy the chief's variables to all processes, and the first tower's to all devices."""
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
