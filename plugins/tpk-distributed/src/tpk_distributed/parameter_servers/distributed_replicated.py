"""Workers with replicas of the model on each device, whose gradients parameter servers apply together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.graph import Objective, get_global_step_var
from tpk.graph.variables import make_local, variable_name
from tpk.plugin import also_spelled
from tpk.strategies import (
    DEVICE_SPELLINGS,
    GPU_PREFETCH,
    POST_INIT_OPS_KEY,
    Tower,
    after_reads,
    apply_in_groups,
    build_on_multi_tower,
    get_post_init_ops,
    in_turn,
)
from tpk.strategies.towers import plain_name, variables_by_name
from tpk.tf_internals import set_slice_info, slice_info
from tpk.tower import PredictTowerContext, TowerFunc
from tpk_distributed.parameter_servers.distributed_strategy import DistributedStrategy
from tpk_distributed.parameter_servers.step_queues import Gradients, StepQueues

GraphKeys = tf.compat.v1.GraphKeys

_MAIN = "tower0"


@also_spelled({**DEVICE_SPELLINGS, "server": "cluster"}, gpu_prefetch=GPU_PREFETCH)
class DistributedReplicatedStrategy(DistributedStrategy):
    """Workers and parameter servers that train in step, with a replica of the model on each device of each worker.

    Each tower takes its own datapoint. The means of the gradients over the towers of a worker are sent to the parameter
    servers. There the chief's optimizer applies the means over all workers to the global variables; then each worker
    copies the variables to its devices. So N workers with M devices train like one process on the concatenation of
    batches of the same size, all replicas stay identical, bit by bit, and two runs with the same seed are identical.

    With ``average=False`` both means are sums, which has the effect of multiplying the learning rate by N·M.
    (tensorpack's `DistributedTrainerReplicated` computed the mean over the towers of a worker, and applied it for each
    worker: that is ``average=False`` with the learning rate divided by M.)

    The global variables have the names that the model gives them. They are saved, together with the optimizer's slots,
    which are on the same parameter servers, and its other variables, such as a learning rate. The variables of the
    towers are local. Variables are distributed over several parameter servers by size.

    Non-trainable variables, such as the moving averages of batch normalization, are separate in each tower. Those of
    the chief's first tower are saved, and copied to all other towers at the end of each epoch.

    Args:
        devices: the devices of this worker: a count, indices, or device strings; see `resolve_devices`.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or a
            `tf.compat.v1.train.Server`; by default they are read from the environment.
        shard_data: let each worker take only its share of the data, instead of all data that it is given.
        average: average gradients instead of summing them.
        timeouts: how long to wait for other processes: a `Timeouts`, or a mapping with some of its fields.
        server_config: the `tf.compat.v1.ConfigProto` of TensorFlow's server, which sets threads and GPU memory instead
            of the config of the session.

    Raises:
        ConfigError: if a device does not exist, or the cluster is invalid.

    Example:
        ```python
        # tpk launch -n 2 --ps 1 train.py
        trainer = tpk.SingleCostTrainer(tpk.use("distributed_replicated", devices=4))
        ```
    """

    _untrained: list[Any]
    _copies: dict[str, list[Any]]
    _copy_to_replicas: Any = None
    _copy_untrained: Any = None

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: Callable[[], Sequence[Any]],
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the towers of this worker, and the train ops, which run a step together with the other workers."""
        get_global_step_var()  # Before the towers, so that it is not shared.
        take = in_turn(get_inputs)
        vs_names = [f"tower{index}" for index in range(len(self.devices))]
        towers = build_on_multi_tower(self.devices, lambda: tower_func(*take()), vs_names)
        shared = self._share_trained_variables(towers)
        with tf.compat.v1.device(self.placement):
            optimizers = [objective.get_optimizer() for objective in objectives]
        gradients = [
            [
                (grad, shared[plain_name(towers[0], variable)])
                for grad, variable in self.reduce_over_towers(objective, optimizer, towers)
            ]
            for objective, optimizer in zip(objectives, optimizers, strict=True)
        ]

        def apply(position: int, name: str) -> Any:
            costs = [objectives[position].cost_in(tower.output) for tower in towers]
            return self._apply_together(optimizers[position], gradients[position], name, towers, costs)

        return apply_in_groups(groups, gradients, apply)

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Synchronize the non-trainable variables of all workers, before they are used."""
        self.synchronize(trainer.sess)

    def complete_graph(self) -> None:
        """Group the post-init ops, now that all have been added to the graph."""
        self._copy_to_replicas = tf.group(*get_post_init_ops())

    def after_restore(self, sess: Any) -> None:
        """Copy the chief's variables to the other workers, and the global variables to all towers."""
        super().after_restore(sess)
        with self.heartbeat.explained():
            sess.run(self._copy_to_replicas)

    def synchronize(self, sess: Any) -> None:
        """Copy the non-trainable variables of the chief's first tower to all towers of all workers."""
        self.share(sess, self._untrained)
        if self._copy_untrained is not None:
            with self.heartbeat.explained():
                sess.run(self._copy_untrained)

    def predict_context(self, ns_name: str) -> PredictTowerContext:
        """Return the context of an inference tower, which reads the variables of this worker's first tower."""
        return PredictTowerContext(ns_name=ns_name, vs_name=_MAIN)

    def _share_trained_variables(self, towers: Sequence[Tower]) -> dict[str, Any]:
        """Create a global variable for each trainable variable, and the ops that copy it to the towers.

        Returns:
            The global variables by name.
        """
        by_name = variables_by_name(towers)
        main = by_name[0]
        of_model = {variable.name for variable in tf.compat.v1.get_collection(GraphKeys.MODEL_VARIABLES)}
        trained = {name: variable for name, variable in main.items() if variable.trainable}
        self._untrained = [variable for variable in main.values() if not variable.trainable]
        make_local([*trained.values(), *(variable for own in by_name[1:] for variable in own.values())])
        shared = {}
        for name, variable in trained.items():
            with tf.name_scope(""), tf.compat.v1.device(self.placement):
                shared[name] = _global_variable(name, variable, variable.name in of_model)
        self._copies = {name: [own[name] for own in by_name] for name in trained}
        of_model = {variable.ref() for variable in tf.compat.v1.global_variables()}
        untrained = []
        with tf.name_scope("post_init"):
            for name in main:
                source = shared.get(name, main[name])
                copies = self._copy(source, [own[name] for own in by_name if name in own and own[name] is not source])
                for op in copies:
                    tf.compat.v1.add_to_collection(POST_INIT_OPS_KEY, op)
                if name not in shared and source.ref() in of_model:
                    untrained.extend(copies)
            self._copy_untrained = tf.group(*untrained) if untrained else None
        return shared

    def _apply_together(
        self,
        optimizer: Any,
        gradients: Gradients,
        name: str,
        towers: Sequence[Tower],
        costs: Sequence[Any],
    ) -> Any:
        """Return the op that runs one step together with the other workers."""
        queues = StepQueues(f"{name}_{self.server.trainings}", self.rank, self.world_size, gradients, self.average)
        with tf.name_scope(f"{name}_of_workers"):
            pushed = queues.push()
        # Only the chief runs this, but all workers build it, so that all have the same graph.
        with tf.compat.v1.device(self.placement.for_worker(self.placement.ps_devices[0])):
            with tf.name_scope("reduce_over_workers"):
                reduced = queues.take_reduced()
            applied = optimizer.apply_gradients(reduced, name=name)
        with tf.name_scope(f"{name}_of_workers"):
            if self.is_chief:
                with tf.control_dependencies([applied]):
                    done = tf.group(applied, queues.tell_others())
            else:
                done = queues.wait_for_chief()
            copied = [(grad, variable, self._copies[variable_name(variable)]) for grad, variable in gradients]
            of_towers = [(grad, replica) for grad, _, replicas in copied for replica in replicas]
            tower_ops = [op for tower in towers for op in tower.ops]
            with after_reads(tower_ops, costs, of_towers), tf.control_dependencies([done]):
                copies = [op for _, variable, replicas in copied for op in self._copy(variable, replicas)]
        return tf.group(pushed, done, *copies, name=f"{name}/all")

    def _copy(self, source: Any, copies: Sequence[Any]) -> list[Any]:
        """Return the ops that copy a variable to variables of the towers; its value is sent to this worker once."""
        value = source.read_value()
        with tf.device(self.devices[0]):
            value = tf.identity(value)
        return [copy.assign(value, read_value=False) for copy in copies]


def _global_variable(name: str, local: Any, of_model: bool) -> Any:
    """Return the new global variable of which `local` is a copy."""
    variable = tf.compat.v1.Variable(
        local.initial_value,
        trainable=True,
        collections=[GraphKeys.GLOBAL_VARIABLES, *([GraphKeys.MODEL_VARIABLES] if of_model else [])],
        name=name,
        dtype=local.dtype.base_dtype,
        constraint=local.constraint,
        use_resource=hasattr(local, "handle"),
    )
    part = slice_info(local)
    if part is not None:
        whole = part.full_name.removeprefix(f"{_MAIN}/")
        own = tf.Variable.SaveSliceInfo(whole, part.full_shape, part.var_offset, part.var_shape)
        set_slice_info(variable, own)
    return variable
