"""Base of the strategies whose processes have TensorFlow's servers: how they meet, watch each other, and part."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tpk.cluster.boards import shared_config
from tpk.cluster.heartbeat import Heartbeat
from tpk.cluster.server import RunningServer, SharedSession, given_server, start_server
from tpk.cluster.spec import PS, WORKER, Cluster, as_timeouts, device_of
from tpk.errors import PeerError, TrainerStateError, add_note
from tpk.plugin import Callback, hookimpl
from tpk.session.creator import SessionCreator, default_session_config
from tpk.strategies.base import Strategy
from tpk.strategies.processes.process_group import ProcessGroup, SingleProcess, pack, unpack

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ClusterStrategy(Strategy):
    """Base of the strategies whose processes talk by TensorFlow's servers.

    Args:
        cluster: the processes, and which of them this one is.
        timeouts: a `Timeouts`, or a mapping with some of its fields: how long others are waited for.
        server_config: `tf.compat.v1.ConfigProto` of TensorFlow's server, which decides about threads and GPU memory in
            place of the session's.
        server: the `tf.compat.v1.train.Server` of this process, if the user has started it.

    Attributes:
        cluster: the processes.
        timeouts: how long others are waited for.

    Raises:
        ConfigError: if a timeout has a value that it cannot have.
    """

    def __init__(self, cluster: Cluster, timeouts: Any = None, server_config: Any = None, server: Any = None) -> None:
        self.cluster = cluster
        self.timeouts = as_timeouts(timeouts)
        self._server_config = server_config
        self._given_server = server
        self._server: RunningServer | None = None
        self._heartbeat: Heartbeat | None = None
        self._process_group: ProcessGroup = SingleProcess()

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
        return joined(self._server)

    @property
    def heartbeat(self) -> Heartbeat:
        """What watches the other processes.

        Raises:
            TrainerStateError: before `join`.
        """
        return joined(self._heartbeat)

    def server_config(self, config: Any) -> Any:
        """Return the `tf.compat.v1.ConfigProto` of the server of this process, given the one that it would have had."""
        return config

    def join(self) -> None:
        """Start TensorFlow's server of this process, and wait until all others are there.

        Raises:
            ConfigError: if the port is in use.
            PeerError: if some of the others do not come in time.
        """
        if self._given_server is None:
            config = default_session_config() if self._server_config is None else self._server_config
            self._server = start_server(self.cluster, self.server_config(config))
        else:
            self._server = given_server(self.cluster, self._given_server)
        if self.cluster.job == PS:
            return
        logger.info("rank %d of %d; waiting for the others", self.rank, self.world_size)
        self._heartbeat = Heartbeat(self.cluster, self._server, self.timeouts)
        try:
            self._heartbeat.meet()
            self._process_group = ClusterProcessGroup(self.cluster, self._server, self._heartbeat)
        except BaseException:
            self.leave()
            raise
        logger.info("all %d workers are there", self.world_size)

    def leave(self) -> None:
        """Tell the other processes that this one leaves, and of the error by which it does, if one is under way.

        If they need its server, wait a while until all of them have left.
        """
        heartbeat, self._heartbeat = self._heartbeat, None
        process_group, self._process_group = self._process_group, SingleProcess()
        if isinstance(process_group, ClusterProcessGroup):
            process_group.close()
        if heartbeat is not None:
            heartbeat.leave(sys.exc_info()[1])

    @hookimpl(trylast=True)  # What the input knows of its own failure comes before what others may have to do with it.
    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return the error that names who is to blame, if it is another process."""
        if self._heartbeat is None:
            return None
        if isinstance(error, tf.errors.OutOfRangeError):
            self._heartbeat.take_back()
        return self._heartbeat.explain(error)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Add to an error by which the training ends that another process has failed before."""
        known = None if self._heartbeat is None else self._heartbeat.failure
        if known is not None and trainer.loop.failure is not None and not isinstance(trainer.loop.failure, PeerError):
            add_note(trainer.loop.failure, f"another process has failed before: {known}")

    def session_creator(self, config: Any) -> SessionCreator:
        """Return what creates the session, on TensorFlow's server of this process."""
        return _SharedSessionCreator(self, config)

    def create_session(self, graph: Any, config: Any) -> SharedSession:
        """Return the session of this process, in which all variables and tables of `graph` are initialized."""
        with graph.as_default():
            sess = SharedSession(self.server.target, graph, config)
            sess.run(tf.group(tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()))
            sess.run(tf.compat.v1.tables_initializer())
        return sess


def joined(value: T | None) -> T:
    """Return what is there once the processes have met.

    Raises:
        TrainerStateError: if they have not.
    """
    if value is None:
        raise TrainerStateError("the processes have not met: join() comes first. A trainer calls it in time.")
    return value


class _SharedSessionCreator(SessionCreator):
    """Creates the session of a process."""

    def __init__(self, strategy: ClusterStrategy, config: Any) -> None:
        self._strategy = strategy
        self._config = config

    def create_session(self, graph: Any) -> Any:
        """Create the session, and initialize what is to be."""
        return self._strategy.create_session(graph, self._config)


class WatchSteps(Callback):
    """Says when this process is in a step, in which it waits for the others.

    Args:
        heartbeat: is told.
    """

    chief_only = False

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._begin, self._end = heartbeat.begin, heartbeat.end

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Take what each step needs."""
        self._sess = trainer.sess

    def before_run(self, run_context: Any) -> None:
        """A step begins."""
        self._begin("step", self._sess)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """It is done."""
        self._end()


class ClusterProcessGroup(ProcessGroup):
    """A process group whose workers send their values to the chief, which sends all of them to each worker.

    They go through queues on the first parameter server, or on the chief's server if there is none.

    Args:
        cluster: the processes of the training; this one is a worker.
        server: TensorFlow's server of this process.
        heartbeat: knows which processes are missing.
    """

    def __init__(self, cluster: Cluster, server: RunningServer, heartbeat: Heartbeat) -> None:
        super().__init__(cluster.rank, cluster.world_size)
        self._heartbeat = heartbeat
        others = range(1, self.world_size)
        host = (PS if cluster.ps else WORKER, 0)
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"{device_of(*host)}/device:CPU:0"):
            self._data = tf.compat.v1.placeholder(tf.string, [])
            to_chief = {rank: _queue(f"tpk/gather_{server.trainings}/from_rank{rank}") for rank in others}
            from_chief = {rank: _queue(f"tpk/gather_{server.trainings}/to_rank{rank}") for rank in others}
            if self.rank == 0:
                self._receive = [queue.dequeue() for queue in to_chief.values()]
                self._send = tf.group(*(queue.enqueue(self._data) for queue in from_chief.values()))
            else:
                self._receive = from_chief[self.rank].dequeue()
                self._send = to_chief[self.rank].enqueue(self._data)
        self._sess = SharedSession(server.target, graph, shared_config(cluster, host))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return what each process gives, by rank; wait until all have."""
        try:
            with self._heartbeat.waiting("gather", self._sess):
                if self.rank == 0:
                    every = [data, *self._sess.run(self._receive)]
                    self._run_send(pack(every=every))
                else:
                    self._run_send(data)
                    every = unpack(self._sess.run(self._receive))["every"]
        except tf.errors.OpError as error:
            raise PeerError(f"the processes could not tell each other things: {error.message}") from error
        return list(every)

    def close(self) -> None:
        """Close the session."""
        self._sess.close()

    def _run_send(self, data: bytes) -> None:
        # As an object: NumPy would strip zeros from the end of a byte string.
        self._sess.run(self._send, {self._data: np.array(data, object)})


def _queue(name: str) -> Any:
    # One value at a time is enough: the next is sent once this one has been answered.
    return tf.queue.FIFOQueue(2, [tf.string], [[]], shared_name=name, name=name.replace("/", "_"))
