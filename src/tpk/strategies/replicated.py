"""Replicates of the whole model, one on each device: gradients are all-reduced, and each replicate applies them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.checks import check_one_of
from tpk.graph.determinism import sum_in_order
from tpk.graph.devices import Devices, resolve_devices
from tpk.graph.gradients import Gradients, check_optimizer
from tpk.graph.objective import Objective
from tpk.graph.optimizers.accumulation import apply_in_towers, is_accumulating
from tpk.graph.optimizers.proxy import copies_of_optimizers
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

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

POST_INIT_OPS_KEY = "TPK_POST_INIT_OPS"

DEFAULT_PACK_BYTES = 64 * 1024

SYNCHRONIZATIONS = ("broadcast", "mean", None)


def get_post_init_ops() -> list[Any]:
    """Return the ops of the default graph that copy the main tower's variables to the other towers.

    They run once the variables have their initial or restored values; strategies see to that by a callback.
    """
    return list(tf.compat.v1.get_collection(POST_INIT_OPS_KEY))


@also_spelled(DEVICE_SPELLINGS, use_nccl=USE_NCCL, gpu_prefetch=GPU_PREFETCH)
class ReplicatedStrategy(Strategy):
    """A whole replicate of the model on each device.

    Every tower takes its own datapoint, and counts the same: with batches of different sizes, the examples of a smaller
    batch have more weight than they would have in one tower. The means of the gradients go to all towers, and each
    applies them to its own variables by a copy of the optimizer; so all replicates stay identical, bit by bit. The
    variables of the first tower are called what the user calls them, and are saved; those of the others are local
    variables, which start as copies of the first tower's, also after restoring. The optimizer is made once, for the
    first tower. Those of the others share its hyperparameters and whatever variables it was made with, and have slots
    of their own.

    Non-trainable variables, such as the moving averages of batch normalization, are each tower's own, and drift apart
    within an epoch; those of the first tower are evaluated and saved. `sync_variables` makes them agree (but for local
    variables, such as those of metrics) at the end of each epoch, before anything is evaluated or saved:

    - ``"broadcast"``, the default: all get the values of the first tower. So the epoch after goes on from where a
      training would that is resumed from the checkpoint at its end, to the bit. It costs one run of the session an
      epoch, and a copy of these variables (of ResNet-50, 0.2 MB) to each device. What is saved has seen the data of the
      first tower only, which is one N-th of it.
    - ``"mean"``: all get the mean, which has seen all data; floating-point variables only. It costs as much, and
      checkpoints within an epoch hold these variables of all towers, to be as exact.
    - None: they are left alone. What is saved is the same as with ``"broadcast"`` unless a tower reads such variables
      when it trains; then a resumed training differs.

    Where an `AccumGradOptimizer` is the outermost optimizer, each tower accumulates its own gradients, and their means
    are all-reduced once per update. Checkpoints hold what each of them has accumulated.

    Means of the averages are not yet the statistics of the whole batch: these need synchronized batch normalization,
    ``tpk.layers.batch_normalization(..., sync=True)``.

    Args:
        devices: a count, indices, or device strings; see `resolve_devices`.
        mode: how gradients are all-reduced: ``auto``, ``copy``, ``cpu`` or ``nccl``; see
            `tpk.strategies.all_reduce`.
        pack_bytes: gradients smaller than that travel together, in packs up to that size; 0 for each alone.
        sync_variables: ``"broadcast"``, ``"mean"`` or None; see above.
        average: whether the gradients of all towers are averaged, so that the learning rate is that of one tower on the
            concatenation of equally large batches; else they are summed up, as if that were multiplied by the number of
            towers.

    Attributes:
        devices: the device of each tower.
        mode: how gradients are all-reduced.
        average: whether gradients are averaged, else summed up.
        main_variables: the variables that the first tower has created, once it is built.

    Raises:
        ConfigError: if the devices do not exist, the mode cannot work on them, or `sync_variables` is none of these.
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
        self._make_alike: Any = None
        self.main_variables: list[Any] = []

    def describe(self) -> dict[str, Any]:
        """Return how gradients and other variables of the towers become one."""
        return {**super().describe(), "average": self.average, "sync_variables": self._sync_variables}

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
        sum_over_processes = self.sum_over_processes if self.world_size > 1 else None
        towers = build_on_multi_tower(
            self.devices, lambda: tower_func(*take()), vs_names, sum_over_processes=sum_over_processes
        )
        self.main_variables = towers[0].created
        main, *others = variables_by_name(towers)
        replicates = [[(main[name], variable) for name, variable in own.items()] for own in others]
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
        self._synchronize_at_epochs(replicates)
        for pairs, own in zip(replicates, state[1:], strict=True):
            # Optimizers name their state as they like, but create it in one order.
            pairs.extend(zip(state[0], own, strict=True))
        self._make_replicates(replicates)
        return ops

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Make the non-trainable variables agree at the end of each epoch, before anybody uses them."""
        self.synchronize(trainer.sess)

    def replicate_variables(self) -> list[Any]:
        """Return what the other towers have accumulated of an update, and what becomes part of a mean.

        That are their non-trainable variables, if the first tower gets the mean. All else is either the same in all
        towers, or of no consequence for what is saved.
        """
        of_others = [optimizer for own in self._accumulating for optimizer in own[1:]]
        return [*self._averaged, *(variable for optimizer in of_others for variable in optimizer.accumulated)]

    def reduce_further(self, reduced: list[list[Any]]) -> list[list[Any]]:
        """Return what the towers apply, given the means or sums over all of them; a subclass takes it further.

        Args:
            reduced: for each tower tensors or `tf.IndexedSlices`, on its device; means if `average`, else sums.
        """
        return reduced

    def sum_over_processes(self, tensor: Any) -> Any:
        """Return the sum of a tensor over all processes, where there are several: what towers give each other."""
        return tensor

    def optimizer_scope(self, index: int) -> AbstractContextManager[Any]:
        """Return the name scope in which the optimizer of a tower makes what is no slot of a variable.

        So the state of the first tower's optimizers, which is saved, has the names that it would have alone.
        """
        return tf.name_scope(f"tower{index}/") if index else nullcontext()

    def ops_of_first_step(self) -> list[Any]:
        """Return what a step runs besides, if it may end without a reduction; a subclass may have to prepare one."""
        return []

    def complete_graph(self) -> None:
        """Make one op of the post-init ops that the graph has by now."""
        self._make_alike = tf.group(*get_post_init_ops())

    def after_restore(self, sess: Any) -> None:
        """Copy the first tower's variables to the others."""
        if self._make_alike is not None:
            sess.run(self._make_alike)

    def synchronize(self, sess: Any) -> None:
        """Make the non-trainable variables of the towers agree, as `sync_variables` says."""
        if self._mean_op is not None:
            sess.run(self._mean_op)
        self.synchronize_processes(sess)
        if self._copy_op is not None:
            sess.run(self._copy_op)

    def synchronize_processes(self, sess: Any) -> None:
        """Make the non-trainable variables of all processes' first towers agree, where there are several."""

    def _optimizers(self, objectives: Sequence[Objective]) -> list[list[Any]]:
        """For each objective an optimizer for each tower; objectives that share one do so in every tower."""
        main = [check_optimizer(objective.get_optimizer()) for objective in objectives]
        others = [copies_of_optimizers(main) for _ in self.devices[1:]]
        return [list(of_towers) for of_towers in zip(main, *others, strict=True)]

    def _gradients(self, objective: Objective, towers: Sequence[Tower], optimizers: Sequence[Any]) -> list[Gradients]:
        """The gradients that each tower applies; or, if its optimizer accumulates them, those that it has itself."""
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

    def _make_replicates(self, replicates: Sequence[Sequence[tuple[Any, Any]]]) -> None:
        """Make the variables of all but the first tower local ones, and the ops that copy the first tower's to them."""
        with tf.name_scope("post_init"):
            for pairs in replicates:
                make_local([copy for _, copy in pairs])
                for source, copy in pairs:
                    op = copy.assign(source.read_value(), read_value=False)
                    tf.compat.v1.add_to_collection(POST_INIT_OPS_KEY, op)

    def _synchronize_at_epochs(self, replicates: Sequence[Sequence[tuple[Any, Any]]]) -> None:
        """Build what makes the non-trainable variables of the model agree, which `replicates` has of each tower."""
        if self._sync_variables is None:
            return
        # Local variables, such as those of metrics, are no part of the model.
        of_model = {variable.ref() for variable in tf.compat.v1.global_variables()}
        of_variables: dict[Any, list[Any]] = {}
        for main, copy in (pair for pairs in replicates for pair in pairs):
            if not main.trainable and main.ref() in of_model:
                of_variables.setdefault(main.ref(), [main]).append(copy)
        chosen = list(of_variables.values())
        is_mean = self._sync_variables == "mean"
        if is_mean:
            chosen = [variables for variables in chosen if variables[0].dtype.base_dtype.is_floating]
            self._averaged = [copy for _, *copies in chosen for copy in copies]
        with tf.name_scope("sync_variables"):
            if is_mean and chosen:
                self._mean_op = tf.group(*(op for variables in chosen for op in _give_mean(variables)))
            # The means of processes differ, until all towers of all of them get those of the chief.
            if (not is_mean or self.world_size > 1) and chosen:
                self._copy_op = tf.group(*(op for variables in chosen for op in _give_first(variables)))


def _give_mean(variables: Sequence[Any]) -> list[Any]:
    """The ops that give variables their mean."""
    mean = sum_in_order([variable.read_value() for variable in variables]) / len(variables)
    with tf.control_dependencies([mean]):
        return [variable.assign(mean, read_value=False) for variable in variables]


def _give_first(variables: Sequence[Any]) -> list[Any]:
    """The ops that give variables the value of the first one."""
    first, *others = variables
    value = first.read_value()
    return [variable.assign(value, read_value=False) for variable in others]
