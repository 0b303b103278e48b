"""The base of all trainers: a graph, a session, callbacks and a loop. It assumes nothing of what a step does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.callbacks.statistics.followed import StatisticCheck, statistic_followers
from tpk.checkpoint.session_init import as_session_init
from tpk.errors import ConfigError, TrainerStateError, without_frames
from tpk.graph.determinism import warn_of_stateful_random_ops
from tpk.graph.devices import add_logical_devices
from tpk.graph.random import set_process_index, step_reads
from tpk.graph.reports.overview import log_model_overview
from tpk.graph.steps import StepCounter, get_global_step_var
from tpk.monitors.history import History
from tpk.monitors.monitors import Monitors
from tpk.plugin.base import Plugin
from tpk.plugin.callback import Callback
from tpk.plugin.catalog import get_catalog
from tpk.plugin.hook_names import check_names
from tpk.plugin.manager import HookManager
from tpk.plugin.run_options import RunOptions
from tpk.plugin.step import StepHooks
from tpk.session.creator import (
    NewSessionCreator,
    SessionCreator,
    as_session_creator,
    default_session_config,
    running_queues,
)
from tpk.session.hooked import HookedSession
from tpk.strategies.base import NullStrategy, Strategy
from tpk.tower.handle import TowerHandles
from tpk.train.agreement import AgreedCheckpoints, check_agreement
from tpk.train.checks import check_train_ops
from tpk.train.epoch import FOREVER, describe_epoch
from tpk.train.loop import TrainLoop
from tpk.train.reproducibility import reproducible
from tpk.train.resume.checkpoints import Checkpoints
from tpk.train.resume.preemption import handling_signals
from tpk.train.resume.resumption import Resumption
from tpk.train.run.directory import check_resume, default_run_dir, set_checkpoints_aside
from tpk.train.run.record import RunRecord
from tpk.train.run.report import outcome_logged
from tpk.train.steps_per_run import check_steps_per_run

if TYPE_CHECKING:
    import os

    from tpk.checkpoint.files import Checkpoint
    from tpk.input_source.base import InputSource

logger = logging.getLogger(__name__)

DEFAULT_CALLBACKS = (
    "MovingAverageSummary",
    "EpochMeans",
    "LearningRateMonitor",
    "ThroughputTracker",
    "ProgressBar",
    "MergeAllSummaries",
    "RunUpdateOps",
)
DEFAULT_MONITORS = ("TFEventWriter", "JSONWriter", "ScalarPrinter")


class Trainer(Plugin):
    """Trains anything that runs in a loop.

    A subclass either sets `train_op` or overrides `run_step`; the loop assumes nothing else. A trainer owns a graph:
    the active one if there is one, otherwise its own. It trains once. It is a plugin of its own training: its methods
    that `tpk.hookimpl` marks are called as hooks.

    Constructing a trainer imports nothing, opens nothing, and meets no other process. `train` does that, in phases.
    A subclass may override them, and they may be called by hand in this order; `setup` calls those before the loop:

    - `resolve_plugins`: names become plugins. The later phases do it themselves if they are given names.
    - ``setup_graph``, of trainers that have it: other processes are met, and the towers are built.
    - `setup_callbacks`: the trainer, its strategy, callbacks and monitors are registered, and add to the graph.
    - `initialize`: the graph is finalized, the session created, and variables are initialized or restored.
    - `main_loop`: the loop; see `tpk.train.loop`.

    Attributes:
        graph: the `tf.Graph` of the training.
        train_op: what a step runs: an op, or anything that `Session.run` takes.
        loop: runs and counts the steps: `loop.max_epoch`, `loop.failure` and others; see `tpk.train.loop`.
        hooks: the registry: the trainer, its strategy, each monitor and each callback, under unique names.
        input_source: where the data comes from, whose position checkpoints hold; None if the trainer has no such thing.
        monitors: what takes scalars, summaries and images; see `tpk.Monitors`. Set by `setup_callbacks`.
        sess: the raw session; running it triggers no hook. Set by `initialize`.
        hooked_sess: the session whose `run` triggers the hooks of the step. Set by `initialize`.
        step_hooks: the hooks of the step, compiled. Set by `initialize`.
        run_dir: where the run keeps its files, or None.

    Example:
        ```python
        class LeastSquares(tpk.Trainer):
            def __init__(self, x, y):
                super().__init__()
                with self.graph.as_default():
                    w = tf.compat.v1.get_variable("w", [x.shape[1], 1])
                    cost = tf.reduce_mean((tf.constant(x) @ w - y) ** 2, name="cost")
                    self.train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(cost)

        LeastSquares(x, y).train(steps_per_epoch=100, max_epoch=5)
        ```
    """

    kind = "trainer"

    def __init__(self) -> None:
        self.graph: Any = tf.Graph() if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self.train_op: Any = None
        self.loop = TrainLoop(self)
        self.input_source: InputSource | None = None
        self.run_dir: Path | None = None
        self.hooks = HookManager(self.loop.stop.set_by_exception)
        self.monitors = Monitors(self)
        self.sess: Any = None
        self.hooked_sess: HookedSession
        self.step_hooks: StepHooks
        self.registered_callbacks: list[Any] = []
        self._entered: set[str] = set()
        self._serves_others = False
        self._start_from: Checkpoint | None = None
        self._resumption: Resumption | None = None
        self._resume = "never"
        self._resources = ExitStack()

    # What a subclass overrides.

    @property
    def train_ops(self) -> list[Any]:
        """What the runs of a step run: `train_op`. A trainer whose steps run several ops returns each of them.

        Each is done before `tf.compat.v1.train.get_global_step()` counts its run; so what it reads of that does not
        depend on chance.
        """
        return [] if self.train_op is None else [self.train_op]

    def run_step(self) -> None:
        """Run one step: `train_op`, together with the hooks. Override it to make a step something else.

        Raises:
            TrainerStateError: if there is no `train_op`.
        """
        if self.train_op is None:
            raise TrainerStateError(
                f"{type(self).__name__} has no train_op. Before train(), set self.train_op, made under "
                "`with self.graph.as_default():`; or override run_step()."
            )
        self.hooked_sess.run(self.train_op)

    def state_dict(self) -> dict[str, Any]:
        """Return what the trainer itself must keep over a restart, as plain data; not variables, nor its callbacks'."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of the trainer that must be the same in all processes, as plain data for ``config.json``."""
        return {}

    @cached_property
    def strategy(self) -> Strategy:
        """How a step is replicated over devices and processes; without towers, it is not."""
        return NullStrategy()

    @property
    def towers(self) -> TowerHandles:
        """The towers of the model built so far; none in a trainer that has no tower function."""
        return TowerHandles()

    @property
    def compiles_loops(self) -> bool:
        """Whether XLA compiles the loop over the steps of a run as one."""
        return False

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes: checkpoints, statistics, events."""
        return self.strategy.is_chief

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Takes checkpoints when all callbacks have done their part; see `tpk.train.resume.checkpoints`."""
        return Checkpoints(self) if self.strategy.world_size == 1 else AgreedCheckpoints(self)

    @property
    def history(self) -> History:
        """The statistics that were reported so far, also after the training: values, epochs, steps; plots."""
        return self.monitors.history

    # How far the training is.

    @property
    def epoch_num(self) -> int:
        """The epoch under way, from just before `before_epoch` until after `trigger_epoch`."""
        return self.loop.progress.epoch_num

    @property
    def local_step(self) -> int:
        """The step under way within the epoch, from 0 on; -1 before the first."""
        return self.loop.progress.local_step

    @property
    def global_step(self) -> int:
        """How many steps have completed, however often each ran a session."""
        return self.loop.progress.global_step

    # What a caller does.

    def register_callback(self, callback: Any) -> None:
        """Add a callback before `train`, such as in ``setup_graph`` of a trainer, but not in a hook of a callback.

        It is called before those that are given to `train`.

        Args:
            callback: an instance, a class, a name, ``"module:attr"``, or `tpk.use`; or a list of such.

        Raises:
            TrainerStateError: if callbacks are set up already, or just being set up.
        """
        if "setup_callbacks" in self._entered:
            raise TrainerStateError(
                f"{callback!r} comes too late: the callbacks of this trainer are set up already, or just being set up. "
                "Register it before train(), and not in a hook; a callback that needs another one can call its methods."
            )
        self.registered_callbacks.extend(callback if isinstance(callback, list | tuple) else [callback])

    def train(
        self,
        *,
        build: Callable[[], None] | None = None,
        callbacks: Sequence[Any] | None = (),
        monitors: Sequence[Any] | None = (),
        session_creator: Any = None,
        session_config: Any = None,
        session_init: Any = None,
        steps_per_epoch: int | None = None,
        starting_epoch: int = 1,
        max_epoch: int = FOREVER,
        run_dir: str | os.PathLike[str] | None = None,
        resume: str = "never",
        seed: int | None = None,
        deterministic: bool = False,
        run_file: str = "",
        describe: Mapping[str, Any] | None = None,
    ) -> None:
        """Train, with no callbacks and monitors but these.

        Args:
            build: builds the graph, once all plugins are resolved and other processes are met; None if it is built.
            callbacks: what happens besides: instances, classes, names, ``"module:attr"``, or `tpk.use`; None for none.
            monitors: what takes the statistics, named in the same ways.
            session_creator: where the session comes from: a `SessionCreator`, or one of TensorFlow's, such as
                `tf.compat.v1.train.ChiefSessionCreator`; by default a new one.
            session_config: `tf.compat.v1.ConfigProto` of that new session.
            session_init: what gives variables their values: a `SessionInit`, a mapping of names to arrays, or the
                path of a checkpoint, from which the weights are taken, and not ``learning_rate``, ``global_step`` and
                the state of optimizers (`SaverRestore(path)` restores everything).
            steps_per_epoch: how many steps an epoch has; 0 for epochs of callbacks only; None for one pass over the
                data.
            starting_epoch: the number of the first epoch.
            max_epoch: the number of the last epoch.
            run_dir: where the run keeps its files; it is created. None: nowhere.
            resume: ``"auto"`` goes on from the newest complete checkpoint in `run_dir`, and starts afresh if there is
                none; ``"must"`` makes that an error; ``"never"`` wants a `run_dir` that holds no run; ``"keep"`` starts
                afresh beside what is there, see `TrainConfig`. A training that goes on takes nothing from
                `session_init` and `starting_epoch`.
            seed: as in `TrainConfig`. The graph must have the same seed before anything is built in it:
                ``tf.compat.v1.set_random_seed(seed)`` under ``with trainer.graph.as_default():``.
            deterministic: as in `TrainConfig`.
            run_file: the text of ``config.toml`` in `run_dir`, which repeats the run; empty for none.
            describe: what is written to ``config.json`` of `run_dir` besides what the trainer knows of the run.

        Raises:
            TrainerStateError: if this trainer has trained before.
            ConfigError: if an argument has a value that it cannot have, or `run_dir` is in use.
            CheckpointError: if it is to go on from a checkpoint that is not there, or does not fit.
            Preempted: if SIGTERM or SIGUSR1 has ended it: after a step, with a checkpoint if there is a place for it.
        """
        check_resume(resume, run_dir)
        as_session_creator(session_creator)
        if session_creator is not None and session_config is not None:
            raise ConfigError(
                "session_creator and session_config exclude each other. Give the config to the session creator."
            )
        self._enter("train")
        self.loop.set_epochs(0 if steps_per_epoch is None else steps_per_epoch, starting_epoch, max_epoch)
        options = RunOptions(
            steps_per_epoch=self.loop.steps_per_epoch,
            starting_epoch=self.loop.starting_epoch,
            max_epoch=self.loop.max_epoch,
            run_dir=run_dir,
            resume=resume,
            resources=self._resources,
        )
        description = {
            "session_init": session_init,
            "session_config": session_config,
            "seed": seed,
            "deterministic": deterministic,
            **(describe or {}),
        }
        with self._resources:
            self._resources.enter_context(reproducible(self, seed, deterministic))
            record = RunRecord(self, options, description, run_file, is_one_pass=steps_per_epoch is None)
            self.setup(
                build=build,
                callbacks=callbacks,
                monitors=monitors,
                session_creator=session_creator or NewSessionCreator(config=session_config),
                session_init=session_init,
                record=record,
            )
            if self.serves_others:
                return
            record.record_directions()
            try:
                self.main_loop(self.loop.steps_per_epoch, self.loop.starting_epoch, self.loop.max_epoch)
            except KeyboardInterrupt as end:
                raise without_frames(end) from None

    def train_with_defaults(
        self,
        *,
        callbacks: Sequence[Any] | None = (),
        extra_callbacks: Sequence[Any] | None = None,
        monitors: Sequence[Any] | None = None,
        extra_monitors: Sequence[Any] = (),
        run_dir: str | os.PathLike[str] | None = None,
        resume: str = "never",
        **options: Any,
    ) -> None:
        """Train as `train` does, with the default callbacks and monitors besides.

        Args:
            callbacks: called before the extra ones.
            extra_callbacks: by default `MovingAverageSummary`, `EpochMeans`, `LearningRateMonitor`,
                `ThroughputTracker`, `ProgressBar`, `MergeAllSummaries` and `RunUpdateOps`, and what plugins add by
                ``tpk_default_callbacks``.
            monitors: by default `TFEventWriter`, `JSONWriter` and `ScalarPrinter`.
            extra_monitors: further ones, besides these.
            run_dir: by default ``runs/<script>/<timestamp>``.
            resume: as in `train`; it needs a `run_dir`.
            options: the other arguments of `train`.
        """
        check_resume(resume, run_dir)
        self.train(
            callbacks=[*(callbacks or ()), *(self.default_callbacks() if extra_callbacks is None else extra_callbacks)],
            monitors=[*(DEFAULT_MONITORS if monitors is None else monitors), *extra_monitors],
            run_dir=default_run_dir() if run_dir is None else run_dir,
            resume=resume,
            **options,
        )

    def default_callbacks(self, config: Any = None) -> list[Any]:
        """Return the callbacks that every training has unless told otherwise, and those that plugins add.

        Args:
            config: the `TrainConfig`, if there is one, for these plugins.
        """
        self.hooks.autoload()
        added = self.hooks.hook.tpk_default_callbacks(config=config)
        return [*DEFAULT_CALLBACKS, *(callback for some in added for callback in some)]

    def request_stop(self, reason: str) -> None:
        """End the training in good order when the step under way is over, or the epoch, if it is in its last hooks.

        All callbacks do their part of that moment. So they do when one of them raises `StopTraining`, which also ends
        the hook that raises it.

        Args:
            reason: what the log says.
        """
        self.loop.stop.set(reason)

    # The phases of a training.

    def setup(
        self,
        *,
        build: Callable[[], None] | None = None,
        callbacks: Sequence[Any] | None = (),
        monitors: Sequence[Any] | None = (),
        session_creator: Any = None,
        session_init: Any = None,
        record: RunRecord | None = None,
    ) -> None:
        """Do everything that comes before the loop, in its phases.

        Args:
            build: as for `train`.
            callbacks: as for `train`.
            monitors: as for `train`.
            session_creator: as for `train`; by default a new one, as the strategy wants it.
            session_init: as for `train`.
            record: where the run is recorded; None for nowhere.
        """
        callbacks, monitors = self.resolve_plugins(callbacks, monitors)
        self.join()
        if self.serves_others:
            return
        if build is not None:
            build()
        if record is not None:
            self._resources.enter_context(record)
            record.open([*self.registered_callbacks, *callbacks], monitors)
            self.run_dir, self._start_from, self._resume = record.directory, record.start, record.resume
        self.setup_callbacks(callbacks, monitors)
        self.initialize(session_creator, session_init)

    def join(self) -> None:
        """Meet the other processes of the training, once. A process that only serves the others does so here.

        Raises:
            PeerError: if they do not come in time.
        """
        if "join" in self._entered:
            return
        self._enter("join")
        self.strategy.join()
        self._resources.callback(self.strategy.leave)
        with self.leaving_if_it_fails():
            self._serves_others = self.strategy.serve()
        if self._serves_others:
            self._resources.close()
        if self.strategy.rank > 0:
            with self.graph.as_default():
                set_process_index(self.strategy.rank)

    @contextmanager
    def leaving_if_it_fails(self) -> Iterator[None]:
        """Leave the other processes if what is done within the context fails: they should not wait for this one."""
        with ExitStack() as failing:
            failing.push(self._resources)
            yield
            failing.pop_all()

    def resolve_plugins(
        self, callbacks: Sequence[Any] | None = (), monitors: Sequence[Any] | None = ()
    ) -> tuple[list[Any], list[Any]]:
        """Turn what callbacks and monitors were named by into plugins, and load those that no script names.

        An instance stays what it is, so it does no harm to do that twice. Nothing is added to the graph.

        Args:
            callbacks: as for `train`.
            monitors: as for `train`.

        Returns:
            The callbacks and the monitors, as instances.

        Raises:
            PluginError: if something that is named cannot be used.
        """
        check_names(self)
        self.hooks.autoload()
        catalog = get_catalog()
        self.registered_callbacks = [catalog.resolve("callback", callback) for callback in self.registered_callbacks]
        return (
            [catalog.resolve("callback", callback) for callback in callbacks or ()],
            [catalog.resolve("monitor", monitor) for monitor in monitors or ()],
        )

    def setup_callbacks(self, callbacks: Sequence[Any] | None = (), monitors: Sequence[Any] | None = ()) -> None:
        """Register the strategy, all callbacks and monitors, and let them add to the graph; then it is complete.

        Args:
            callbacks: as for `train`; those of `register_callback` come before them.
            monitors: as for `train`.

        Raises:
            PluginError: if one of them cannot be used.
            TrainerStateError: if that was done already.
        """
        self._enter("setup_callbacks")
        callbacks, monitors = self.resolve_plugins(callbacks, monitors)
        given = [self.strategy, *self.registered_callbacks, *callbacks, *monitors]
        here = [each for each in given if self.is_chief or (isinstance(each, Callback) and not each.chief_only)]
        self.hooks.register_all([self, *here])
        # In all processes alike: also where only the chief runs those that follow a statistic.
        followers = statistic_followers(given)
        followed = [follower.statistic.name for follower in followers]
        self.monitors = Monitors(self, monitors, is_chief=self.is_chief, followed=followed)
        for plugin in self.hooks.plugins.values():
            if isinstance(plugin, Callback):
                plugin.trainer = self
        logger.debug("plugins: %s", ", ".join(self.hooks.plugins) or "none")
        with self.graph.as_default():
            check_steps_per_run(self)
            get_global_step_var()
            self.hooks.hook.setup_graph(trainer=self)
            check_train_ops(self)
            # Last of all: savers have made themselves known by now, and what others do of a moment comes before.
            last: list[Callback] = [self.checkpoints]
            if followers:
                last.append(StatisticCheck(followers))
            if self._start_from is not None:
                self._resumption = Resumption(self._start_from)
                last.insert(0, self._resumption)
            self.hooks.register_all(last)
            self.strategy.complete_graph()
            warn_of_stateful_random_ops(self.train_ops)
            log_model_overview(self.graph)

    def initialize(self, session_creator: Any = None, session_init: Any = None) -> None:
        """Finalize the graph, create the session, and give variables their values.

        Args:
            session_creator: as for `train`; by default a new one, as the strategy wants it.
            session_init: as for `train`.

        Raises:
            TrainerStateError: before `setup_callbacks`.
            MismatchError: if other processes of the training are about to train something else.
            CheckpointError: if values do not fit.
        """
        self._enter("initialize", after="setup_callbacks")
        restores = self._start_from is None and self.is_chief
        initial = as_session_init(session_init, weights_only=True) if restores else None
        if self._start_from is not None and session_init is not None:
            logger.info("session_init is not applied, since the run is resumed")
        creator = self._adapted(session_creator)
        with self.graph.as_default():
            global_step = get_global_step_var()
            counter = StepCounter(self.train_ops, global_step, step_reads())
            check_agreement(self)
            self.sess = creator.create_session(self.graph)
        if creator.owns_session:
            self._resources.callback(self.sess.close)
        if initial is not None:
            initial.run(self.sess)
        self.strategy.after_restore(self.sess)
        self._resources.enter_context(running_queues(self.sess, creator.owns_session))
        self.graph.finalize()
        self.loop.progress.global_step = int(self.sess.run(global_step))
        self.step_hooks = self.hooks.compile_step()
        self.hooked_sess = HookedSession(
            self.sess,
            self.step_hooks,
            self.loop.progress,
            counter=counter,
            translate=self.hooks.translate_error,
            stop=self.loop.stop,
            xla=self.compiles_loops,
            # Other processes' answers arrive in a thread that must not be blocked.
            tries_threads=self.strategy.world_size == 1,
        )
        if self._resumption is not None:
            self._resumption.begin(self)
        elif self._resume == "auto":
            self.monitors.start_over()
        elif self._resume == "keep" and self.run_dir is not None:
            set_checkpoints_aside(self.run_dir, self.global_step)

    def main_loop(self, steps_per_epoch: int, starting_epoch: int = 1, max_epoch: int = FOREVER) -> None:
        """Run the loop, and release what the training holds, however it ends.

        Args:
            steps_per_epoch: how many steps an epoch has.
            starting_epoch: the number of the first epoch.
            max_epoch: the number of the last epoch.

        Raises:
            ConfigError: if one of them is no number that it can be.
            TrainerStateError: before `initialize`, or if this trainer has trained before.
        """
        self._enter("main_loop", after="initialize")
        if self._resumption is None:
            self.loop.set_epochs(steps_per_epoch, starting_epoch, max_epoch)
        logger.info("%s", describe_epoch(self))
        start = None if self._start_from is None else Path(self._start_from.prefix)
        with self._resources, self.graph.as_default(), self.sess.as_default(), handling_signals(self.loop.stop):
            with outcome_logged(self, start):
                self.loop.run()
            self.strategy.process_group.barrier("the end of the training")

    @property
    def serves_others(self) -> bool:
        """Whether this process only serves the others, as a parameter server does; known after `join`."""
        return self._serves_others

    def _adapted(self, given: Any) -> SessionCreator:
        """Return what creates the session, with a config and on a target as the strategy wants them."""
        creator = as_session_creator(given)
        if type(creator) is NewSessionCreator and not creator.target:
            return self.strategy.session_creator(self.strategy.session_config(creator.config))
        if isinstance(creator, NewSessionCreator):
            creator.config = self.strategy.session_config(creator.config)
        elif creator is not given:
            config = add_logical_devices(default_session_config(), [])
            if self.strategy.session_config(config) != config:
                raise ConfigError(
                    f"session_creator={given!r}: {type(self.strategy).__name__} needs a session with a config of its "
                    "own. Give session_config=<ConfigProto>, and session_init=<checkpoint>."
                )
        return creator

    def _enter(self, phase: str, after: str | None = None) -> None:
        """Enter a phase: once, and after another one.

        Raises:
            TrainerStateError: if it has been entered, or the other one has not.
        """
        if phase in self._entered:
            raise TrainerStateError(
                f"{phase}() was called already on this {type(self).__name__}; a trainer trains once. Make a new one, "
                "and give it session_init=tpk.SaverRestore(<the checkpoint>) to continue from there."
            )
        if after is not None and after not in self._entered:
            raise TrainerStateError(f"{phase}() comes after {after}().")
        self._entered.add(phase)
