"""Debugging tools: a training of two steps, and a shell inside a running training."""

from __future__ import annotations

import bdb
import importlib.util
import logging
import os
import pdb
import signal
import sys
import tempfile
from pathlib import Path

import tpk
from tpk.argument_checks import check_at_least, check_one_of
from tpk.callbacks.background import handle_interrupts
from tpk.callbacks.inference.runner import InferenceRunner
from tpk.callbacks.triggers import Every, PeriodicTrigger, TimedCallback, callbacks_of, innermost
from tpk.errors import ConfigError, StopTraining
from tpk.plugin import Callback, RunSettings, hookimpl, order_of
from tpk.plugin.creation import import_optional

logger = logging.getLogger(__name__)


class DebugRun(Callback):
    """Runs only two steps of a training, and everything else once: a dry run that takes seconds.

    The training run has one epoch of two steps, and evaluations have two batches. All other callbacks and monitors work
    as usual; the callbacks in a `PeriodicTrigger` are triggered at the end of the epoch, whatever their times are. The
    run has a temporary directory, so nothing is resumed, and no other run is affected. (`session_init` is applied, and
    monitors that report to a server do so.) Lightning calls this ``fast_dev_run``.

    To check that a model can memorize a few batches, use ``TrainConfig(overfit_batches=4)``.

    It works with every strategy, in all processes, and with every trainer that is started by `train`,
    `train_with_defaults` or `launch_train_with_config`. With ``steps_per_run=k``, up to k steps are one run.

    Args:
        steps: the number of steps, and of batches in each evaluation.

    Raises:
        ConfigError: if `steps` is not a positive integer; in the training, if its phases are called one by one.

    Example:
        ```python
        callbacks = ["ModelSaver", tpk.InferenceRunner(validation, tpk.ScalarStats("cost"))]
        if args.debug:
            callbacks.append("DebugRun")
        ```
    """

    chief_only = False

    def __init__(self, steps: int = 2) -> None:
        check_at_least(self, 1, steps=steps)
        self._steps = steps
        self._is_configured = False

    def configure_run(self, run: RunSettings) -> None:
        """Shorten the run, and give it a temporary directory."""
        self._is_configured = True
        run.max_epoch = min(run.max_epoch, run.starting_epoch)
        run.steps_per_epoch = min(run.steps_per_epoch, self._steps)
        run.resume = "never"
        if run.run_dir is not None:
            directory = tempfile.TemporaryDirectory(prefix="tpk-debug-run-", ignore_cleanup_errors=True)
            run.run_dir = run.resources.enter_context(directory)

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Shorten the evaluations."""
        if not self._is_configured:
            raise ConfigError(
                "DebugRun shortens a training that is started by train(), train_with_defaults() or "
                "launch_train_with_config(). Where you call the phases yourself, write "
                f"main_loop(steps_per_epoch={self._steps}, starting_epoch=1, max_epoch=1)."
            )
        for runner in callbacks_of(trainer.hooks.plugins.values(), InferenceRunner):
            runner.limit(self._steps)
        logger.info("a debug run: %d steps of everything, in a directory that is removed at the end", self._steps)

    # After everything that reports in each epoch, and before the checkpoint of the epoch.
    @hookimpl(trylast=True)
    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Trigger the callbacks whose time may be later."""
        periodic = [each for each in trainer.hooks.plugins.values() if isinstance(each, PeriodicTrigger)]
        # Those that report statistics before those that follow them.
        for each in sorted(periodic, key=lambda each: order_of(innermost(each).trigger)["trylast"]):
            each.trigger(trainer)

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Log that the run succeeded."""
        if trainer.loop.failure is None:
            logger.info("the debug run succeeded")


class InjectShell(TimedCallback):
    """Opens a shell inside the training when a file appears: ``touch INJECT_SHELL.tmp``.

    The shell has the variables ``trainer``, ``sess``, ``graph`` and ``monitors``. The training continues when you leave
    it, by ``c`` in pdb or Ctrl-D in IPython; ``q`` in pdb ends the training cleanly. pdb can also step through the code
    that runs next. The file is removed when the shell opens, so one ``touch`` opens one shell. If standard input is not
    a terminal, a warning in the log says so, and no shell opens.

    It only looks for the file, at the end of each epoch or at the times of `when`. It works on every strategy, in the
    chief; the other processes wait. A `Watchdog` counts the time in the shell.

    Args:
        file: its path; a relative path starts from the directory in which the training was started.
        shell: ``"ipython"`` or ``"pdb"``; by default IPython if it is installed.
        when: an `Every`: the times at which it looks for the file; by default the end of each epoch.

    Raises:
        ConfigError: if `shell` or `when` is invalid.
        PluginImportError: when the training is set up, if ``shell="ipython"`` and it is not installed.

    Example:
        ```python
        callbacks=[tpk.InjectShell(when=tpk.Every(steps=100))]
        ```
    """

    def __init__(
        self,
        file: str | os.PathLike[str] = "INJECT_SHELL.tmp",
        shell: str | None = None,
        *,
        when: Every | None = None,
    ) -> None:
        super().__init__(when)
        check_one_of(self, (None, "ipython", "pdb"), shell=shell)
        self._path = Path(file).absolute()
        self._shell = shell

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Choose the shell, and log how to open it."""
        if self._shell == "ipython":
            import_optional("IPython", "InjectShell(shell='ipython')", "ipython", "Or use shell='pdb'.")
        self._shell = self._shell or ("ipython" if importlib.util.find_spec("IPython") else "pdb")
        logger.info("to open a shell in this training: touch %s", self._path)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Open the shell if the file exists."""
        if not self._path.exists():
            return
        self._path.unlink(missing_ok=True)
        if sys.stdin is None or not sys.stdin.isatty():
            logger.warning("no shell is opened, because standard input is not a terminal")
            return
        try:
            # Ctrl-C interrupts what runs in the shell, and not the training.
            with handle_interrupts(signal.default_int_handler):
                _open(self._shell, trainer)
        except bdb.BdbQuit:
            raise StopTraining("the shell was left by q") from None


def _open(shell: str | None, trainer: tpk.Trainer) -> None:
    # The shell sees the local variables of this function.
    sess, graph, monitors = trainer.sess, trainer.graph, trainer.monitors
    greeting = f"in {trainer.loop.progress}, with the variables trainer, sess, graph and monitors"
    if shell == "ipython":
        import IPython

        IPython.embed(header=greeting)
        return
    logger.info("a shell %s", greeting)
    pdb.Pdb(nosigint=True).set_trace()
    del sess, graph, monitors
