"""Replicates of the whole model, one on each device: gradients are all-reduced, and each replicate applies them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.graph.determinism import sum_in_order
from tpk.graph.devices import Devices, add_cpu_devices, resolve_devices
from tpk.graph.gradients import Gradients, check_optimizer
from tpk.graph.objective import Objective
from tpk.graph.variables import make_local, record_variables
from tpk.input_source.base import InputSource
from tpk.input_source.staging import StagingInput
from tpk.strategies.all_reduce import all_reduce_mean, choose_mode
from tpk.strategies.base import GetInputs, Strategy
from tpk.strategies.towers import (
    Tower,
    build_on_multi_tower,
    check_gradients_alike,
    gradients_of_towers,
    in_turn,
    variables_by_name,
)
from tpk.strategies.update_order import after_reads, apply_in_groups
from tpk.tower.tower_func import TowerFunc

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

POST_INIT_OPS_KEY = "TPK_POST_INIT_OPS"

DEFAULT_PACK_BYTES = 64 * 1024


def get_post_init_ops() -> list[Any]:
    """Return the ops of the default graph that copy the main tower's variables to the other towers.

    They run once the variables have their initial or restored values; strategies see to that by a callback.
    """
    return list(tf.compat.v1.get_collection(POST_INIT_OPS_KEY))


class ReplicatedStrategy(Strategy):
    """A whole replicate of the model on each device.

    Every tower takes its own datapoint. The means of their gradients go to all towers, and each applies them to its
    own variables by an optimizer of its own; so all replicates stay identical, bit by bit. The variables of the first
    tower are called what the user calls them, and are saved; those of the others are local variables, which start
    as copies of the first tower's, also after restoring.

    Non-trainable variables, such as the moving averages of batch normalization, are each tower's own; those of the
    first tower are saved. With `sync_variables` all towers get their mean at the end of each epoch.

    Args:
        devices: a count, indices, or device strings; see `resolve_devices`.
        mode: how gradients are all-reduced: ``auto``, ``copy``, ``ring``, ``hierarchical`` or ``nccl``.
        pack_bytes: gradients smaller than that travel together, in packs up to that size; 0 for each alone.
        sync_variables: whether floating-point non-trainable variables are averaged at the end of each epoch.

    Attributes:
        devices: the device of each tower.
        mode: how gradients are all-reduced.
        main_variables: the variables that the first tower has created, once it is built.

    Raises:
        ConfigError: if the devices do not exist, or the mode cannot work on them.
    """

    def __init__(
        self,
        devices: Devices = None,
        mode: str = "auto",
        pack_bytes: int = DEFAULT_PACK_BYTES,
        sync_variables: bool = False,
    ) -> None:
        self.devices = resolve_devices(devices)
        self.mode = choose_mode(mode, self.devices)
        self._pack_bytes = pack_bytes
        self._sync_variables = sync_variables
        self._sync_op: Any = None
        self._make_alike: Any = None
        self._replicates: list[list[tuple[Any, Any]]] = []
        self.main_variables: list[Any] = []

    @property
    def num_replicas(self) -> int:
        """The number of devices."""
        return len(self.devices)

    def session_config(self, config: Any) -> Any:
        """Return `config` with as many logical CPU devices as are needed."""
        return add_cpu_devices(config, self.devices)

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return `source`; one that stages its datapoints does so on the devices of the towers."""
        if isinstance(source, StagingInput):
            source.place_on(self.devices)
        return source

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the towers and the train ops, and the ops that make the replicates alike."""
        take = in_turn(get_inputs)
        vs_names = ["", *(f"tower{index}" for index in range(1, len(self.devices)))]
        towers = build_on_multi_tower(self.devices, lambda: tower_func(*take()), vs_names)
        self.main_variables = towers[0].created
        main, *others = variables_by_name(towers)
        replicates = [[(main[name], variable) for name, variable in own.items()] for own in others]
        optimizers = [self._optimizers(objective) for objective in objectives]
        gradients = [
            self._mean_gradients(objective, towers, own) for objective, own in zip(objectives, optimizers, strict=True)
        ]
        state: list[list[Any]] = [[] for _ in towers]

        def apply(position: int, name: str) -> Any:
            applied = []
            for index, (device, tower) in enumerate(zip(self.devices, towers, strict=True)):
                # So the state of the first tower's optimizers, which is saved, has the names that it would have alone.
                scope = tf.name_scope(f"tower{index}/") if index else nullcontext()
                cost, pairs = objectives[position].cost_in(tower.output), gradients[position][index]
                with tf.device(device), scope, record_variables() as created, after_reads(tower.ops, [cost], pairs):
                    applied.append(optimizers[position][index].apply_gradients(pairs, name=name))
                state[index].extend(created)
            return tf.group(*applied, name=f"{name}/all")

        of_objectives = [[pair for pairs in rows for pair in pairs] for rows in gradients]
        ops = apply_in_groups(groups, of_objectives, apply)
        for pairs, own in zip(replicates, state[1:], strict=True):
            # Optimizers name their state as they like, but create it in one order.
            pairs.extend(zip(state[0], own, strict=True))
        self._make_replicates(replicates)
        return ops

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Synchronize the non-trainable variables at the end of each epoch, before anybody uses them."""
        self.synchronize(trainer.sess)

    def replicate_variables(self) -> list[Any]:
        """Return the other towers' non-trainable variables, if they become part of the mean which the first one gets.

        All else is either the same in all towers, or of no consequence for what is saved.
        """
        if self._sync_op is None:
            return []
        return [copy for pairs in self._replicates for source, copy in pairs if _is_averaged(source)]

    def reduce_means(self, means: list[list[Any]]) -> list[list[Any]]:
        """Return what the towers apply, given for each tower the means over all of them; a subclass takes it further.

        Args:
            means: tensors or `tf.IndexedSlices`, on the device of each tower.
        """
        return means

    def complete_graph(self) -> None:
        """Make one op of the post-init ops that the graph has by now."""
        self._make_alike = tf.group(*get_post_init_ops())

    def after_restore(self, sess: Any) -> None:
        """Copy the first tower's variables to the others."""
        if self._make_alike is not None:
            sess.run(self._make_alike)

    def synchronize(self, sess: Any) -> None:
        """Average the non-trainable variables of the towers, if that was asked for."""
        if self._sync_op is not None:
            sess.run(self._sync_op)

    def _optimizers(self, objective: Objective) -> list[Any]:
        """An optimizer for each tower; those of the others share the variables of the first, such as its rate."""
        optimizers = [check_optimizer(objective.get_optimizer())]
        for _ in self.devices[1:]:
            with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
                optimizers.append(check_optimizer(objective.get_optimizer()))
        return optimizers

    def _mean_gradients(
        self, objective: Objective, towers: Sequence[Tower], optimizers: Sequence[Any]
    ) -> list[Gradients]:
        rows = gradients_of_towers(objective, optimizers, towers)
        check_gradients_alike(towers, rows)
        with tf.name_scope("all_reduce"):
            means = all_reduce_mean(
                [[gradient for gradient, _ in row] for row in rows], self.devices, self.mode, self._pack_bytes
            )
            means = self.reduce_means(means)
        return [
            [(mean, variable) for mean, (_, variable) in zip(own, row, strict=True)]
            for own, row in zip(means, rows, strict=True)
        ]

    def _make_replicates(self, replicates: Sequence[Sequence[tuple[Any, Any]]]) -> None:
        """Make the variables of all but the first tower local ones, and the ops that copy the first tower's to them."""
        with tf.name_scope("post_init"):
            for pairs in replicates:
                make_local([copy for _, copy in pairs])
                for source, copy in pairs:
                    op = copy.assign(source.read_value(), read_value=False)
                    tf.compat.v1.add_to_collection(POST_INIT_OPS_KEY, op)
        self._replicates = [list(pairs) for pairs in replicates]
        if self._sync_variables:
            self._sync_op = _average(replicates)


def _average(replicates: Sequence[Sequence[tuple[Any, Any]]]) -> Any:
    """The op that gives every non-trainable floating-point variable the mean over the towers."""
    assigns = []
    with tf.name_scope("sync_variables"):
        for of_one in zip(*replicates, strict=True):
            variables = [of_one[0][0], *(copy for _, copy in of_one)]
            if _is_averaged(variables[0]):
                mean = sum_in_order([variable.read_value() for variable in variables]) / len(variables)
                with tf.control_dependencies([mean]):
                    assigns += [variable.assign(mean, read_value=False) for variable in variables]
        return tf.group(*assigns)


def _is_averaged(variable: Any) -> bool:
    return not variable.trainable and variable.dtype.base_dtype.is_floating
