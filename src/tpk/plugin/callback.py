"""The base of all callbacks: a no-op for each hook, so that overriding a method *is* implementing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tpk.plugin.hooks.arguments import taken_arguments, taking_all
from tpk.plugin.options import RecordsOptions
from tpk.plugin.spec import HOOK_ARGUMENTS, HOOK_NAMES
from tpk.plugin.written import shown_arguments

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


class Callback(RecordsOptions):
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
        plugin_name: the unique name under which it was registered, such as ``"ModelSaver"`` or ``"ModelSaver#2"``. A
            `name` is the subclass's own affair.
        chief_only: if true (the default), only the chief of a multi-process training runs this callback. Set
            it to false for whatever must run in every process.

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
    plugin_name: str = ""
    chief_only: bool = True
    if TYPE_CHECKING:

        @property
        def state_key(self) -> str:
            """A text that tells it from others of its class when a training is resumed; empty if nothing has to."""

    else:  # As a subclass likes: an attribute or a property.
        state_key = ""

    @_may_leave_out_arguments
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add what the callback needs to the graph; the last chance before the graph is finalized."""

    @_may_leave_out_arguments
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Called once, with the session initialized, before the first epoch."""

    @_may_leave_out_arguments
    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Called before the first step of each epoch."""

    @_may_leave_out_arguments
    def before_run(self, run_context: Any) -> Any:
        """Called before each `hooked_sess.run`; returns what to run along with it.

        Args:
            run_context: `tf.compat.v1.train.SessionRunContext`.

        Returns:
            `tf.compat.v1.train.SessionRunArgs`, or tensors or ops in any structure that `Session.run` takes,
            or None. Returning the same object each time is the cheapest.
        """

    @_may_leave_out_arguments
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called after each `hooked_sess.run`.

        Args:
            run_context: `tf.compat.v1.train.SessionRunContext`.
            run_values: `tf.compat.v1.train.SessionRunValues`; its `results` are those of what this very
                callback asked for in `before_run`.
        """

    @_may_leave_out_arguments
    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Called after each step, whatever a step is."""

    @_may_leave_out_arguments
    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Called after the last step of each epoch, before any `trigger_epoch`."""

    @_may_leave_out_arguments
    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Called once an epoch is over; does what `trigger` does unless overridden."""
        trigger_of(self)(trainer)

    @_may_leave_out_arguments
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Called once at the end, however the training ends; the session is still open."""

    @_may_leave_out_arguments
    def translate_error(self, error: BaseException) -> BaseException | None:
        """Called when a run of the session has failed; returns the error that caused it, or None."""
        return None

    @_may_leave_out_arguments
    def recover(self, error: Exception) -> bool | None:
        """Called when a step has failed; returns True if it has put things right, and the step shall be taken anew."""
        return None

    @_may_leave_out_arguments
    def before_checkpoint(self) -> None:
        """Called before a checkpoint is taken; an error that it raises prevents that."""

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
        return implementations

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
