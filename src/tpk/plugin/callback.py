"""The base of all callbacks: a no-op for each hook, so that overriding a method *is* implementing it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tpk.plugin.base import Plugin
from tpk.plugin.description import shown_arguments
from tpk.plugin.spec import ConfigurationSpecs, arguments_of_specs, hookspec, taken_arguments, taking_all

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, TypeVar

    from tpk.plugin.run_options import RunOptions
    from tpk.plugin.trainer import TrainerProtocol

    _Self = TypeVar("_Self")
    _Arguments = ParamSpec("_Arguments")
    _Result = TypeVar("_Result")

    def _may_leave_out_arguments(
        hook: Callable[Concatenate[_Self, _Arguments], _Result],
    ) -> Callable[Concatenate[_Self, ...], _Result]: ...

else:

    def _may_leave_out_arguments(hook):
        """Tell type checkers that an override may take fewer arguments than the hook has."""
        return hook


class Callback(Plugin):
    """Something that happens besides the training itself: saving, reporting, evaluating, stopping.

    Override the hooks you need; no decorator is needed. An override may leave out the arguments that it does
    not use. ``@tpk.hookimpl(tryfirst=True)`` and ``trylast=True`` move it before or after the others;
    otherwise the order in the list of callbacks is the order of calls.

    Besides the hooks, it may have ``state_dict()`` and ``load_state_dict(state)``: what a checkpoint holds of it. A
    resumed training gives the state back after ``before_train`` (and after ``before_epoch``, if it goes on within an
    epoch), so that nothing which these do is done twice. It belongs to the callback of the same class, and the same
    `state_key`.

    Attributes:
        kind: what it is: ``"callback"``, or ``"monitor"`` or ``"strategy"``, which are callbacks, too.
        trainer: the trainer that the callback was registered with; set before `setup_graph`.
        chief_only: if true (the default), only the chief of a multi-process training runs this callback. Set
            it to false for whatever must run in every process.
        unused_hooks: hooks that this instance does not need although its class implements them, so that they cost
            nothing. Set it in ``__init__``.

    Example:
        ```python
        class PrintCost(tpk.Callback):
            def before_train(self, trainer):
                self.cost = trainer.towers.training()[0].get_tensor("cost:0")

            def before_run(self, run_context):
                return self.cost  # runs along with the step: no second Session.run

            def after_run(self, run_context, run_values):
                print("cost", run_values.results)
        ```
    """

    kind: ClassVar[str] = "callback"
    trainer: TrainerProtocol
    chief_only: bool = True
    unused_hooks: Collection[str] = ()
    if TYPE_CHECKING:

        @property
        def state_key(self) -> str:
            """A text that tells it from others of its class when a training is resumed; empty if nothing has to."""

    else:  # As a subclass likes: an attribute or a property.
        state_key = ""

    @hookspec
    @_may_leave_out_arguments
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add what the plugin needs to the graph; the last chance before the graph is finalized.

        Args:
            trainer: the trainer, with its graph as the default graph. There is no session yet.

        Example:
            ```python
            def setup_graph(self, trainer):
                norms = [tf.norm(variable) for variable in tf.compat.v1.trainable_variables()]
                self.largest_norm = tf.reduce_max(norms)
            ```
        """

    @hookspec
    @_may_leave_out_arguments
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Called once before the first epoch, with the session created and all variables initialized or restored.

        Args:
            trainer: the trainer; its graph and session are the default ones from here on.

        Example:
            ```python
            def before_train(self, trainer):
                self.started = time.monotonic()
            ```
        """

    @hookspec
    @_may_leave_out_arguments
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Called before the first step of each epoch; `trainer.epoch_num` is already that of the epoch.

        Args:
            trainer: the trainer.

        Example:
            ```python
            def before_epoch(self, trainer):
                self.costs = []
            ```
        """

    @hookspec
    @_may_leave_out_arguments
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
    @_may_leave_out_arguments
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Take what `before_run` asked for.

        Args:
            run_context: the `tf.compat.v1.train.SessionRunContext` that `before_run` was given.
            run_values: a `tf.compat.v1.train.SessionRunValues`; its `results` have the structure of what this
                very plugin returned from `before_run`, and are None if that was None.

        Example:
            ```python
            def after_run(self, run_context, run_values):
                self.costs.append(run_values.results)
            ```
        """

    @hookspec
    @_may_leave_out_arguments
    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Called after each step, whatever a step is; nothing runs along with it.

        Args:
            trainer: the trainer; `trainer.local_step` is that of the step that has just ended, counted from 0 in each
                epoch, and `trainer.global_step` how many steps have completed, this one included.

        Example:
            ```python
            def trigger_step(self, trainer):
                if trainer.global_step % 100 == 0:
                    self.trigger(trainer)
            ```
        """

    @hookspec
    @_may_leave_out_arguments
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Called after the last step of each epoch, before any `trigger_epoch`.

        Finish here what was done step by step, so that it is complete when other plugins' `trigger_epoch`
        look at it.

        Args:
            trainer: the trainer.

        Example:
            ```python
            def after_epoch(self, trainer):
                self.bar.close()
            ```
        """

    @hookspec
    @_may_leave_out_arguments
    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Called once an epoch is over: evaluate, save, report.

        Args:
            trainer: the trainer; `trainer.epoch_num` is still that of the epoch that ends.

        Example:
            ```python
            def trigger_epoch(self, trainer):
                trainer.monitors.put_scalar("mean-cost", sum(self.costs) / len(self.costs))
            ```
        """
        trigger_of(self)(trainer)

    @hookspec
    @_may_leave_out_arguments
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Called once at the end, however the training ends; the session is still open.

        Each implementation runs whatever happens in the others; a failure is logged. Wrappers are not
        possible here.

        Args:
            trainer: the trainer.

        Example:
            ```python
            def after_train(self, trainer):
                self.file.close()
            ```
        """

    @hookspec(firstresult=True)
    @_may_leave_out_arguments
    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return the error that caused a run of the session to fail; the first answer is raised instead.

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
        return None

    @hookspec(firstresult=True)
    @_may_leave_out_arguments
    def recover(self, error: Exception) -> bool | None:
        """Recover from a failed step, which is then repeated. The first answer counts.

        Args:
            error: the error of the step.

        Returns:
            True to repeat the step; None to leave it to other plugins; False to let it fail.

        Example:
            ```python
            def recover(self, error):
                if isinstance(error, SimulatorDied):
                    self.simulator.restart()
                    return True
            ```
        """
        return None

    @hookspec
    @_may_leave_out_arguments
    def before_checkpoint(self) -> None:
        """Called before a checkpoint is taken; an error that it raises prevents that.

        Example:
            ```python
            def before_checkpoint(self):
                if not math.isfinite(self.cost):
                    raise tpk.NonFiniteError("a checkpoint of a model that has diverged is of no use")
            ```
        """

    def resolve_plugins(self) -> None:
        """Turn what the callback was given by name into plugins; called before the graph is built.

        What holds other callbacks overrides it; see `ProxyCallback`.
        """

    def configure_run(self, run: RunOptions) -> None:
        """Change how long the training is, or where, before anything is built; called once by `Trainer.train`.

        It is called in all processes of the training, whatever `chief_only` is, and must do the same in each of them.

        Args:
            run: the options, to be changed in place.

        Example:
            ```python
            def configure_run(self, run):
                run.max_epoch = min(run.max_epoch, 3)
            ```
        """

    @_may_leave_out_arguments
    def trigger(self, trainer: TrainerProtocol) -> None:
        """What the callback does each time that its time has come: by default at the end of each epoch.

        Overriding it lets `PeriodicTrigger` choose other times. It may leave the trainer out, as a hook may.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a restart, as plain JSON data."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    @property
    def epoch_num(self) -> int:
        """The epoch under way, from `starting_epoch` on."""
        return self.trainer.epoch_num

    @property
    def local_step(self) -> int:
        """The step under way within the epoch, from 0 on; -1 before the first."""
        return self.trainer.local_step

    @property
    def global_step(self) -> int:
        """How many steps have completed."""
        return self.trainer.global_step

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that this callback implements, by name, as callables.

        The hook manager registers exactly these. Wrappers override it to hand on the hooks of what they wrap.
        """
        implementations = {name: getattr(self, name) for name in HOOK_NAMES if self._overrides(name)}
        if "trigger_epoch" not in implementations and self._overrides("trigger"):
            implementations["trigger_epoch"] = self.trigger
        return {name: method for name, method in implementations.items() if name not in self.unused_hooks}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_arguments(self)})"

    def _overrides(self, name: str) -> bool:
        """Whether `name` is more than the base's no-op, on class or instance, without touching it."""
        own = self.__class__
        return name in getattr(self, "__dict__", {}) or getattr(own, name) is not getattr(Callback, name)


class Triggered(Protocol):
    """What has a `trigger`, which takes the trainer or leaves it out: a callback."""

    @property
    def trigger(self) -> Callable[..., None]:
        """What it does each time that its time has come."""


def trigger_of(callback: Triggered) -> Callable[[TrainerProtocol], None]:
    """Return `trigger` of a callback as a function of the trainer, which its own may leave out.

    Raises:
        HookError: it takes something else.
    """
    given = HOOK_ARGUMENTS["trigger_epoch"]
    taken = taken_arguments(f"{type(callback).__name__}.trigger", given, callback.trigger)
    return taking_all(callback.trigger, taken, given)


HOOK_ARGUMENTS: dict[str, tuple[str, ...]] = {**arguments_of_specs(ConfigurationSpecs), **arguments_of_specs(Callback)}
"""The arguments of each hook of tpk, by its name; an implementation may take fewer of them."""

CONFIGURATION_HOOKS = tuple(arguments_of_specs(ConfigurationSpecs))
HOOK_NAMES = tuple(arguments_of_specs(Callback))
"""The hooks that a callback can implement."""

STEP_HOOKS = ("before_run", "after_run", "trigger_step")
"""The hooks around each step. They are compiled into plain tuples of methods, so wrappers are not possible."""

MAY_STOP = ("before_train", "before_epoch", "after_run", "trigger_step", "after_epoch", "trigger_epoch")
"""The hooks in which a `StopTraining` ends the training once all implementations have been called."""
