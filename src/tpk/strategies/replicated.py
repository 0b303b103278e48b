"""Replicas of the whole model, one on each device: gradients are all-reduced, and each replica applies them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_one_of
from tpk.graph.determinism import sum_in_order
from tpk.graph.devices import Devices, resolve_devices
from tpk.graph.gradients import Gradients, check_optimizer
from tpk.graph.objective import Objective
from tpk.graph.optimizers.accumulation import apply_in_towers, is_accumulating
from tpk.graph.optimizers.proxy_optimizer import copies_of_optimizers
from tpk.graph.variables import make_local, record_variables
from tpk.plugin.creation import also_spelled
from tpk.strategies.all_reduce import all_reduce, choose_mode
from tpk.strategies.base import DEVICE_SPELLINGS, GPU_PREFETCH, USE_NCCL, GetInputs, Strategy
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

logger = logging.getLogger(__name__)

POST_INIT_OPS_KEY = "TPK_POST_INIT_OPS"
"""The collection of the ops that `get_post_init_ops` returns."""

DEFAULT_PACK_BYTES = 64 * 1024

SYNCHRONIZATIONS = ("broadcast", "mean", None)


def get_post_init_ops() -> list[Any]:
    """Return the ops of the default graph that copy the main tower's variables to the other towers.

    Strategies run them after the variables were initialized or restored.
    """
    return list(tf.compat.v1.get_collection(POST_INIT_OPS_KEY))


@also_spelled(DEVICE_SPELLINGS, use_nccl=USE_NCCL, gpu_prefetch=GPU_PREFETCH)
class ReplicatedStrategy(Strategy):
    """A replica of the whole model on each device.

    Each tower takes its own datapoint. All towers have the same weight, so with batches of different sizes, the
    examples of a smaller batch have more weight than they would have in one tower. All towers get the means of the
    gradients, and each applies them to its own variables by a copy of the optimizer, so all replicas stay identical,
    bit by bit. The variables of the first tower have the names that the model gives them, and are saved. The variables
    of the other towers are local variables, which start as copies of the first tower's, also after restoring. The
    optimizer is created once, for the first tower. Its copies share its hyperparameters and the variables it was
    created with, and have separate slots.

    Non-trainable variables, such as the moving averages of batch normalization, are separate in each tower, and differ
    within an epoch; the first tower's are evaluated and saved. At the end of each epoch, before they are evaluated or
    saved, `sync_variables` synchronizes them, except for local variables, such as a metric's:

    - ``"broadcast"``, the default: all towers get the values of the first tower. So the next epoch is bit-identical to
      that of a training resumed from the checkpoint. It costs one run of the session per epoch, and a copy of these
      variables (0.2 MB for ResNet-50) to each device. The saved values depend only on the data of the first tower,
      which is 1/N of all data.
    - ``"mean"``: all towers get the mean, which depends on all data; floating-point variables only. The cost is the
      same. To resume as exactly, checkpoints within an epoch contain these variables of all towers.
    - None: they are not synchronized. The saved values are the same as with ``"broadcast"``, unless a tower reads such
      variables in training; then a resumed training differs.

    If the outermost optimizer is an `AccumGradOptimizer`, each tower accumulates its own gradients, and their means are
    all-reduced once per update. Checkpoints contain the accumulated gradients of all towers.

    The mean of the moving averages does not equal the statistics of the whole batch, which needs synchronized batch
    normalization: ``tpk.layers.batch_normalization(..., sync=True)``.

    Args:
        devices: a count, indices, or device strings; see `resolve_devices`.
        mode: how gradients are all-reduced: ``auto``, ``copy``, ``cpu`` or ``nccl``; see
            `tpk.strategies.all_reduce`.
        pack_bytes: smaller gradients are sent together, in packs of up to this size; with 0, each is sent alone.
        sync_variables: ``"broadcast"``, ``"mean"`` or None; see above.
        average: average the gradients of all towers. With batches of the same size, this equals training one tower on
            their concatenation, with the same learning rate. If False, the gradients are summed, which has the effect
            of multiplying the learning rate by the number of towers.

    Attributes:
        devices: the device of each tower.
        mode: how gradients are all-reduced.
        average: whether gradients are averaged; otherwise they are summed.
        main_variables: the variables that the first tower created, once it is built.

    Raises:
        ConfigError: if the devices do not exist, the mode does not work on them, or `sync_variables` is something else.
    """

    repeats_steps = True

    def __init__(
        self,
        devices: Devices = None,
        mode: str | None = "auto",
        pack_bytes: int = DEFAULT_PACK_BYTES,
        sync_variables: str | None = "broadcast",
        average: bool = True,
    ) -> None:
        check_one_of(self, SYNCHRONIZATIONS, sync_variables=sync_variables)
        self.average = average
        self.devices = resolve_devices(devices)
        self.mode = choose_mode(mode, self.devices)
        self._pack_bytes = pack_bytes
        self._sync_variables = sync_variables
        self._mean_op: Any = None
        self._copy_op: Any = None
        self._averaged: list[Any] = []
        self._accumulating: list[list[Any]] = []
        self._copy_to_replicas: Any = None
        self.main_variables: list[Any] = []

    def describe(self) -> dict[str, Any]:
        """Return the options that affect the result."""
        return {**super().describe(), "average": self.average, "sync_variables": self._sync_variables}

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the towers, the train ops, and the ops that synchronize the replicas."""
        take = in_turn(get_inputs)
        vs_names = ["", *(f"tower{index}" for index in range(1, len(self.devices)))]
        sum_over_processes = self.sum_over_processes if self.world_size > 1 else None
        towers = build_on_multi_tower(
            self.devices, lambda: tower_func(*take()), vs_names, sum_over_processes=sum_over_processes
        )
        self.main_variables = towers[0].created
        main, *others = variables_by_name(towers)
        replicas = [[(main[name], variable) for name, variable in own.items()] for own in others]
        optimizers = self._optimizers(objectives)
        gradients = [
            self._gradients(objective, towers, own) for objective, own in zip(objectives, optimizers, strict=True)
        ]
        state: list[list[Any]] = [[] for _ in towers]

        @contextmanager
        def in_tower(index: int) -> Iterator[None]:
            with tf.device(self.devices[index]), self.optimizer_scope(index), record_variables() as created:
                yield
            state[index].extend(created)

        def reads(position: int, index: int) -> AbstractContextManager[Any]:
            cost = objectives[position].cost_in(towers[index].output)
            return after_reads(towers[index].ops, [cost], gradients[position][index])

        def apply(position: int, name: str) -> Any:
            own = optimizers[position]
            if is_accumulating(own[0]):
                self._accumulating.append(own)
                with ExitStack() as stack:
                    for index, device in enumerate(self.devices):
                        with tf.device(device):
                            stack.enter_context(reads(position, index))
                    updated = apply_in_towers(own, gradients[position], in_tower, self._reduced, name)
                return tf.group(updated, *self.ops_of_first_step(), name=f"{name}/all")
            applied = []
            for index in range(len(towers)):
                with in_tower(index), reads(position, index):
                    applied.append(own[index].apply_gradients(gradients[position][index], name=name))
            return tf.group(*applied, name=f"{name}/all")

        of_objectives = [[pair for pairs in rows for pair in pairs] for rows in gradients]
        ops = apply_in_groups(groups, of_objectives, apply)
        self._synchronize_at_epochs(replicas)
        for pairs, own in zip(replicas, state[1:], strict=True):
            # The names of optimizer state may differ, but its order of creation is the same.
            pairs.extend(zip(state[0], own, strict=True))
        self._localize_replicas(replicas)
        return ops

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Synchronize the non-trainable variables at the end of each epoch, before they are used."""
        self.synchronize(trainer.sess)

    def replicate_variables(self) -> list[Any]:
        """Return the variables of the other towers that affect checkpoints or the next updates.

        These are the accumulated gradients, and the non-trainable variables if the first tower gets their mean. All
        other variables are the same in all towers, or do not affect the saved variables.
        """
        of_others = [optimizer for own in self._accumulating for optimizer in own[1:]]
        return [*self._averaged, *(variable for optimizer in of_others for variable in optimizer.accumulated)]

    def reduce_further(self, reduced: list[list[Any]]) -> list[list[Any]]:
        """Return the gradients that the towers apply; a subclass reduces them further.

        Args:
            reduced: for each tower, the means (or sums, without `average`) over all towers: tensors or
                `tf.IndexedSlices` on its device.
        """
        return reduced

    def sum_over_processes(self, tensor: Any) -> Any:
        """Return the sum of a tensor over all processes; called for sums across towers if there are several."""
        return tensor

    def optimizer_scope(self, index: int) -> AbstractContextManager[Any]:
        """Return the name scope for the variables of a tower's optimizer that are not slots.

        The first tower has none, so the state of its optimizer, which is saved, has the same names as in one tower.
        """
        return tf.name_scope(f"tower{index}/") if index else nullcontext()

    def ops_of_first_step(self) -> list[Any]:
        """Return additional ops of a step that may not reduce gradients; a subclass may have to prepare reductions."""
        return []

    def complete_graph(self) -> None:
        """Group the post-init ops, now that all have been added to the graph."""
        self._copy_to_replicas = tf.group(*get_post_init_ops())

    def after_restore(self, sess: Any) -> None:
        """Copy the first tower's variables to the others."""
        if self._copy_to_replicas is not None:
            sess.run(self._copy_to_replicas)

    def synchronize(self, sess: Any) -> None:
        """Synchronize the non-trainable variables of the towers according to `sync_variables`."""
        if self._mean_op is not None:
            sess.run(self._mean_op)
        self.synchronize_processes(sess)
        if self._copy_op is not None:
            sess.run(self._copy_op)

    def synchronize_processes(self, sess: Any) -> None:
        """Synchronize the non-trainable variables of the first towers of all processes, if there are several."""

    def _optimizers(self, objectives: Sequence[Objective]) -> list[list[Any]]:
        """Return an optimizer for each objective and tower; objectives that share one share it in every tower."""
        main = [check_optimizer(objective.get_optimizer()) for objective in objectives]
        others = [copies_of_optimizers(main) for _ in self.devices[1:]]
        return [list(of_towers) for of_towers in zip(main, *others, strict=True)]

    def _gradients(self, objective: Objective, towers: Sequence[Tower], optimizers: Sequence[Any]) -> list[Gradients]:
        """Return the gradients that each tower applies; its own gradients if its optimizer accumulates them."""
        rows = gradients_of_towers(objective, optimizers, towers)
        check_gradients_alike(towers, rows)
        if is_accumulating(optimizers[0]):
            return rows
        reduced = self._reduced([[gradient for gradient, _ in row] for row in rows])
        return [
            [(gradient, variable) for gradient, (_, variable) in zip(own, row, strict=True)]
            for own, row in zip(reduced, rows, strict=True)
        ]

    def _reduced(self, of_towers: Sequence[Sequence[Any]]) -> list[list[Any]]:
        with tf.name_scope("all_reduce"):
            reduced = all_reduce(of_towers, self.devices, self.mode, self._pack_bytes, self.average)
            return self.reduce_further(reduced)

    def _localize_replicas(self, replicas: Sequence[Sequence[tuple[Any, Any]]]) -> None:
        """Make the variables of the other towers local, and add ops that copy the first tower's variables to them."""
        with tf.name_scope("post_init"):
            for pairs in replicas:
                make_local([copy for _, copy in pairs])
                for source, copy in pairs:
                    op = copy.assign(source.read_value(), read_value=False)
                    tf.compat.v1.add_to_collection(POST_INIT_OPS_KEY, op)

    def _synchronize_at_epochs(self, replicas: Sequence[Sequence[tuple[Any, Any]]]) -> None:
        """Add the ops that synchronize the non-trainable variables of the model.

        Args:
            replicas: for each other tower, pairs of a variable of the first tower and its copy.
        """
        if self._sync_variables is None:
            return
        # Local variables, such as a metric's, are not part of the model.
        of_model = {variable.ref() for variable in tf.compat.v1.global_variables()}
        of_variables: dict[Any, list[Any]] = {}
        for main, copy in (pair for pairs in replicas for pair in pairs):
            if not main.trainable and main.ref() in of_model:
                of_variables.setdefault(main.ref(), [main]).append(copy)
        chosen = list(of_variables.values())
        is_mean = self._sync_variables == "mean"
        if is_mean:
            chosen = [variables for variables in chosen if variables[0].dtype.base_dtype.is_floating]
            self._averaged = [copy for _, *copies in chosen for copy in copies]
        with tf.name_scope("sync_variables"):
            if is_mean and chosen:
                self._mean_op = tf.group(*(op for variables in chosen for op in _assign_mean(variables)))
            # Processes have different means, until all towers of all processes get the chief's.
            if (not is_mean or self.world_size > 1) and chosen:
                self._copy_op = tf.group(*(op for variables in chosen for op in _assign_first(variables)))


def _assign_mean(variables: Sequence[Any]) -> list[Any]:
    """Return the ops that assign variables their mean."""
    mean = sum_in_order([variable.read_value() for variable in variables]) / len(variables)
    with tf.control_dependencies([mean]):
        return [variable.assign(mean, read_value=False) for variable in variables]


def _assign_first(variables: Sequence[Any]) -> list[Any]:
    """Return the ops that assign variables the value of the first one."""
    first, *others = variables
    value = first.read_value()
    return [variable.assign(value, read_value=False) for variable in others]
