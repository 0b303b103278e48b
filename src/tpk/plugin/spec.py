"""The hook specifications: every hook of tpk, what it is given, and what it may return.

Signatures and docstrings only. `Callback` has a no-op for each of the hooks of a training; modules and
objects of the entry-point group ``tpk.plugins`` implement any of the hooks with functions decorated by
`tpk.hookimpl`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

hookspec = pluggy.HookspecMarker("tpk")
"""Marks a hook specification: a method of a class that is given to `HookManager.add_hookspecs`."""


class ConfigurationSpecs:
    """Before there is a trainer: for ``tpk.plugins`` only, since no callback is registered yet."""

    @hookspec
    def tpk_add_hookspecs(self, hooks: Any) -> None:
        """Add hooks of one's own, which the callbacks of a training may then implement.

        Called when the plugin is registered, before anything else is. A callback implements such a hook by a method of
        its name; it is called by ``trainer.hooks.hook.<name>(...)``, with keyword arguments.

        Args:
            hooks: the `HookManager` of a training.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            class EpisodeSpecs:
                @tpk.hookspec
                def after_episode(self, reward):
                    "Called at the end of each episode."

            @tpk.hookimpl
            def tpk_add_hookspecs(hooks):
                hooks.add_hookspecs(EpisodeSpecs)
            ```
        """

    @hookspec
    def tpk_configure(self, config: Any) -> None:
        """Adjust the config of a run, before anything in it is resolved.

        Args:
            config: the `TrainConfig` as the user wrote it; change its attributes in place.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            @tpk.hookimpl
            def tpk_configure(config):
                if config.run_dir is None:
                    config.run_dir = f"/scratch/{os.environ['USER']}/runs"
            ```
        """

    @hookspec
    def tpk_default_callbacks(self, config: Any) -> list[Any]:  # type: ignore[empty-body]
        """Give callbacks that every run shall have, besides those that the user lists.

        Args:
            config: the `TrainConfig` of the run, already configured.

        Returns:
            A list of callbacks, each in any form that stands for one: an instance, a class, a name,
            ``"module:attr"`` or `tpk.use(...)`.

        Example:
            ```python
            @tpk.hookimpl
            def tpk_default_callbacks(config):
                return [tpk.use("RunOp", op="heartbeat")]
            ```
        """


class TrainingSpecs:
    """Over the life of a training, in the order in which the loop calls them."""

    @hookspec
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add what the plugin needs to the graph; the last chance before the graph is finalized.

        Args:
            trainer: the trainer, with its graph as the default graph. There is no session yet.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def setup_graph(self, trainer):
                norms = [tf.norm(variable) for variable in tf.compat.v1.trainable_variables()]
                self.largest_norm = tf.reduce_max(norms)
            ```
        """

    @hookspec
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Called once before the first epoch, with the session created and all variables initialized or restored.

        Args:
            trainer: the trainer; its graph and session are the default ones from here on.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def before_train(self, trainer):
                self.started = time.monotonic()
            ```
        """

    @hookspec
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Called before the first step of each epoch; `trainer.epoch_num` is already that of the epoch.

        Args:
            trainer: the trainer.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def before_epoch(self, trainer):
                self.costs = []
            ```
        """

    @hookspec
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Called after the last step of each epoch, before any `trigger_epoch`.

        Finish here what was done step by step, so that it is complete when other plugins' `trigger_epoch`
        look at it.

        Args:
            trainer: the trainer.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def after_epoch(self, trainer):
                self.bar.close()
            ```
        """

    @hookspec
    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Called once an epoch is over: evaluate, save, report.

        Args:
            trainer: the trainer; `trainer.epoch_num` is still that of the epoch that ends.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def trigger_epoch(self, trainer):
                trainer.monitors.put_scalar("mean-cost", sum(self.costs) / len(self.costs))
            ```
        """

    @hookspec
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Called once at the end, however the training ends; the session is still open.

        Each implementation runs whatever happens in the others; a failure is logged. Wrappers are not
        possible here.

        Args:
            trainer: the trainer.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def after_train(self, trainer):
                self.file.close()
            ```
        """


class StepSpecs:
    """Around each step. They are compiled into plain tuples of methods, so wrappers are not possible."""

    @hookspec
    def before_run(self, run_context: Any) -> Any:
        """Say what to run along with the step, in the very same `Session.run`.

        What a training tower computes is from before the step's update of the variables. A variable itself, and what
        callbacks build from it, may be from before or after it; `Strategy.build` says how to tell TensorFlow which.

        Args:
            run_context: a `tf.compat.v1.train.SessionRunContext`: the session, and what the step itself runs.

        Returns:
            `tf.compat.v1.train.SessionRunArgs`, or tensors or ops in any structure that `Session.run` takes,
            or None. Returning the same object each time is the cheapest.

        Example:
            ```python
            def before_run(self, run_context):
                return self.cost
            ```
        """

    @hookspec
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Take what `before_run` asked for.

        Args:
            run_context: the `tf.compat.v1.train.SessionRunContext` that `before_run` was given.
            run_values: a `tf.compat.v1.train.SessionRunValues`; its `results` have the structure of what this
                very plugin returned from `before_run`, and are None if that was None.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def after_run(self, run_context, run_values):
                self.costs.append(run_values.results)
            ```
        """

    @hookspec
    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Called after each step, whatever a step is; nothing runs along with it.

        Args:
            trainer: the trainer; `trainer.local_step` is that of the step that has just ended, counted from 0 in each
                epoch, and `trainer.global_step` how many steps have completed, this one included.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def trigger_step(self, trainer):
                if trainer.global_step % 100 == 0:
                    self.trigger(trainer)
            ```
        """


class FailureSpecs:
    """When something has gone wrong, and before what is there is saved."""

    @hookspec(firstresult=True)
    def translate_error(self, error: BaseException) -> BaseException | None:
        """Say by which error a run of the session has really failed; the first answer is raised in its place.

        Args:
            error: what the run has raised.

        Returns:
            The error that caused it, or None if the plugin does not know.

        Example:
            ```python
            def translate_error(self, error):
                if isinstance(error, tf.errors.CancelledError):
                    return self.failure_of_thread
            ```
        """

    @hookspec(firstresult=True)
    def recover(self, error: Exception) -> bool | None:
        """Put things right after a step has failed; it is then taken anew. The first answer counts.

        Args:
            error: by what the step has failed.

        Returns:
            True if the step shall be taken anew; None to leave it to others; False to let it fail.

        Example:
            ```python
            def recover(self, error):
                if isinstance(error, SimulatorDied):
                    self.simulator.restart()
                    return True
            ```
        """

    @hookspec
    def before_checkpoint(self) -> None:
        """Called before a checkpoint is taken; an error that it raises prevents that.

        Returns:
            Nothing; what is returned is not used.

        Example:
            ```python
            def before_checkpoint(self):
                if not math.isfinite(self.cost):
                    raise tpk.NonFiniteError("a checkpoint of a model that has diverged is of no use")
            ```
        """


SPECS = (ConfigurationSpecs, TrainingSpecs, StepSpecs, FailureSpecs)


def arguments_of_specs(specs: object) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each hook that a class or module of specifications declares, by its name."""
    skipped = 1 if inspect.isclass(specs) else 0
    return {
        name: tuple(inspect.signature(function).parameters)[skipped:]
        for name, function in vars(specs).items()
        if hasattr(function, "tpk_spec")
    }


HOOK_ARGUMENTS: dict[str, tuple[str, ...]] = {
    name: arguments for specs in SPECS for name, arguments in arguments_of_specs(specs).items()
}
"""The arguments of each hook of tpk, by its name; an implementation may take fewer of them."""

CONFIGURATION_HOOKS = tuple(arguments_of_specs(ConfigurationSpecs))
STEP_HOOKS = tuple(arguments_of_specs(StepSpecs))
HOOK_NAMES = tuple(name for name in HOOK_ARGUMENTS if name not in CONFIGURATION_HOOKS)
"""The hooks that a callback can implement."""
MAY_STOP = ("before_train", "before_epoch", "after_run", "trigger_step", "after_epoch", "trigger_epoch")
"""The hooks in which a `StopTraining` ends the training once all implementations have been called."""
