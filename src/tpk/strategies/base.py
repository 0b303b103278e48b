"""The base of strategies: how one step is replicated over devices and processes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from tpk.checkpoint.session_init import as_session_init
from tpk.errors import ConfigError, TowerError
from tpk.graph.devices import add_logical_devices, is_gpu
from tpk.graph.objective import Objective
from tpk.plugin.callback import Callback
from tpk.session.creator import (
    GivenSessionCreator,
    NewSessionCreator,
    SessionCreator,
    as_session_creator,
    default_session_config,
    running_queues,
)
from tpk.strategies.process_group import ProcessGroup, SingleProcess
from tpk.tower.context import PredictTowerContext
from tpk.tower.tower_func import TowerFunc

if TYPE_CHECKING:
    from tpk.input_source.base import InputSource

DEVICE_SPELLINGS: dict[str, str] = {"gpus": "devices", "nr_gpu": "devices", "tower": "devices", "nr_tower": "devices"}
"""Other names for the devices of a strategy or a trainer."""

USE_NCCL = "write mode='nccl' for True, and mode='copy' for False; 'auto' uses NCCL on several GPUs."
GPU_PREFETCH = (
    "a dataflow is staged on GPUs by default. To turn that off, write TrainConfig(data=tpk.QueueInput(flow)); to turn "
    "it on, write tpk.StagingInput(tpk.QueueInput(flow))."
)
"""What to write instead of tensorpack's option ``gpu_prefetch``."""

SCALE_GRADIENT = "write scale_gradient=, which divides gradients by the number of towers."

GetInputs = Callable[[], Sequence[Any]]


class Strategy(Callback, abc.ABC):
    """How one step is replicated over devices and processes.

    A strategy is a plugin: it may override the hooks of a `Callback`, which are called in every process, before the
    hooks of all callbacks.

    In addition, a trainer calls its methods in this order: `join`, `prepare_input`, `build` and `callbacks`; before it
    creates the session, `complete_graph` and `open_session`; and at the very end `leave`. Checkpoints contain the
    global variables and the result of `replicate_variables`. `after_restore` is called whenever these variables have
    new values: from their initializers, or from a checkpoint, which only the chief reads. Third-party packages provide
    strategies in the entry-point group ``tpk.strategies``.

    In a training with several processes, each runs the same script. The chief, which has `rank` 0, writes the files.
    """

    kind: ClassVar[str] = "strategy"
    chief_only = False
    devices: Sequence[str] = ()
    """The device strings of the towers of this process; empty if TensorFlow places their ops."""
    builds_towers: ClassVar[bool] = True
    """False only for the strategy of a trainer without towers."""
    repeats_steps: bool = False
    """Whether a step is completely in the graph, so that a loop there can run many of them."""
    seconds_between_meetings: float = 1.0
    """The interval at which processes meet within an epoch, to end or to save together. Workers wait in a meeting."""
    is_reproducible: bool = True
    """Whether the strategy computes the same in two runs with the same seed."""

    @property
    def num_replicas(self) -> int:
        """The number of towers that this process trains."""
        return max(len(self.devices), 1)

    @property
    def world_size(self) -> int:
        """The number of processes that train together."""
        return 1

    @property
    def rank(self) -> int:
        """The number of this process among the processes that train together, from 0."""
        return 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, statistics and events."""
        return self.rank == 0

    @property
    def stages_input(self) -> bool:
        """Whether a dataflow is staged on the devices by default: if one of them is a GPU."""
        return any(map(is_gpu, self.devices))

    def describe(self) -> dict[str, Any]:
        """Return the options that must be the same in all processes, as plain data for ``config.json``."""
        return {}

    @property
    def process_group(self) -> ProcessGroup:
        """How this process communicates with the others, between `join` and `leave`."""
        return SingleProcess()

    def join(self) -> None:
        """Wait for the other processes; called once, before anything is built.

        Raises:
            PeerError: if they do not arrive in time.
        """

    @property
    def is_server(self) -> bool:
        """Whether this process does not train, but only serves the others, like a parameter server."""
        return False

    def serve(self) -> None:
        """Serve the others until they are done; called after `join` if this process `is_server`."""

    def leave(self) -> None:
        """Leave the other processes; called once the session is closed, also if the training failed."""

    def session_config(self, config: Any) -> Any:
        """Return the `tf.compat.v1.ConfigProto` of the session: `config` with the logical devices of the towers."""
        return add_logical_devices(config, self.devices)

    def session_creator(self, config: Any) -> SessionCreator:
        """Return the session creator.

        Args:
            config: a `tf.compat.v1.ConfigProto`, as `session_config` returned it.
        """
        return NewSessionCreator(config=config)

    @contextmanager
    def open_session(self, creator: Any, graph: Any, session_init: Any = None) -> Iterator[Any]:
        """Return a context in which the session of the training is open; its value is the raw session.

        Args:
            creator: as for `as_session_creator`.
            graph: the complete graph.
            session_init: restores variables; None to keep their initial values.

        Raises:
            ConfigError: if the session does not have the config that the strategy needs.
            CheckpointError: if values do not fit.
        """
        initial = as_session_init(session_init, weights_only=True)
        creator = self._adapted(as_session_creator(creator))
        sess = creator.create_session(graph)
        try:
            if initial is not None:
                initial.run(sess)
            self.after_restore(sess)
            with running_queues(sess, creator.owns_session):
                yield sess
        finally:
            if creator.owns_session:
                sess.close()

    def _adapted(self, creator: SessionCreator) -> SessionCreator:
        """Return a session creator with the config and target that the strategy needs."""
        if isinstance(creator, NewSessionCreator):
            config = self.session_config(creator.config)
            if type(creator) is NewSessionCreator and not creator.target:
                return self.session_creator(config)
            creator.config = config
        elif isinstance(creator, GivenSessionCreator):
            config = add_logical_devices(default_session_config(), [])
            if self.session_config(config) != config:
                raise ConfigError(
                    f"session_creator={creator.creator!r}: {type(self).__name__} needs a session with its own config. "
                    "Pass session_config=<ConfigProto> and session_init=<checkpoint> instead."
                )
        return creator

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return the input source that delivers the data of `source` to the devices and processes."""
        if self.devices:
            source.place_on(self.devices)
        return source

    @abc.abstractmethod
    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the training towers in the default graph.

        A run of a train op sees the variables as they were before the update, also in other fetches from the towers and
        in update ops: a strategy builds train ops by `apply_in_groups` and `after_reads`. Ops that are built later, and
        a fetch of the variable itself, have no defined order with the update, as in TensorFlow. To fetch the value
        before the update, create a tensor in the tower function, such as ``tf.identity(w, name="w_before")``; to fetch
        the value after it, read it under ``tf.control_dependencies([trainer.train_op])``, or in the next run.

        Args:
            tower_func: builds a tower, and returns its cost, or a dict of costs.
            get_inputs: each call returns the input tensors of the next tower.
            objectives: the costs to minimize.
            groups: the objectives that each returned op minimizes. All gradients of a group are computed before any of
                them is applied; several gradients of one variable are applied in the order of the group.

        Returns:
            For each group, the op that runs one step of all towers.
        """

    def callbacks(self) -> list[Callback]:
        """Return the callbacks that the strategy needs in addition to its own hooks; called after `build`."""
        return []

    def complete_graph(self) -> None:
        """Add ops for all variables to the default graph; called when callbacks have added theirs."""

    def replicate_variables(self) -> list[Any]:
        """Return the variables in which replicas may differ from the first one, so that checkpoints must contain them.

        Called when the graph is complete.
        """
        return []

    def after_restore(self, sess: Any) -> None:
        """Synchronize the replicas after the variables of the first one were initialized or restored.

        Args:
            sess: the raw session.
        """

    def predict_context(self, ns_name: str) -> PredictTowerContext:
        """Return the context to build an inference tower in, with this name scope."""
        return PredictTowerContext(ns_name=ns_name)


class NullStrategy(Strategy):
    """The strategy of a trainer without towers: one process, and nothing is replicated."""

    builds_towers = False

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Raise a `TowerError`."""
        raise TowerError("a trainer without a strategy cannot build towers. Derive it from tpk.TowerTrainer.")
