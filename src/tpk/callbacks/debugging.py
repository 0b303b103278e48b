"""Debug run: a training of two steps that goes through everything a whole one does."""

from __future__ import annotations

import bdb
import importlib.util
import logging
import os
import pdb
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.callbacks.inference.runner import InferenceRunner
from tpk.callbacks.triggers import Every, PeriodicTrigger, ProxyCallback, innermost
from tpk.errors import ConfigError, PluginImportError, StopTraining
from tpk.plugin import Callback, hookimpl, order_of

if TYPE_CHECKING:
    from tpk.plugin.run_options import RunOptions
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class DebugRun(Callback):
    """Makes of a training one of two steps, in which everything happens once: whether it runs, in seconds.

    One epoch of two steps, evaluations of two batches, and whatever else is in the list: schedules, savers, monitors.
    What stands under a `PeriodicTrigger` whose time does not come in these steps is triggered at the end all the same;
    what stands under another condition that never holds is named in the log. The run has a new directory of its own,
    which is removed at its end, so that no run is touched: nothing is resumed, and no checkpoint stays. (`session_init`
    is applied. A monitor that reports to a server does so.) Lightning calls this ``fast_dev_run``.

    To see whether a model can learn a few batches by heart is another thing: ``TrainConfig(overfit_batches=4)``.

    When it runs: before anything is built, and at the end of the epoch; never in a step. It works on every strategy, in
    all processes alike, and with every trainer that trains by `train`, `train_with_defaults` or
    `launch_train_with_config`. With ``steps_per_run=k``, its steps are one run if there are no more than k.

    Args:
        steps: how many steps, and how many batches of each evaluation.

    Raises:
        ConfigError: if `steps` is no positive whole number; in the training, if its phases are called one by one.

    Example:
        ```python
        callbacks = ["ModelSaver", tpk.InferenceRunner(validation, tpk.ScalarStats("cost"))]
        if args.debug:
            callbacks.append("DebugRun")
        ```
    """

    chief_only = False

    def __init__(self, steps: int = 2) -> None:
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise ConfigError(f"DebugRun(steps={steps!r}): expected a positive whole number.")
        self._steps = steps
        self._is_configured = False

    def configure_run(self, run: RunOptions) -> None:
        """Make it a short one, in a directory of its own."""
        self._is_configured = True
        run.max_epoch = min(run.max_epoch, run.starting_epoch)
        run.steps_per_epoch = min(run.steps_per_epoch, self._steps)
        run.resume = "never"
        if run.run_dir is not None:
            directory = tempfile.TemporaryDirectory(prefix="tpk-debug-run-", ignore_cleanup_errors=True)
            run.run_dir = run.resources.enter_context(directory)

    @hookimpl(trylast=True)
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Shorten the evaluations.

        Raises:
            ConfigError: if it came too late to shorten the training.
        """
        if not self._is_configured:
            raise ConfigError(
                "DebugRun shortens a training that is started by train(), train_with_defaults() or "
                "launch_train_with_config(). Where you call the phases yourself, write "
                f"main_loop(steps_per_epoch={self._steps}, starting_epoch=1, max_epoch=1)."
            )
        for plugin in trainer.hooks.plugins.values():
            runner = innermost(plugin) if isinstance(plugin, Callback) else None
            if isinstance(runner, InferenceRunner):
                runner.max_batches = self._steps
        logger.info("a debug run: %d steps of everything, in a directory that is removed at the end", self._steps)

    # Last, when all that reports in each epoch has done so; the checkpoint of the epoch is taken after it.
    @hookimpl(trylast=True)
    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Trigger what would have had its turn later."""
        waiting = [each for each in trainer.hooks.plugins.values() if isinstance(each, ProxyCallback)]
        periodic = [each for each in waiting if isinstance(each, PeriodicTrigger) and each.is_awaited]
        # Those that report before those that follow what is reported.
        for late in sorted(periodic, key=lambda each: order_of(innermost(each).trigger)["trylast"]):
            late.trigger(trainer)
        for each in waiting:
            if each.is_awaited:
                logger.warning("in this debug run, %s has not had its turn: its condition did not hold", each)

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Say that all went well, if it did."""
        if trainer.loop.failure is None:
            logger.info("the debug run went well")


SHELLS = ("ipython", "pdb")


class InjectShell(Callback):
    """Opens a shell inside of the training when a file appears: ``touch INJECT_SHELL.tmp``.

    In the shell there are ``trainer``, ``sess``, ``graph`` and ``monitors``. The training goes on when it is left, by
    ``c`` in pdb and by Ctrl-D in IPython; ``q`` in pdb ends the training in good order. pdb can also go on step by
    step, and up to what called it. The file is removed when the shell opens, so that one ``touch`` opens one shell.

    Where nobody could type, because standard input is no terminal, it opens none, and a line in the log says so.
    Without the file, it never asks for anything.

    When it runs: at the end of each epoch, or `when` it shall, it looks whether the file is there, and does nothing
    else. It works on every strategy, in the chief; the other processes wait for it. A `Watchdog` counts the
    time in the shell as any other.

    Args:
        file: its path; a relative one is one of the directory in which the training was started.
        shell: ``"ipython"`` or ``"pdb"``; by default IPython where it is installed, else pdb.
        when: an `Every`: the times at which it looks; by default the end of each epoch.

    Raises:
        ConfigError: if `shell` or `when` is something else.
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
        if shell not in (None, *SHELLS):
            raise ConfigError(f"InjectShell(shell={shell!r}): expected one of {', '.join(map(repr, SHELLS))}.")
        if not isinstance(when, Every | None):
            raise ConfigError(f"InjectShell(when={when!r}): expected a tpk.Every, such as tpk.Every(steps=100).")
        self._path = Path(file).absolute()
        self._shell = shell
        self._when = when

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which it looks."""
        hooks = super().hook_implementations()
        return hooks if self._when is None else self._when.hooks(self, hooks)

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """See which shell there is, and say how to open it.

        Raises:
            PluginImportError: if IPython was wanted, and is not installed.
        """
        has_ipython = importlib.util.find_spec("IPython") is not None
        if self._shell == "ipython" and not has_ipython:
            raise PluginImportError(
                "InjectShell(shell='ipython') needs IPython, which is not installed: pip install ipython, or take "
                "shell='pdb'."
            )
        self._shell = self._shell or ("ipython" if has_ipython else "pdb")
        logger.info("to open a shell in this training: touch %s", self._path)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Open the shell if the file is there.

        Raises:
            StopTraining: if pdb was left by ``q``.
        """
        if not self._path.exists():
            return
        self._path.unlink(missing_ok=True)
        if sys.stdin is None or not sys.stdin.isatty():
            logger.warning("no shell is opened, since standard input is no terminal")
            return
        try:
            with _interrupts_for_the_shell():
                _open(self._shell, trainer)
        except bdb.BdbQuit:
            raise StopTraining("the shell was left by q") from None


def _open(shell: str | None, trainer: TrainerProtocol) -> None:
    sess, graph, monitors = trainer.sess, trainer.graph, trainer.monitors
    greeting = f"in {trainer.loop.progress}; here are trainer, sess, graph and monitors"
    if shell == "ipython":
        import IPython

        IPython.embed(header=greeting)
        return
    logger.info("a shell %s", greeting)
    # What the shell sees are the variables of this function.
    pdb.Pdb(nosigint=True).set_trace()
    del sess, graph, monitors


@contextmanager
def _interrupts_for_the_shell() -> Iterator[None]:
    """Within the context, Ctrl-C breaks off what is typed or run in the shell, and not the training."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former, descriptor = signal.signal(signal.SIGINT, signal.default_int_handler), signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGINT, former)
