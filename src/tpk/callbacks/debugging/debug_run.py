"""Debug run: a training of two steps that goes through everything a whole one does."""

from __future__ import annotations

import logging
import tempfile
from typing import TYPE_CHECKING

from tpk.callbacks.composition.proxy import ProxyCallback, innermost
from tpk.callbacks.composition.trigger import PeriodicTrigger
from tpk.callbacks.inference.runner import InferenceRunner
from tpk.errors import ConfigError
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
