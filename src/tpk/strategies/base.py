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
from tpk.strategies.processes.process_group import ProcessGroup, SingleProcess
from tpk.tower.context import PredictTowerContext
from tpk.tower.tower_func import TowerFunc

if TYPE_CHECKING:
    from tpk.input_source.base import InputSource

DEVICE_SPELLINGS: dict[str, str] = {"gpus": "devices", "nr_gpu": "devices", "tower": "devices", "nr_tower": "devices"}
"""What graph-mode users call the devices of a strategy or a trainer."""

USE_NCCL = "write mode='nccl' for True, and mode='copy' for False; 'auto' takes NCCL on several GPUs."
GPU_PREFETCH = (
    "a dataflow is staged on GPUs by default. For none of that write TrainConfig(data=tpk.QueueInput(flow)), and for "
    "it tpk.StagingInput(tpk.QueueInput(flow))."
)

SCALE_GRADIENT = "write scale_gradient= for it: whether gradients are divided by the number of towers."

GetInputs = Callable[[], Sequence[Any]]


class Strategy(Callback, abc.ABC):
    """How one step is replicated over devices and processes.

    It is a plugin like any other: what it does at moments of a training, it does in the hooks of a `Callback`, in every
    process. It is called before all callbacks.

    Besides, a trainer asks it, in this order: `join`, `prepare_input`, `build`, `callbacks`, and, when it is about to
    create the session, `complete_graph` and `open_session`; at the very end `leave`. Checkpoints
    hold what `replicate_variables` returns besides the global variables, and `after_restore` follows whenever these
    have got their values: from their initializers, or from a checkpoint, which only the chief reads. Third parties ship
    theirs by the entry-point group ``tpk.strategies``.

    In a training of several processes, each runs the same script. The one with `rank` 0, the chief, writes.
    """

    kind: ClassVar[str] = "strategy"
    chief_only = False
    devices: Sequence[str] = ()
    """The device strings of the towers of this process; none if TensorFlow places their ops."""
    repeats_steps: bool = False
    """Whether a step is all in the graph, so that a loop there can make many of them in one run."""
    seconds_between_meetings: float = 1.0
    """How often the processes meet within an epoch, to end or to save together. Meetings make workers wait."""
    is_reproducible: bool = True
    """Whether two runs with one seed train alike, as far as it depends on the strategy."""

    @property
    def num_replicas(self) -> int:
        """How many towers this process trains."""
        return max(len(self.devices), 1)

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return 1

    @property
    def rank(self) -> int:
        """The number of this process among those that train together, from 0 on."""
        return 0

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes: checkpoints, statistics, events."""
        return self.rank == 0

    @property
    def stages_input(self) -> bool:
        """Whether a dataflow is staged on the devices of the towers by default: if there is a GPU among them."""
        return any(map(is_gpu, self.devices))

    def describe(self) -> dict[str, Any]:
        """Return the options that must be the same in all processes, as plain data for ``config.json``."""
        return {}

    @property
    def process_group(self) -> ProcessGroup:
        """How this process tells the others things, between `join` and `leave`."""
        return SingleProcess()

    def join(self) -> None:
        """Meet the other processes; called once, before anything is built. It waits for them.

        Raises:
            PeerError: if they do not come in time.
        """

    @property
    def is_server(self) -> bool:
        """Whether this process does not train, but only serves the others, as a parameter server does."""
        return False

    def serve(self) -> None:
        """Serve the others until they are done, if this process `is_server`; called after `join`."""

    def leave(self) -> None:
        """Part from the other processes; called once the session is closed, however the training ended."""

    def session_config(self, config: Any) -> Any:
        """Return the `tf.compat.v1.ConfigProto` of the session: `config` with the logical devices of the towers."""
        return add_logical_devices(config, self.devices)

    def session_creator(self, config: Any) -> SessionCreator:
        """Return what creates the session.

        Args:
            config: a `tf.compat.v1.ConfigProto`, as `session_config` returned it.
        """
        return NewSessionCreator(config=config)

    @contextmanager
    def open_session(self, creator: Any, graph: Any, session_init: Any = None) -> Iterator[Any]:
        """Within the context, there is a session of the training; its value is the raw session.

        Args:
            creator: as for `as_session_creator`.
            graph: the complete graph.
            session_init: gives variables their values; None for none.

        Raises:
            ConfigError: if the session has another config than the strategy needs.
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
                    f"session_creator={creator.creator!r}: {type(self).__name__} needs a session with a config of its "
                    "own. Give session_config=<ConfigProto>, and session_init=<checkpoint>."
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

        A run of a train op, with whatever else it fetches from the towers and with their update ops, sees the variables
        as they were before the update: a strategy builds train ops by `apply_in_groups` and `after_reads`. What is
        built later, and a fetch of the variable itself, is in no order with the update, as in TensorFlow. To fetch the
        value from before, let the tower function make a tensor of it, such as ``tf.identity(w, name="w_before")``;
        for the one from after, read it under ``tf.control_dependencies([trainer.train_op])``, or in the next run.

        Args:
            tower_func: builds a tower, and returns its cost, or a dict of costs.
            get_inputs: each call returns the input tensors of one more tower.
            objectives: what is minimized.
            groups: for each op that is wanted, which objectives it minimizes by one step. All gradients of a group
                are computed before any of them is applied; those of one variable are applied in the order of the group.

        Returns:
            For each group the op that makes one step of all towers.
        """

    def callbacks(self) -> list[Callback]:
        """Return the callbacks that the strategy needs besides its own hooks; called after `build`."""
        return []

    def complete_graph(self) -> None:
        """Add to the default graph what concerns all variables, now that callbacks have added theirs, too."""

    def replicate_variables(self) -> list[Any]:
        """Return the variables in which replicates may differ from the first one, so that a checkpoint must hold them.

        Called once the graph is complete.
        """
        return []

    def after_restore(self, sess: Any) -> None:
        """Make the replicates agree, once the variables of the first one have been initialized or restored.

        Args:
            sess: the raw session.
        """

    def predict_context(self, ns_name: str) -> PredictTowerContext:
        """Return the context in which an inference tower with this name scope is built."""
        return PredictTowerContext(ns_name=ns_name)


class NullStrategy(Strategy):
    """The strategy of a trainer that has no towers: there is one process, and nothing is replicated."""

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Refuse.

        Raises:
            TowerError: always.
        """
        raise TowerError("a trainer without a strategy builds no towers. Derive it from tpk.TowerTrainer.")
