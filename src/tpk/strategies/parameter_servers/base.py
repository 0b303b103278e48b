"""What strategies with parameter servers have in common: who is who, sessions, and variables that workers own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.cluster.boards import Presence
from tpk.cluster.server import RunningServer, cluster_of, given_server, start_server, wait_for_servers
from tpk.cluster.sessions import WorkerSession
from tpk.cluster.spec import PS, WORKER, device_of
from tpk.cluster.timeouts import Patience
from tpk.errors import PeerError, TrainerStateError, add_note
from tpk.graph.devices import Devices, add_cpu_devices, resolve_devices
from tpk.graph.global_step import get_global_step_var
from tpk.graph.variables import assign_values, saveable_variables, variable_name
from tpk.input_source.base import InputSource
from tpk.input_source.staging import StagingInput
from tpk.plugin import Callback, hookimpl
from tpk.session.creator import SessionCreator, default_session_config
from tpk.strategies.base import Strategy
from tpk.strategies.parameter_servers.placement import ServerPlacement, is_on_server, place_on_worker
from tpk.strategies.parameter_servers.process_group import ServerProcessGroup
from tpk.strategies.parameter_servers.serving import serve_workers
from tpk.strategies.process_group import ProcessGroup, SingleProcess

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

_SECONDS_TO_FIND_OUT = 10.0


class DistributedStrategy(Strategy):
    """Base of the strategies in which workers share variables that are on parameter servers.

    Variables of the model are on the servers; what else there is belongs to each worker: its input, the global step,
    what callbacks create. Of these, the variables of the chief are saved, and `after_restore` gives their values to the
    other workers.

    Args:
        devices: the devices of this worker: a count, indices, or device strings; see `resolve_devices`.
        cluster: the processes: a `Cluster`, a mapping with the structure of TF_CONFIG, or a
            `tf.compat.v1.train.Server`; None to look into the environment.
        shard_data: whether each worker takes its share of the data; otherwise all of what it is given.
        start_timeout: for how many seconds the others may take to start.
        timeout: after how many seconds without a sign of life another process counts as dead. One whose process has
            ended is noticed within a few seconds.
        late_after: after how many seconds of waiting another worker is reported as late.
        patience: for how many seconds another worker that lives may let this one wait.
        server_config: `tf.compat.v1.ConfigProto` of TensorFlow's server, which decides about threads and GPU memory in
            place of the session's.

    Raises:
        ConfigError: if a device does not exist, or the cluster is not as it should be.
    """

    def __init__(
        self,
        devices: Devices = None,
        cluster: Any = None,
        shard_data: bool = True,
        start_timeout: float = 300.0,
        timeout: float = 60.0,
        late_after: float = 30.0,
        patience: float = 1800.0,
        server_config: Any = None,
    ) -> None:
        self.devices = resolve_devices(devices)
        self.cluster = cluster_of(cluster)
        self.placement = ServerPlacement(
            "", [f"{device_of(PS, server)}/device:CPU:0" for server in range(len(self.cluster.ps))]
        )
        self._given_server = cluster if isinstance(cluster, tf.compat.v1.train.Server) else None
        self._shard_data = shard_data
        self._patience = Patience(start=start_timeout, answer=timeout, late=late_after, wait=patience)
        self._server_config = server_config
        self._server: RunningServer | None = None
        self._process_group: ProcessGroup = SingleProcess()
        self._presence: Presence | None = None
        self._sess: WorkerSession | None = None

    @property
    def num_replicas(self) -> int:
        """The number of devices of this worker."""
        return len(self.devices)

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return self.cluster.world_size

    @property
    def rank(self) -> int:
        """The number of this worker; parameter servers come after all of them."""
        return self.cluster.index + (0 if self.cluster.job == WORKER else self.world_size)

    @property
    def process_group(self) -> ProcessGroup:
        """How this worker tells the others things, between `join` and `leave`."""
        return self._process_group

    @property
    def server(self) -> RunningServer:
        """TensorFlow's server of this process.

        Raises:
            TrainerStateError: before `join`.
        """
        if self._server is None:
            raise TrainerStateError("the processes have not met: join() comes first. A trainer calls it in time.")
        return self._server

    def join(self) -> None:
        """Start the server of this process; wait for the parameter servers, and for the other workers.

        Raises:
            ConfigError: if the port is in use.
            PeerError: if one of them does not come in time.
        """
        if self._given_server is None:
            config = self._server_config if self._server_config is not None else default_session_config()
            self._server = start_server(self.cluster, add_cpu_devices(config, self.devices))
        else:
            self._server = given_server(self.cluster, self._given_server)
        if self.cluster.job == PS:
            return
        logger.info("rank %d of %d; waiting for the others", self.rank, self.world_size)
        wait_for_servers(self.cluster, self._patience.start)
        self._presence = Presence(self.cluster, self._server, self._patience, self._break_off)
        try:
            self._presence.start()
            process_group = ServerProcessGroup(self.cluster, self._server, self._presence, self._patience)
            self._process_group = process_group
            process_group.meet()
        except BaseException:
            self.leave()
            raise
        logger.info("all %d workers are there", self.world_size)

    def serve(self) -> bool:
        """Keep variables until the workers have left, if this process is a parameter server; return whether it is."""
        if self.cluster.job != PS:
            return False
        serve_workers(self.cluster, self.server, self._patience)
        return True

    def leave(self) -> None:
        """Tell the other processes that this one leaves, and of the error by which it does, if one is under way."""
        presence, self._presence = self._presence, None
        process_group, self._process_group = self._process_group, SingleProcess()
        if isinstance(process_group, ServerProcessGroup):
            process_group.close()
        if presence is not None:
            presence.leave(sys.exc_info()[1])

    def session_config(self, config: Any) -> Any:
        """Return `config` for a session that sees this worker and the parameter servers only.

        So this worker can start, and go on, whatever the others do.
        """
        adapted = tf.compat.v1.ConfigProto()
        adapted.CopyFrom(config)
        adapted.device_filters[:] = [f"/job:{PS}", f"/job:{WORKER}/task:{self.cluster.index}"]
        return adapted

    def session_creator(self, config: Any) -> SessionCreator:
        """Return what creates the session of this worker, in which the chief initializes the shared variables."""
        return _WorkerSessionCreator(self, config)

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return `source`, which delivers only the share of this worker if that is wanted."""
        if self._shard_data and self.world_size > 1:
            source.shard(self.rank, self.world_size)
        if isinstance(source, StagingInput):
            source.place_on(self.devices)
        return source

    def callbacks(self) -> list[Callback]:
        """Return what tells by which other process a step has failed."""
        return [TranslateErrors(self)]

    def after_restore(self, sess: Any) -> None:
        """Give the other workers the values that the chief's own variables have."""
        self.share(sess, [each for each in saveable_variables(sess.graph) if not is_on_server(each)])

    def share(self, sess: Any, variables: Sequence[Any]) -> None:
        """Give variables that each worker has of its own the values that they have in the chief.

        Args:
            sess: the raw session.
            variables: those of this worker; what the chief has not got is left alone.

        Raises:
            PeerError: if another process has failed or died.
        """
        own = {variable_name(variable): variable for variable in variables}
        with self.explained():
            given = dict(zip(own, sess.run(list(own.values())), strict=True)) if self.is_chief else None
        values = self.process_group.broadcast_object("the variables that each worker has of its own", given)
        if not self.is_chief:
            assign_values(sess, ((own[name], value) for name, value in values.items() if name in own))

    def create_session(self, graph: Any, config: Any) -> Any:
        """Return the session of this worker, once all variables of `graph` are initialized."""
        with graph.as_default():
            # Nobody but the chief gives values to what is shared.
            everything = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
            mine = [each for each in everything if self.is_chief or not is_on_server(each)]
            with tf.device(self.cluster.device):
                initialize = tf.group(*(variable.initializer for variable in mine))
                initialize_tables = tf.compat.v1.tables_initializer()
            place_on_worker(graph, self.cluster.device)
            self._sess = sess = WorkerSession(self.server.target, graph, config)
        # What other workers have of their own may start from what the chief has initialized.
        if not self.is_chief:
            logger.info("waiting for the chief to initialize the variables on the parameter servers")
            self.process_group.gather_object("the initial values", None)
        with self.explained():
            sess.run(initialize)
            sess.run(initialize_tables)
        if self.is_chief:
            self.process_group.gather_object("the initial values", None)
        return sess

    def begin_build(self) -> None:
        """Create what must be there before the towers are: the counter of this worker's steps is not shared."""
        get_global_step_var()

    @property
    def presence(self) -> Presence:
        """What is known of the other workers.

        Raises:
            TrainerStateError: before `join`.
        """
        if self._presence is None:
            raise TrainerStateError("the processes have not met: join() comes first. A trainer calls it in time.")
        return self._presence

    def explain(self, error: BaseException) -> PeerError | None:
        """Return what has happened to another process because of which a run has failed, if that is why."""
        if isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError):
            # The connection is lost at once; who is gone is found out a moment later.
            known = self.presence.wait_for_failure(_SECONDS_TO_FIND_OUT)
            return known or PeerError(f"the connection to another process was lost: {error.message}")
        return self.presence.failure if isinstance(error, tf.errors.CancelledError) else None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Within the context, a run that fails because of another process raises the `PeerError` that names it."""
        try:
            yield
        except tf.errors.OpError as error:
            explanation = self.explain(error)
            if explanation is None:
                raise
            raise explanation from error

    def _break_off(self) -> None:
        """End what the session is doing, since nobody knows what it would wait for; called in another thread."""
        if isinstance(self._process_group, ServerProcessGroup):
            self._process_group.break_off()
        if self._sess is not None:
            self._sess.break_off()


class _WorkerSessionCreator(SessionCreator):
    """Creates the session of a worker."""

    def __init__(self, strategy: DistributedStrategy, config: Any) -> None:
        self._strategy = strategy
        self._config = config

    def create_session(self, graph: Any) -> Any:
        """Create the session; wait until all variables are initialized."""
        return self._strategy.create_session(graph, self._config)


class TranslateErrors(Callback):
    """Says which other process it was by which a step has failed."""

    chief_only = False

    def __init__(self, strategy: DistributedStrategy) -> None:
        self._strategy = strategy

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return the error that names who is to blame, if it is another process."""
        if isinstance(error, tf.errors.OutOfRangeError):
            self._strategy.presence.end()
        return self._strategy.explain(error)

    @hookimpl(tryfirst=True)
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Tell the others; add to an error by which the training ends that another process has failed before."""
        self._strategy.presence.end()
        known = self._strategy.presence.failure
        if known is not None and trainer.failure is not None and not isinstance(trainer.failure, PeerError):
            add_note(trainer.failure, f"another process has failed before: {known}")
