"""The base of strategies whose processes run TensorFlow servers: how they meet, monitor each other, and leave."""

from __future__ import annotations

import logging
import sys
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

import tpk
from tpk.errors import PeerError, TrainerStateError, add_note
from tpk.session import default_session_config
from tpk_distributed.cluster import PS, WORKER, Cluster, device_of
from tpk_distributed.connections import check_names
from tpk_distributed.heartbeat import Heartbeat
from tpk_distributed.tensorflow_server import RunningServer, SharedSession, given_server, start_server
from tpk_distributed.timeouts import as_timeouts

logger = logging.getLogger(f"tpk.{__name__}")

T = TypeVar("T")


class ClusterStrategy(tpk.Strategy):
    """The base of strategies whose processes communicate through TensorFlow servers.

    Args:
        cluster: the processes, and which of them this one is.
        timeouts: how long to wait for other processes: a `Timeouts`, or a mapping with some of its fields.
        server_config: the `tf.compat.v1.ConfigProto` of TensorFlow's server, which sets threads and GPU memory instead
            of the config of the session.
        server: the `tf.compat.v1.train.Server` of this process, if the user has started it.

    Attributes:
        cluster: the processes.
        timeouts: how long to wait for other processes.

    Raises:
        ConfigError: if a timeout is invalid.
    """

    def __init__(self, cluster: Cluster, timeouts: Any = None, server_config: Any = None, server: Any = None) -> None:
        self.cluster = cluster
        self.timeouts = as_timeouts(timeouts)
        self._server_config = server_config
        self._given_server = server
        self._server: RunningServer | None = None
        self._heartbeat: Heartbeat | None = None
        self._process_group: tpk.ProcessGroup = tpk.SingleProcess()

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return self.cluster.world_size

    @property
    def rank(self) -> int:
        """The number of this worker; parameter servers are numbered after all workers."""
        return self.cluster.index + (0 if self.cluster.job == WORKER else self.world_size)

    @property
    def process_group(self) -> tpk.ProcessGroup:
        """How this worker communicates with the others, between `join` and `leave`."""
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
        """The heartbeat that monitors the other processes.

        Raises:
            TrainerStateError: before `join`.
        """
        return joined(self._heartbeat)

    def server_config(self, config: Any) -> Any:
        """Return the `tf.compat.v1.ConfigProto` of this process's server, adapted from the default or the user's."""
        return config

    def join(self) -> None:
        """Start TensorFlow's server of this process, and wait for all other processes.

        Raises:
            ConfigError: if the port is in use, or the name of a host is unknown.
            PeerError: if some of the others do not start in time.
        """
        check_names([*self.cluster.workers, *self.cluster.ps])
        if self._given_server is None:
            config = default_session_config() if self._server_config is None else self._server_config
            self._server = start_server(self.cluster, self.server_config(config))
        else:
            self._server = given_server(self.cluster, self._given_server)
        if self.cluster.job == PS:
            return
        logger.info("rank %d of %d; waiting for the others", self.rank, self.world_size)
        self._heartbeat = Heartbeat(self._server, self.timeouts)
        try:
            self._heartbeat.meet()
            self._process_group = ClusterProcessGroup(self._server, self._heartbeat)
        except BaseException:
            self.leave()
            raise
        logger.info("all %d workers have started", self.world_size)

    def leave(self) -> None:
        """Tell the other processes that this one leaves, and with which error, if one is being handled.

        If they need its server, wait a while for them to leave.
        """
        heartbeat, self._heartbeat = self._heartbeat, None
        process_group, self._process_group = self._process_group, tpk.SingleProcess()
        if isinstance(process_group, ClusterProcessGroup):
            process_group.close()
        if heartbeat is not None:
            heartbeat.leave(sys.exc_info()[1])

    @tpk.hookimpl(trylast=True)  # When the data of the step is there.
    def before_run(self, run_context: Any) -> None:
        """Tell the heartbeat that a step begins, in which this process waits for the others."""
        self.heartbeat.begin("step", run_context.session)

    @tpk.hookimpl(tryfirst=True)
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Tell the heartbeat that the step has ended."""
        self.heartbeat.end()

    @tpk.hookimpl(trylast=True)  # The input's own explanation of its failure takes precedence.
    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return an error that names another process if it caused this error."""
        if self._heartbeat is None:
            return None
        if isinstance(error, tf.errors.OutOfRangeError):
            self._heartbeat.take_back()
        return self._heartbeat.explain(error)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Add a note to the error that ends the training if another process failed before."""
        known = None if self._heartbeat is None else self._heartbeat.failure
        if known is not None and trainer.loop.failure is not None and not isinstance(trainer.loop.failure, PeerError):
            add_note(trainer.loop.failure, f"another process has failed before: {known}")

    def session_creator(self, config: Any) -> tpk.SessionCreator:
        """Return the creator of the session, which is on TensorFlow's server of this process."""
        return _SharedSessionCreator(self, config)

    def create_session(self, graph: Any, config: Any) -> SharedSession:
        """Return the session of this process, in which all variables and tables of `graph` are initialized."""
        with graph.as_default():
            sess = SharedSession(self.server.target, graph, config)
            sess.run(tf.group(tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()))
            sess.run(tf.compat.v1.tables_initializer())
        return sess


def joined(value: T | None) -> T:
    """Return `value`, which `join` sets.

    Raises:
        TrainerStateError: before `join`.
    """
    if value is None:
        raise TrainerStateError("the processes have not met yet: call join() first. A trainer calls it itself.")
    return value


class _SharedSessionCreator(tpk.SessionCreator):
    """Creates the session of a process."""

    def __init__(self, strategy: ClusterStrategy, config: Any) -> None:
        self._strategy = strategy
        self._config = config

    def create_session(self, graph: Any) -> Any:
        """Create the session, and initialize its variables."""
        return self._strategy.create_session(graph, self._config)


class ClusterProcessGroup(tpk.ProcessGroup):
    """A process group whose workers send their values to the chief, which sends all of them to each worker.

    They use queues on the first parameter server, or on the chief's server if there are no parameter servers.

    Args:
        server: TensorFlow's server of this process, which is a worker.
        heartbeat: detects missing processes.
    """

    def __init__(self, server: RunningServer, heartbeat: Heartbeat) -> None:
        cluster = server.cluster
        super().__init__(cluster.rank, cluster.world_size)
        self._heartbeat = heartbeat
        others = range(1, self.world_size)
        host = (PS if cluster.ps else WORKER, 0)
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"{device_of(*host)}/device:CPU:0"):
            name = f"tpk/gather_{server.trainings}"
            to_chief = {rank: _queue(f"{name}/from_rank{rank}", []) for rank in others}
            from_chief = {rank: _queue(f"{name}/to_rank{rank}", [self.world_size]) for rank in others}
            if self.rank == 0:
                self._data = tf.compat.v1.placeholder(tf.string, [self.world_size])
                self._receive = [queue.dequeue() for queue in to_chief.values()]
                self._send = tf.group(*(queue.enqueue(self._data) for queue in from_chief.values()))
            else:
                self._data = tf.compat.v1.placeholder(tf.string, [])
                self._receive = from_chief[self.rank].dequeue()
                self._send = to_chief[self.rank].enqueue(self._data)
        self._sess = server.session_with(*host, graph)

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Wait for the data of all processes, and return it by rank."""
        try:
            with self._heartbeat.waiting("gather", self._sess):
                # As objects, because NumPy would strip trailing zeros from byte strings.
                if self.rank == 0:
                    every = [data, *self._sess.run(self._receive)]
                    self._sess.run(self._send, {self._data: np.array(every, object)})
                else:
                    self._sess.run(self._send, {self._data: np.array(data, object)})
                    every = self._sess.run(self._receive)
        except tf.errors.OpError as error:
            raise PeerError(f"the processes could not communicate: {error.message}") from error
        return list(every)

    def close(self) -> None:
        """Close the session."""
        self._sess.close()


def _queue(name: str, shape: list[int]) -> Any:
    # One value at a time is enough, because the next one is sent after the answer to this one.
    return tf.queue.FIFOQueue(2, [tf.string], [shape], shared_name=name, name=name.replace("/", "_"))
