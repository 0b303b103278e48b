"""The base of strategies with parameter servers: their sessions, and the variables that workers do not share."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.graph import Objective
from tpk.graph.devices import Devices, add_logical_devices, resolve_devices
from tpk.graph.variables import assign_values, saveable_variables, variable_name
from tpk.input_source import InputSource
from tpk.strategies.all_reduce import reduce_column
from tpk.strategies.towers import Tower, check_gradients_alike, gradients_of_towers
from tpk_distributed.cluster import PS, WORKER, device_of
from tpk_distributed.cluster_strategy import ClusterStrategy
from tpk_distributed.parameter_servers.server_placement import ServerPlacement, is_on_server, place_on_worker
from tpk_distributed.parameter_servers.serving import serve_workers
from tpk_distributed.parameter_servers.step_queues import Gradients
from tpk_distributed.tensorflow_server import SharedSession, cluster_of
from tpk_distributed.timeouts import Timeouts

logger = logging.getLogger(f"tpk.{__name__}")


class DistributedStrategy(ClusterStrategy):
    """The base of strategies in which workers share variables on parameter servers.

    The variables of the model are on the servers. All other variables are separate in each worker: variables of the
    input, the global step, and variables that callbacks create. The chief's are saved, and `after_restore` copies their
    values to the other workers.

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
    """

    def __init__(
        self,
        devices: Devices = None,
        cluster: Any = None,
        shard_data: bool = True,
        average: bool = True,
        timeouts: Timeouts | Mapping[str, float] | None = None,
        server_config: Any = None,
    ) -> None:
        self.devices = resolve_devices(devices)
        server = cluster if isinstance(cluster, tf.compat.v1.train.Server) else None
        super().__init__(cluster_of(cluster), timeouts, server_config, server)
        self.placement = ServerPlacement(
            "", [f"{device_of(PS, server)}/device:CPU:0" for server in range(len(self.cluster.ps))]
        )
        self._shard_data = shard_data
        self.average = average

    def describe(self) -> dict[str, Any]:
        """Return the options that must be the same in all processes."""
        return {**super().describe(), "average": self.average, "shard_data": self._shard_data}

    def server_config(self, config: Any) -> Any:
        """Return `config` with the devices of this process."""
        return add_logical_devices(config, self.devices)

    @property
    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        return self.cluster.job == PS

    def serve(self) -> None:
        """Hold variables until the workers have left, if this process is a parameter server."""
        if self.is_server:
            serve_workers(self.server, self.timeouts)

    def session_config(self, config: Any) -> Any:
        """Return `config` for a session that sees only this worker and the parameter servers.

        So this worker can start and continue independently of the other workers.
        """
        adapted = copy.deepcopy(config)
        adapted.device_filters[:] = [f"/job:{PS}", f"/job:{WORKER}/task:{self.cluster.index}"]
        return adapted

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return `source`; with `shard_data`, it delivers only the share of this worker."""
        if self._shard_data and self.world_size > 1:
            source.shard(self.rank, self.world_size)
        return super().prepare_input(source)

    def after_restore(self, sess: Any) -> None:
        """Copy the chief's variables that are not on servers to the other workers."""
        self.share(sess, [each for each in saveable_variables(sess.graph) if not is_on_server(each)])

    def share(self, sess: Any, variables: Sequence[Any]) -> None:
        """Copy the chief's values of variables that workers do not share to the other workers.

        Args:
            sess: the raw session.
            variables: the variables of this worker; variables that the chief does not have are ignored.

        Raises:
            PeerError: if another process has failed or died.
        """
        own = {variable_name(variable): variable for variable in variables}
        with self.heartbeat.explained():
            given = dict(zip(own, sess.run(list(own.values())), strict=True)) if self.is_chief else None
        values = self.process_group.broadcast_object("the variables that workers do not share", given)
        if not self.is_chief:
            assign_values(sess, ((own[name], value) for name, value in values.items() if name in own))

    def create_session(self, graph: Any, config: Any) -> SharedSession:
        """Return the session of this worker, with all variables initialized."""
        with graph.as_default():
            # Only the chief initializes shared variables.
            everything = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
            mine = [each for each in everything if self.is_chief or not is_on_server(each)]
            with tf.device(self.cluster.device):
                initialize = tf.group(*(variable.initializer for variable in mine))
                initialize_tables = tf.compat.v1.tables_initializer()
            place_on_worker(graph, self.cluster.device)
            sess = SharedSession(self.server.target, graph, config)
        self.heartbeat.guard(sess)
        # The initial values of the other workers' variables may depend on shared variables.
        if not self.is_chief:
            logger.info("waiting for the chief to initialize the variables on the parameter servers")
            self.process_group.gather_object("the initial values", None)
        with self.heartbeat.explained():
            sess.run(initialize)
            sess.run(initialize_tables)
        if self.is_chief:
            self.process_group.gather_object("the initial values", None)
        return sess

    def reduce_over_towers(self, objective: Objective, optimizer: Any, towers: Sequence[Tower]) -> Gradients:
        """Return the means or sums of the gradients of this worker's towers, with the variables of the first tower.

        They are computed on this worker, so that only one gradient is sent for each variable.
        """
        rows = gradients_of_towers(objective, [optimizer] * len(towers), towers)
        check_gradients_alike(towers, rows)
        reduced = []
        with tf.name_scope("reduce_gradients"):
            for turn, pairs in enumerate(zip(*rows, strict=True)):
                with tf.device(self.devices[turn % len(self.devices)]):
                    column = [gradient for gradient, _ in pairs]
                    reduced.append((reduce_column(column, self.average), pairs[0][1]))
        return reduced
