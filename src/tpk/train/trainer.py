"""The base class of all trainers: a graph, and the phases of its training. A step may do anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import TrainerStateError, short_tracebacks
from tpk.graph.random import set_process_index, step_reads
from tpk.graph.step_counter import StepCounter, get_global_step_var
from tpk.monitors import History, Monitors
from tpk.plugin import Callback, HookManager, Plugin, get_catalog
from tpk.plugin.run_settings import FOREVER, RunSettings, StrPath
from tpk.session import HookedSession, as_session_creator
from tpk.strategies.base import NullStrategy, Strategy
from tpk.tower.handle import TowerHandles
from tpk.train.agreement import check_agreement, make_checkpoints
from tpk.train.loop import TrainLoop
from tpk.train.phases import Phases, explain_missing, open_session
from tpk.train.reproducibility import check_determinism, reproducible
from tpk.train.run.record import RunRecord
from tpk.train.run.run_directory import default_run_dir
from tpk.train.trainer_checks import check_graph, check_steps_per_run, followed_statistics

if TYPE_CHECKING:
    from pathlib import Path

    from tpk.input_source.base import InputSource
    from tpk.train.resume.checkpoints import Checkpoints
    from tpk.train.resume.state import Resumption

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

    A subclass either sets `train_op` or overrides `run_step`; the loop assumes nothing else. A trainer has a graph: the
    active one, or else a new one. It trains once. It is also a plugin: its methods that are marked with `tpk.hookimpl`
    are called as hooks, and `state_dict` returns its own state.

    Constructing a trainer imports nothing, opens nothing, and contacts no other process. `train` does that in phases.
    A subclass may override them, and they can be called by hand. `setup` calls all of them but the last:

    - `resolve_plugins`: names become a strategy, callbacks and monitors.
    - `join`: other processes are met. Then ``setup_graph``, if the trainer has it, builds the towers.
    - `setup_callbacks`: all plugins are registered, and add to the graph.
    - `initialize`: the graph is finalized, the session created, and variables are initialized or restored.
    - `main_loop`: the loop; see `tpk.train.loop`.

    Attributes:
        graph: the `tf.Graph` of the training.
        train_op: the fetch of a step: an op, or anything that `Session.run` takes.
        loop: runs and counts the steps; see `tpk.train.loop.TrainLoop`.
        hooks: the registry: the trainer, its strategy, each monitor and each callback, under unique names.
        input_source: provides the data; None if the trainer has no input source.
        run_dir: the directory of the run, or None.
        monitors: receive scalars, summaries and images; see `tpk.Monitors`. Set by `setup_callbacks`.
        checkpoints: takes the checkpoints that savers request. Set by `setup_callbacks`.
        hooked_sess: the session whose `run` triggers the hooks of the step. Set by `initialize`.

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
    checkpoints: Checkpoints
    hooked_sess: HookedSession

    def __init__(self) -> None:
        self.graph: Any = tf.Graph() if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self.train_op: Any = None
        self.loop = TrainLoop(self)
        self.hooks = HookManager(self.loop.stop.set_by_exception)
        self.input_source: InputSource | None = None
        self.run_dir: Path | None = None
        self.monitors = Monitors(self)
        self._sess: Any = None
        self.registered_callbacks: list[Any] = []
        self.phases = Phases(self)
        self._strategy: Any = NullStrategy()
        self._resumption: Resumption | None = None

    if not TYPE_CHECKING:  # For a type checker, every attribute would exist.
        __getattr__ = explain_missing

    @property
    def sess(self) -> Any:
        """The raw session, from `initialize` to the end of the training; running it triggers no hook."""
        return open_session(self, self._sess)

    @property
    def train_ops(self) -> list[Any]:
        """What the steps run: `train_op`, or several ops, each in a run of its own."""
        return [] if self.train_op is None else [self.train_op]

    @property
    def repeats_steps(self) -> bool:
        """Whether all that a step does is to run `train_ops`, so that a loop in the graph can make many steps."""
        return type(self).run_step is Trainer.run_step

    def run_step(self) -> None:
        """Run one step: `train_op`, together with the hooks."""
        if self.train_op is None:
            raise TrainerStateError(
                f"{type(self).__name__} has no train_op. Before train(), set self.train_op, created under "
                "`with self.graph.as_default():`; or override run_step()."
            )
        self.hooked_sess.run(self.train_op)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the trainer that must be the same in all processes, as plain data for ``config.json``."""
        return {}

    @property
    def towers(self) -> TowerHandles:
        """The towers of the model built so far; empty for a trainer without a tower function."""
        return TowerHandles()

    @property
    def strategy(self) -> Strategy:
        """How a step is replicated over devices and processes; if given by name, available after `resolve_plugins`."""
        if not isinstance(self._strategy, Strategy):
            raise TrainerStateError(
                f"the strategy {self._strategy!r} of this {type(self).__name__} is resolved by train(). To use it "
                "earlier, call trainer.resolve_plugins()."
            )
        return self._strategy

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes: checkpoints, statistics, events."""
        return self.strategy.is_chief

    @property
    def history(self) -> History:
        """The statistics reported so far, with their epochs and steps; also available after the training."""
        return self.monitors.history

    @property
    def epoch_num(self) -> int:
        """The current epoch, from just before `before_epoch` until after `trigger_epoch`."""
        return self.loop.progress.epoch_num

    @property
    def local_step(self) -> int:
        """The current step of the epoch, from 0; -1 before the first."""
        return self.loop.progress.local_step

    @property
    def global_step(self) -> int:
        """The number of completed steps; a step that runs the session several times counts once."""
        return self.loop.progress.global_step

    def register_callback(self, callback: Any) -> None:
        """Add a callback, or a list of them, before `train`; they are called before those that `train` is given."""
        if self.phases.has("setup_callbacks"):
            raise TrainerStateError(
                f"{callback!r} comes too late: the callbacks of this trainer are set up already, or are being set up. "
                "Register it before train(), not in a hook. A callback can also call the hooks of another one."
            )
        self.registered_callbacks.extend(callback if isinstance(callback, list | tuple) else [callback])

    @short_tracebacks
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
        run_dir: StrPath | None = None,
        resume: str = "never",
        seed: int | None = None,
        deterministic: bool = False,
        run_file: str = "",
        describe: Mapping[str, Any] | None = None,
    ) -> None:
        """Train, with these callbacks and monitors only. `TrainConfig` describes the other arguments.

        Args:
            build: builds the graph, after all plugins are resolved and other processes are met; None if it is built.
            callbacks: instances, classes, names, ``"module:attr"``, or `tpk.use`; None for none.
            monitors: as for `callbacks`.
            run_dir: the directory of the run, which is created; None for none.
            seed: as in `TrainConfig`. A graph that is already built must have been given the same seed before its first
                op: ``tpk.set_random_seed(seed)`` under ``with trainer.graph.as_default():``.
            run_file: the text of ``config.toml`` in `run_dir`, which repeats the run; empty for none.
            describe: further contents of ``config.json`` in `run_dir`.

        Raises:
            TrainerStateError: if this trainer has trained before.
            ConfigError: if an argument is invalid, or `run_dir` is in use.
            CheckpointError: if the checkpoint to resume from is missing, or does not fit the trainer.
            Preempted: after SIGTERM or SIGUSR1; with a checkpoint if there is a `run_dir` or a saver.
        """
        with self.phases.enter("train"), self.phases.resources:
            known = {"session_init": session_init, "session_config": session_config}
            known |= {"seed": seed, "deterministic": deterministic, **(describe or {})}
            settings = RunSettings(steps_per_epoch or 0, starting_epoch, max_epoch, run_dir, resume, known, run_file)
            self.setup(
                build=build,
                callbacks=callbacks,
                monitors=monitors,
                session_creator=as_session_creator(session_creator, session_config),
                session_init=session_init,
                seed=seed,
                deterministic=deterministic,
                record=RunRecord(self, settings, is_one_pass=steps_per_epoch is None),
            )
            if not self.strategy.is_server:
                self.main_loop(self.loop.steps_per_epoch, self.loop.starting_epoch, self.loop.max_epoch)

    @short_tracebacks
    def train_with_defaults(
        self,
        *,
        callbacks: Sequence[Any] | None = (),
        extra_callbacks: Sequence[Any] | None = None,
        monitors: Sequence[Any] | None = None,
        extra_monitors: Sequence[Any] = (),
        run_dir: StrPath | None = None,
        **options: Any,
    ) -> None:
        """Train as `train` does, with the default callbacks and monitors as well.

        Args:
            extra_callbacks: by default `DEFAULT_CALLBACKS`, and what plugins add by ``tpk_default_callbacks``.
            monitors: by default `DEFAULT_MONITORS`.
            run_dir: by default ``runs/<script>/<timestamp>``; `resume` needs one.
            options: the other arguments of `train`.
        """
        extra_callbacks = default_callbacks(self.hooks) if extra_callbacks is None else extra_callbacks
        self.train(
            callbacks=[*(callbacks or ()), *extra_callbacks],
            monitors=[*(DEFAULT_MONITORS if monitors is None else monitors), *extra_monitors],
            run_dir=default_run_dir() if run_dir is None and options.get("resume", "never") == "never" else run_dir,
            **options,
        )

    def request_stop(self, reason: str) -> None:
        """End the training cleanly after the current step, as `StopTraining` in a hook does; `reason` is logged."""
        self.loop.stop.set(reason)

    def setup(
        self,
        *,
        build: Callable[[], None] | None = None,
        callbacks: Sequence[Any] | None = (),
        monitors: Sequence[Any] | None = (),
        session_creator: Any = None,
        session_init: Any = None,
        seed: int | None = None,
        deterministic: bool = False,
        record: RunRecord | None = None,
    ) -> None:
        """Run all phases before the loop; `record` records the run."""
        callbacks, monitors = self.resolve_plugins(callbacks, monitors)
        self.join()
        if self.strategy.is_server:
            return
        self.phases.resources.enter_context(reproducible(self, seed, deterministic, is_built=build is None))
        if build is not None:
            build()
        if deterministic:
            check_determinism(self)
        if record is not None:
            self.phases.resources.enter_context(record)
            self._resumption = record.open([*self.registered_callbacks, *callbacks], monitors)
            self.run_dir = record.directory
        self.setup_callbacks(callbacks, monitors)
        self.initialize(session_creator, session_init)
        if record is not None:
            record.begin()

    def resolve_plugins(
        self, callbacks: Sequence[Any] | None = (), monitors: Sequence[Any] | None = ()
    ) -> tuple[list[Any], list[Any]]:
        """Turn names into plugins, and load the plugins that need no name; return the callbacks and the monitors.

        Instances are returned unchanged, so later phases may call it again. Nothing is added to the graph.

        Raises:
            PluginError: if a plugin cannot be used.
        """
        self.hooks.autoload()
        self.hooks.check_names(self)
        resolve = get_catalog().resolve
        self._strategy = resolve("strategy", self._strategy)
        self.hooks.check_names(self.strategy)
        self.registered_callbacks = [resolve("callback", each) for each in self.registered_callbacks]
        resolved = [resolve("callback", each) for each in callbacks or ()]
        return resolved, [resolve("monitor", each) for each in monitors or ()]

    def join(self) -> None:
        """Meet the other processes of the training, once. A process that only serves others does so here."""
        if self.phases.has("join"):
            return
        with self.phases.enter("join"):
            self.strategy.join()
            self.phases.resources.callback(self.strategy.leave)
            self.strategy.serve()
            if self.strategy.rank > 0:
                with self.graph.as_default():
                    set_process_index(self.strategy.rank)
        if self.strategy.is_server:
            self.phases.resources.close()

    def setup_callbacks(self, callbacks: Sequence[Any] | None = (), monitors: Sequence[Any] | None = ()) -> None:
        """Register all plugins, and let them add to the graph, which is then complete.

        Raises:
            PluginError: if a plugin cannot be used.
        """
        with self.phases.enter("setup_callbacks"), self.graph.as_default():
            callbacks, monitors = self.resolve_plugins(callbacks, monitors)
            self.checkpoints = make_checkpoints(self)
            given = [self.strategy, *self.registered_callbacks, *callbacks, *monitors]
            followed = followed_statistics(given)
            self.monitors = Monitors(self, monitors, is_chief=self.is_chief, followed=followed)
            here = [each for each in given if self.is_chief or (isinstance(each, Callback) and not each.chief_only)]
            self.hooks.register_all([self, *here])
            self.hooks.attach(self)
            check_steps_per_run(self)
            get_global_step_var()
            self.hooks.hook.setup_graph(trainer=self)
            # These come last: by now, savers have registered, and a checkpoint includes the effects of other plugins.
            last = [] if self._resumption is None else [self._resumption]
            self.hooks.register_all([*last, self.checkpoints])
            self.strategy.complete_graph()
            check_graph(self)

    def initialize(self, session_creator: Any = None, session_init: Any = None) -> None:
        """Finalize the graph, create the session, and initialize or restore the variables.

        Raises:
            MismatchError: if other processes of the training are about to train something else.
            CheckpointError: if values do not fit the variables.
        """
        with self.phases.enter("initialize", after="setup_callbacks"), self.graph.as_default():
            counter = StepCounter(self.train_ops, get_global_step_var(), step_reads())
            check_agreement(self)
            initial = session_init if self.is_chief and self._resumption is None else None
            session = self.strategy.open_session(session_creator, self.graph, initial)
            self._sess = self.phases.resources.enter_context(session)
            self.graph.finalize()
            self.loop.progress.global_step = counter.completed(self.sess)
            self.hooked_sess = HookedSession(
                self.sess,
                self.hooks.compile_step(),
                self.loop.progress,
                counter,
                timeout_in_ms=self.loop.run_timeout_in_ms,
                xla=self.loop.is_compiled,
                # Answers of other processes arrive in a thread that must not be blocked.
                tries_threads=self.strategy.world_size == 1,
            )
            if self._resumption is not None:
                self._resumption.begin(self)

    def main_loop(self, steps_per_epoch: int, starting_epoch: int = 1, max_epoch: int = FOREVER) -> None:
        """Run the loop, and release all resources of the training however it ends."""
        with self.phases.enter("main_loop", after="initialize"), self.phases.resources:
            if self._resumption is None:
                self.loop.set_epochs(steps_per_epoch, starting_epoch, max_epoch)
            with self.graph.as_default(), self.sess.as_default():
                self.loop.start(None if self._resumption is None else self._resumption.path)


def default_callbacks(hooks: HookManager, config: Any = None) -> list[Any]:
    """Return the default callbacks of a training, and the callbacks that plugins add.

    Args:
        hooks: the registry of the trainer.
        config: the `TrainConfig`, if there is one, for these plugins.
    """
    hooks.autoload()
    added = hooks.hook.tpk_default_callbacks(config=config)
    return [*DEFAULT_CALLBACKS, *(callback for some in added for callback in some)]
