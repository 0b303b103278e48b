"""Many processes, whose gradients are all-reduced by TensorFlow's own collective operations."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.cluster.heartbeat import Peers
from tpk.cluster.server import start_server
from tpk.cluster.spec import WORKER, Cluster, as_cluster, device_of
from tpk.cluster.timeouts import Patience
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.devices import Devices, add_cpu_devices, is_gpu
from tpk.plugin import Callback, hookimpl
from tpk.session.creator import NewSessionCreator, SessionCreator, default_session_config
from tpk.strategies.cluster_process_group import CollectiveProcessGroup
from tpk.strategies.collective.ops import COMPRESSIONS, Collectives
from tpk.strategies.multi_process import MultiProcessStrategy
from tpk.strategies.process_group import ProcessGroup, SingleProcess
from tpk.strategies.replicated import DEFAULT_PACK_BYTES

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

COMMUNICATIONS = ("auto", "ring", "nccl")


class CollectiveStrategy(MultiProcessStrategy):
    """A whole replicate of the model on each device of each process; TensorFlow all-reduces the gradients.

    Each process runs the same script, and knows from TF_CONFIG, SLURM or `cluster` with whom it trains. Gradients are
    averaged within each process first, and then over processes, between TensorFlow's gRPC servers; no other package is
    needed. All replicates stay identical, bit by bit.

    If another process dies, does not answer, or ends its training early, then this one ends with a `PeerError` that
    names it. One that is slow is reported in the log, and waited for.

    Args:
        devices: the devices of this process: a count, indices, or device strings.
        cluster: a `Cluster`, or a mapping with the structure of TF_CONFIG; by default the environment tells.
        communication: how gradients travel between processes: ``ring`` over gRPC, ``nccl`` between GPUs, or ``auto``.
        shard_data: whether each process takes its share of the data; otherwise all of what it is given.
        pack_bytes: gradients travel between processes in packs of up to that many bytes.
        compression: ``"fp16"`` or ``"bf16"`` sends gradients in half precision, which is half the bytes; with
            ``"fp16"``, a value above 65504 becomes infinite. None: as they are.
        mode: how gradients are reduced within the process; see `ReplicatedStrategy`.
        sync_variables: as for `ReplicatedStrategy`, over the devices of this process.
        start_timeout: for how many seconds the others may take to start.
        timeout: after how many seconds without an answer another process counts as dead.
        late_after: after how many seconds of waiting another process is reported as late.
        patience: for how many seconds another process that lives may let this one wait.
        server_config: `tf.compat.v1.ConfigProto` of TensorFlow's server, which decides about threads and GPU memory in
            place of the session's.

    Raises:
        ConfigError: if an option has a value that it cannot have, or nothing tells what the cluster is.

    Example:
        ```python
        # tpk launch -n 2 script.py
        trainer = tpk.SingleCostTrainer(tpk.use("collective", devices=2))
        ```
    """

    def __init__(
        self,
        devices: Devices = None,
        cluster: Cluster | dict[str, Any] | None = None,
        communication: str = "auto",
        shard_data: bool = True,
        pack_bytes: int = 32 * 2**20,
        compression: str | None = None,
        mode: str = "auto",
        sync_variables: bool = False,
        start_timeout: float = 300.0,
        timeout: float = 60.0,
        late_after: float = 30.0,
        patience: float = 1800.0,
        server_config: Any = None,
    ) -> None:
        super().__init__(devices, mode, DEFAULT_PACK_BYTES, sync_variables, shard_data)
        self.cluster = as_cluster(cluster)
        if self.cluster.job != WORKER:
            raise ConfigError(
                f"this process is {self.cluster.name_of(self.cluster.job, self.cluster.index)}, but strategy "
                "'collective' has no parameter servers. Start workers only, or use 'distributed_replicated'."
            )
        self._communication = check_communication(communication, self.devices[0])
        self._collective_pack_bytes = pack_bytes
        self._compression = _check_compression(compression)
        self._patience = Patience(start=start_timeout, answer=timeout, late=late_after, wait=patience)
        self._server_config = server_config
        self._target = ""
        self._peers: Peers | None = None
        self._process_group: CollectiveProcessGroup | None = None
        self._collectives: Collectives | None = None

    @property
    def world_size(self) -> int:
        """How many workers the cluster has."""
        return self.cluster.world_size

    @property
    def rank(self) -> int:
        """The number of this process among the workers."""
        return self.cluster.rank

    def describe(self) -> dict[str, Any]:
        """Return how gradients travel."""
        return {
            "communication": self._communication,
            "compression": self._compression,
            "pack_bytes": self._collective_pack_bytes,
        }

    @property
    def process_group(self) -> ProcessGroup:
        """How this process tells the others things, between `join` and `leave`."""
        return SingleProcess() if self._process_group is None else self._process_group

    @property
    def peers(self) -> Peers:
        """The other processes.

        Raises:
            TrainerStateError: before `join`.
        """
        if self._peers is None:
            raise TrainerStateError("the other processes are unknown before join(). A trainer calls it in time.")
        return self._peers

    def join(self) -> None:
        """Start TensorFlow's server of this process, and wait until all others have theirs.

        Raises:
            ConfigError: if the port is in use.
            PeerError: if some of the others do not come in time.
        """
        if self.world_size == 1:
            return
        config = self._server_config if self._server_config is not None else default_session_config()
        server = start_server(self.cluster, self._with_leader(add_cpu_devices(config, self.devices)))
        logger.info("rank %d of %d; waiting for the others", self.rank, self.world_size)
        self._target = server.target
        self._peers = Peers(self.cluster, server.target, server.trainings, self._patience)
        try:
            self._peers.meet()
            self._process_group = CollectiveProcessGroup(self.cluster, server.target, server.trainings, self._peers)
        except BaseException:
            self.leave()
            raise
        self._collectives = Collectives(
            self.rank,
            self.world_size,
            server.trainings,
            self._communication,
            self._collective_pack_bytes,
            self._compression,
        )
        logger.info("all %d processes are there", self.world_size)

    def leave(self) -> None:
        """Tell the others that this process takes no part any more; wait a while until all of them have left."""
        peers, self._peers = self._peers, None
        if peers is not None:
            peers.leave()
        process_group, self._process_group = self._process_group, None
        if process_group is not None:
            process_group.close()

    def session_config(self, config: Any) -> Any:
        """Return `config` for a session over the devices of this process alone."""
        config = super().session_config(config)
        if self.world_size == 1:
            return config
        config = self._with_leader(config)
        config.device_filters.append(device_of(WORKER, self.rank))
        config.isolate_session_state = True
        # Unlike a ring, NCCL waits for good if processes begin with different operations.
        config.experimental.collective_deterministic_sequential_execution = self._communication == "nccl"
        return config

    def session_creator(self, config: Any) -> SessionCreator:
        """Return what creates a session on TensorFlow's server of this process."""
        return NewSessionCreator(self._target, config)

    def mean_over_processes(self, tensors: Sequence[Any]) -> list[Any]:
        """Add the all-reduces to the graph."""
        return self._joined().mean(tensors)

    def broadcast_from_chief(self, variables: Sequence[Any]) -> Any:
        """Return the op that gives all processes the chief's values."""
        return self._joined().broadcast(variables)

    def after_restore(self, sess: Any) -> None:
        """Give the variables of all processes the chief's values, and those of all devices the first one's.

        Raises:
            ConfigError: if the session is none on TensorFlow's server of this process.
            PeerError: if another process is missing.
        """
        target = tf.compat.as_text(sess.sess_str)
        if target != self._target:
            raise ConfigError(
                f"strategy 'collective' needs a session on the server of this process, {self._target}, but there is "
                f"one on {target or 'none'}. Give session_config=<ConfigProto> in place of a session_creator."
            )
        with self._waiting("broadcast", sess):
            super().after_restore(sess)

    def synchronize(self, sess: Any) -> None:
        """Make non-trainable variables agree, over devices and over processes.

        Raises:
            PeerError: if another process is missing.
        """
        with self._waiting("synchronization", sess):
            super().synchronize(sess)

    def callbacks(self) -> list[Callback]:
        """Return also the callback that watches over the steps."""
        watch: list[Callback] = [WatchPeers(self)] if self.world_size > 1 else []
        return [*watch, *super().callbacks()]

    def _joined(self) -> Collectives:
        if self._collectives is None:
            raise TrainerStateError("join() has to come before the graph is built. A trainer calls it in time.")
        return self._collectives

    @contextmanager
    def _waiting(self, kind: str, sess: Any) -> Iterator[None]:
        """While it lasts, the others are needed; what fails because of one of them is a PeerError."""
        if self.world_size == 1:
            yield
            return
        self.peers.begin(kind, sess)
        try:
            yield
        except tf.errors.OpError as error:
            guilty = self.peers.explain(error)
            if guilty is None:
                raise
            raise guilty from error
        finally:
            self.peers.end()

    def _with_leader(self, config: Any) -> Any:
        adapted = tf.compat.v1.ConfigProto()
        adapted.CopyFrom(config)
        adapted.experimental.collective_group_leader = device_of(WORKER, 0)
        return adapted


class WatchPeers(Callback):
    """Says when this process is in a step, in which it needs the others, and why a step has failed."""

    chief_only = False

    def __init__(self, strategy: CollectiveStrategy) -> None:
        self._strategy = strategy

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Take what each step needs."""
        self._sess, self._begin, self._end = trainer.sess, self._strategy.peers.begin, self._strategy.peers.end

    def before_run(self, run_context: Any) -> None:
        """A step begins."""
        self._begin("step", self._sess)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """It is done."""
        self._end()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return the error that names who is to blame, if it is another process."""
        return self._strategy.peers.explain(error)

    @hookimpl(tryfirst=True)
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Let the others know why the training ends, if it fails."""
        if trainer.failure is not None:
            self._strategy.peers.note_failure(trainer.failure)


def check_communication(communication: str, device: str) -> str:
    """Return how gradients travel between processes.

    Args:
        communication: one of `COMMUNICATIONS`.
        device: the device at which the gradients of a process are.

    Raises:
        ConfigError: if there is no such way, or it cannot start there.
    """
    if communication not in COMMUNICATIONS:
        raise ConfigError(
            f"there is no communication {communication!r}; expected one of {', '.join(map(repr, COMMUNICATIONS))}."
        )
    if communication == "nccl" and not is_gpu(device):
        raise ConfigError(f"communication 'nccl' needs GPUs, but the first device is {device!r}. Use 'ring'.")
    return communication


def _check_compression(compression: str | None) -> str | None:
    if compression not in COMPRESSIONS:
        raise ConfigError(f"compression={compression!r}: expected one of {', '.join(map(repr, COMPRESSIONS))}.")
    return compression
