"""The base of all trainers: a graph, a session, callbacks and a loop. It assumes nothing of what a step does."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.checkpoint.session_init import as_session_init
from tpk.errors import StopTraining, TrainerStateError
from tpk.graph.determinism import warn_of_stateful_random_ops
from tpk.graph.global_step import StepCounter, get_global_step_var
from tpk.graph.model_overview import log_model_overview
from tpk.graph.random import step_reads
from tpk.monitors.monitors import Monitors
from tpk.plugin import Callback, HookManager, StepHooks, get_catalog
from tpk.session.creator import NewSessionCreator, SessionCreator
from tpk.session.hooked import HookedSession
from tpk.session.progress import Progress
from tpk.strategies.process_group import ProcessGroup, SingleProcess
from tpk.train.agreement import AgreedCheckpoints, check_agreement
from tpk.train.arguments import FOREVER, check_counts, choose_creator
from tpk.train.checkpoints import Checkpoints
from tpk.train.defaults import DEFAULT_CALLBACKS, DEFAULT_MONITORS
from tpk.train.loop import run_loop
from tpk.train.preemption import Preemption
from tpk.train.resumption import Resumption
from tpk.train.run_dir import check_resume, default_run_dir, open_run
from tpk.train.steps import hooked_session

if TYPE_CHECKING:
    import os

    from tpk.checkpoint.files import Checkpoint
    from tpk.input_source.base import InputSource

logger = logging.getLogger(__name__)


class Trainer:
    """Trains anything that runs in a loop.

    A subclass either sets `train_op` or overrides `run_step`; the loop assumes nothing else. A trainer owns a graph:
    the active one, if there is one, else its own. It trains once.

    Attributes:
        graph: the `tf.Graph` of the training.
        train_op: what a step runs: an op, or anything that `Session.run` takes.
        hooks: the hook manager with everything that was registered.
        progress: the counters.
        input_source: where the data comes from, whose position checkpoints hold; None if the trainer has no such thing.
        monitors: what takes scalars, summaries and images; see `tpk.Monitors`. Set by `setup`.
        sess: the raw session; running it triggers no hook. Set by `setup`.
        hooked_sess: the session whose `run` triggers the hooks of the step. Set by `setup`.
        step_hooks: the hooks of the step, compiled. Set by `setup`.
        run_dir: where the run keeps its files, or None.
        is_chief: whether this process is the one that writes.
        failure: in `after_train`, the error by which the training ends; None if it ends in good order.
        ended_by: then, the `StopTraining` or `tf.errors.OutOfRangeError` by which it ends before its last epoch, if so.
        stop_reason: why it was asked to end, if it was.
        preemption: the signals that end it.

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

    is_chief: bool = True

    def __init__(self) -> None:
        self.graph: Any = tf.Graph() if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self.train_op: Any = None
        self.progress = Progress()
        self.input_source: InputSource | None = None
        self.run_dir: Path | None = None
        self.failure: BaseException | None = None
        self.ended_by: Exception | None = None
        self.hooks = HookManager()
        self.hooks.register_all(get_catalog().autoload())
        self.monitors: Monitors
        self.sess: Any = None
        self.hooked_sess: HookedSession
        self.step_hooks: StepHooks
        self._callbacks: list[Any] = []
        self._is_set_up = False
        self._start_from: Checkpoint | None = None
        self._resume = "never"
        self.stop_reason = "a hook asked for the end of the training"
        self.preemption = Preemption(lambda: self.hooked_sess.request_stop())
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
                f"{type(self).__name__} has no train_op. Set self.train_op before train(), or override run_step()."
            )
        self.hooked_sess.run(self.train_op)

    def session_config(self, config: Any) -> Any:
        """Return the `tf.compat.v1.ConfigProto` of a new session, given the one that it would have had."""
        return config

    def session_creator(self, config: Any) -> SessionCreator:
        """Return what creates a new session with this `tf.compat.v1.ConfigProto`."""
        return NewSessionCreator(config=config)

    def describe(self) -> dict[str, Any]:
        """Return what this trainer is, as plain data for ``config.json``."""
        return {"trainer": type(self).__name__}

    def state_dict(self) -> dict[str, Any]:
        """Return what the trainer itself must keep over a restart, as plain data; not variables, nor its callbacks'."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def replicate_variables(self) -> list[Any]:
        """Return variables that a checkpoint must hold besides the global ones: what replicates have of their own."""
        return []

    def complete_graph(self) -> None:
        """Add to the graph what concerns all variables, now that callbacks have added theirs, too."""

    def after_restore(self) -> None:
        """Make the replicates of the model agree, once the variables have their values: the chief's."""

    def serve(self) -> bool:
        """Serve the other processes until they are done, if that is all that this one is for; return whether it was.

        Such a process, a parameter server, trains nothing itself.
        """
        return False

    def leave(self) -> None:
        """Part from the other processes of the training, once the session is closed, however it has ended."""

    @property
    def process_group(self) -> ProcessGroup:
        """How the processes of the training tell each other things that are no part of the graph."""
        return SingleProcess()

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Takes checkpoints when all callbacks have done their part; see `tpk.train.checkpoints`."""
        return Checkpoints(self) if self.process_group.world_size == 1 else AgreedCheckpoints(self)

    # How far the training is.

    @property
    def epoch_num(self) -> int:
        """The epoch under way, from just before `before_epoch` until after `trigger_epoch`."""
        return self.progress.epoch_num

    @property
    def local_step(self) -> int:
        """The step under way within the epoch, from 1 on."""
        return self.progress.local_step

    @property
    def global_step(self) -> int:
        """How many times `hooked_sess.run` has completed."""
        return self.progress.global_step

    # What a caller does.

    def register_callback(self, callback: Any) -> None:
        """Add a callback before the training starts; it is called before those that are given to `train`.

        Args:
            callback: an instance, a class, a name, ``"module:attr"``, or `tpk.use`.

        Raises:
            TrainerStateError: if the trainer is set up already.
        """
        if self._is_set_up:
            raise TrainerStateError(
                f"{callback!r} comes too late: the graph of this trainer is complete. "
                "Register callbacks before train()."
            )
        self._callbacks.append(callback)

    def train(
        self,
        *,
        callbacks: Sequence[Any] = (),
        monitors: Sequence[Any] = (),
        session_creator: SessionCreator | None = None,
        session_config: Any = None,
        session_init: Any = None,
        steps_per_epoch: int,
        starting_epoch: int = 1,
        max_epoch: int = FOREVER,
        run_dir: str | os.PathLike[str] | None = None,
        resume: str = "never",
        describe: Mapping[str, Any] | None = None,
    ) -> None:
        """Train, with no callbacks and monitors but these.

        Args:
            callbacks: what happens besides: instances, classes, names, ``"module:attr"``, or `tpk.use`.
            monitors: what takes the statistics, named in the same ways.
            session_creator: where the session comes from; by default a new one.
            session_config: `tf.compat.v1.ConfigProto` of that new session.
            session_init: what gives variables their values: a `SessionInit`, the path of a checkpoint, or a mapping
                of names to arrays.
            steps_per_epoch: how many steps an epoch has.
            starting_epoch: the number of the first epoch.
            max_epoch: the number of the last epoch.
            run_dir: where the run keeps its files; it is created. None: nowhere.
            resume: ``"auto"`` goes on from the newest complete checkpoint in `run_dir`, and starts afresh if there is
                none; ``"must"`` makes that an error; ``"never"`` wants a `run_dir` that holds no run. A training that
                goes on takes nothing from `session_init` and `starting_epoch`.
            describe: plain data that is written to ``config.json`` of `run_dir`.

        Raises:
            TrainerStateError: if this trainer has trained before.
            ConfigError: if an argument has a value that it cannot have, or `run_dir` is in use.
            CheckpointError: if it is to go on from a checkpoint that is not there, or does not fit.
            Preempted: if SIGTERM or SIGUSR1 has ended it: after a step, with a checkpoint if there is a place for it.
        """
        check_counts(steps_per_epoch, starting_epoch, max_epoch)
        check_resume(resume, run_dir)
        if self.serve():
            return
        self._claim()
        self.steps_per_epoch, self.starting_epoch, self.max_epoch = steps_per_epoch, starting_epoch, max_epoch
        self.progress.epoch_num = starting_epoch - 1
        with self._resources:
            self._resources.callback(self.leave)
            self._resume = resume
            self._start_from = open_run(self, run_dir, resume, describe, self._resources)
            self.setup(
                callbacks=callbacks,
                monitors=monitors,
                session_creator=choose_creator(self, session_creator, session_config),
                session_init=session_init,
            )
            with self.graph.as_default(), self.sess.as_default(), self.preemption.handling():
                run_loop(self)
                self.process_group.gather_object("the end of the training", None)

    def train_with_defaults(
        self,
        *,
        callbacks: Sequence[Any] = (),
        extra_callbacks: Sequence[Any] | None = None,
        monitors: Sequence[Any] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: str = "never",
        config: Any = None,
        **options: Any,
    ) -> None:
        """Train as `train` does, with the default callbacks and monitors besides.

        Args:
            callbacks: called before the extra ones.
            extra_callbacks: by default `MovingAverageSummary`, `ProgressBar`, `MergeAllSummaries` and `RunUpdateOps`,
                and what plugins add by ``tpk_default_callbacks``.
            monitors: by default `TFEventWriter`, `JSONWriter` and `ScalarPrinter`.
            run_dir: by default ``runs/<script>/<timestamp>``.
            resume: as in `train`; it needs a `run_dir`.
            config: the `TrainConfig`, if there is one, for plugins that add callbacks.
            options: the other arguments of `train`.
        """
        check_resume(resume, run_dir)
        if extra_callbacks is None:
            added = self.hooks.hook.tpk_default_callbacks(config=config)
            extra_callbacks = [*DEFAULT_CALLBACKS, *(callback for some in added for callback in some)]
        self.train(
            callbacks=[*callbacks, *extra_callbacks],
            monitors=DEFAULT_MONITORS if monitors is None else monitors,
            run_dir=default_run_dir() if run_dir is None else run_dir,
            resume=resume,
            **options,
        )

    def request_stop(self, reason: str) -> None:
        """End the training in good order when the step under way is over, or the epoch, if it is in its last hooks.

        Unlike `StopTraining`, which breaks off at once, it lets all callbacks do their part, and checkpoints be taken.

        Args:
            reason: what the log says.
        """
        self.stop_reason = reason
        self.hooked_sess.request_stop()

    # The parts of a training.

    def setup(
        self,
        *,
        callbacks: Sequence[Any] = (),
        monitors: Sequence[Any] = (),
        session_creator: SessionCreator,
        session_init: Any = None,
    ) -> None:
        """Turn names into plugins, complete and finalize the graph, create and initialize the session.

        Called by `train`.
        """
        self._register_plugins([*self._callbacks, *callbacks], monitors)
        initial = as_session_init(session_init) if self._start_from is None and self.is_chief else None
        if self._start_from is not None and session_init is not None:
            logger.info("session_init is not applied, since the run is resumed")
        with self.graph.as_default():
            global_step = get_global_step_var()
            self.hooks.hook.setup_graph(trainer=self)
            resumption = None if self._start_from is None else Resumption(self._start_from)
            # Last of all: savers have made themselves known by now, and what others do of a moment comes before.
            self.hooks.register_all([each for each in (resumption, self.checkpoints) if each is not None])
            self.complete_graph()
            warn_of_stateful_random_ops(self.train_ops)
            log_model_overview(self.graph)
            counter = StepCounter(self.train_ops, global_step, step_reads())
            check_agreement(self)
            self.sess = session_creator.create_session(self.graph)
        if session_creator.owns_session:
            self._resources.callback(self.sess.close)
        if initial is not None:
            initial.run(self.sess)
        self.after_restore()
        self.graph.finalize()
        self.progress.global_step = int(self.sess.run(global_step))
        self.step_hooks = self.hooks.compile_step()
        self.hooked_sess = hooked_session(self, counter)
        if resumption is not None:
            resumption.begin(self)
        elif self._resume == "auto":
            self.monitors.start_over()

    def stop(self) -> None:
        """End the training between two steps or epochs; called by the loop when a hook or a signal has asked for it.

        Raises:
            StopTraining, Preempted, KeyboardInterrupt: always one of them.
            CheckpointError: if the checkpoint that a signal leads to could not be written.
        """
        if self.checkpoints.signum_of_stop is None:
            raise StopTraining(self.stop_reason)
        path = self.checkpoints.save_now()
        logger.info("%s", "there is no place for a checkpoint" if path is None else f"the last checkpoint is {path}")
        raise self.preemption.exception()

    def finish(self) -> None:
        """Let every callback do its `after_train`; called by the loop, however it ends.

        Raises:
            BaseException: the first failure of a callback, if the training itself did not fail.
        """
        failures = self.hooks.after_train(self)
        if failures and self.failure is None:
            self.failure = failures[0]
            raise failures[0]

    def _register_plugins(self, callbacks: Sequence[Any], monitors: Sequence[Any]) -> None:
        catalog = get_catalog()
        self.monitors = Monitors([catalog.resolve("monitor", monitor) for monitor in monitors], is_chief=self.is_chief)
        resolved = [catalog.resolve("callback", callback) for callback in callbacks]
        active = [each for each in resolved if self.is_chief or not getattr(each, "chief_only", True)]
        self.hooks.register_all([*active, self.monitors])
        for plugin in self.hooks.plugins.values():
            if isinstance(plugin, Callback):
                plugin.trainer = self
        self._is_set_up = True

    def _claim(self) -> None:
        if self._is_set_up or hasattr(self, "max_epoch"):
            raise TrainerStateError(
                f"this {type(self).__name__} has trained already; a trainer trains once. Make a new one, and give it "
                "session_init=<the checkpoint> to go on from there."
            )
