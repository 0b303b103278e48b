"""The base class of callbacks, which specifies the hooks of a training run: one method each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import tpk
from tpk.errors import ConfigError
from tpk.plugin.hookspecs import ConfigurationSpecs, arguments_of_specs, hookspec, taking_all
from tpk.plugin.recorded_options import RecordsOptions, shown_arguments
from tpk.plugin.run_settings import RunSettings

_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _flexible(method: Callable[Concatenate[_Self, _Arguments], _Result]) -> Callable[Concatenate[_Self, ...], _Result]:
    """Tell type checkers that an override may leave out arguments."""
    return method


def _hook(method: Callable[Concatenate[_Self, _Arguments], _Result]) -> Callable[Concatenate[_Self, ...], _Result]:
    """Mark a method as a hook, which an override may implement with fewer arguments."""
    return hookspec(method)


class Plugin(RecordsOptions):
    """Something that is registered with a training run under a unique name: its trainer, strategy, monitors, callbacks.

    Attributes:
        kind: ``"trainer"``, ``"strategy"``, ``"monitor"`` or ``"callback"``.
        plugin_name: the unique name under which it was registered, such as ``"ModelSaver"`` or ``"ModelSaver#2"``.
            Subclasses are free to have a `name`.
        state_attributes: the names of the attributes that a checkpoint keeps and a resumed run restores: plain data and
            arrays, which `__init__` must set. Those of base classes are included.

    Example:
        ```python
        class Patience(tpk.Callback):
            state_attributes = ("best", "waited")
        ```
    """

    kind: ClassVar[str]
    plugin_name: str = ""
    state_attributes: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Include the `state_attributes` of the base classes."""
        super().__init_subclass__(**options)
        named = [name for base in reversed(cls.__mro__) for name in vars(base).get("state_attributes", ())]
        if named:
            cls.state_attributes = tuple(dict.fromkeys(named))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as plain data: by default, the values of the `state_attributes`."""
        return {name: getattr(self, name) for name in self.state_attributes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in self.state_attributes:
            setattr(self, name, state[name])


class Callback(Plugin):
    """The base class of callbacks, which save, report, evaluate, or stop the training run.

    Override the hooks you need; no decorator is needed. An override may leave out arguments that it does not use.
    Callbacks are called in the order of their list. ``@tpk.hookimpl(tryfirst=True)`` and ``trylast=True`` move a method
    before or after the others.

    Checkpoints keep the attributes in `state_attributes`, or what `state_dict` returns. A resumed run restores them
    after ``before_train`` (and after ``before_epoch``, if it continues within an epoch), in the callback with the same
    class and the same `state_key`.

    Attributes:
        kind: ``"callback"``; or ``"monitor"`` or ``"strategy"``, which are also callbacks.
        trainer: the trainer of the callback; set before `setup_graph`.
        chief_only: if true (the default), only the chief of a multi-process run calls this callback. Set it to false
            for a callback that must run in every process.
        unused_hooks: hooks that the class implements but this instance does not need, so that they cost nothing. Set it
            in ``__init__``.
        state_key: a text that identifies the callback among others of its class when a run is resumed; may be empty.

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
    trainer: tpk.Trainer
    chief_only: bool = True
    unused_hooks: Collection[str] = ()
    state_key: str = ""

    @_hook
    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Add ops to the graph, before it is finalized.

        Args:
            trainer: the trainer, whose graph is the default graph. It has no session yet.

        Example:
            ```python
            def setup_graph(self, trainer):
                norms = [tf.norm(variable) for variable in tf.compat.v1.trainable_variables()]
                self.largest_norm = tf.reduce_max(norms)
            ```
        """

    @_hook
    def before_train(self, trainer: tpk.Trainer) -> None:
        """Called once before the first epoch, with the session created and all variables initialized or restored.

        Args:
            trainer: the trainer; its graph and session are the default ones from now on.

        Example:
            ```python
            def before_train(self, trainer):
                self.started = time.monotonic()
            ```
        """

    @_hook
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        """Called before the first step of each epoch, whose number is `trainer.epoch_num`.

        Args:
            trainer: the trainer.

        Example:
            ```python
            def before_epoch(self, trainer):
                self.costs = []
            ```
        """

    @_hook
    def before_run(self, run_context: Any) -> Any:
        """Return tensors and ops to run together with the step, in the same `Session.run`.

        Tensors of a training tower are computed before the step updates the variables. The value of a variable, or of a
        tensor that a callback computes from it, may be from before or after the update; see `Strategy.build`.

        Args:
            run_context: a `tf.compat.v1.train.SessionRunContext`: the session, and the arguments of the step itself.

        Returns:
            `tf.compat.v1.train.SessionRunArgs`, or tensors or ops in any structure that `Session.run` accepts, or None.
            It is cheapest to return the same object each time.

        Example:
            ```python
            def before_run(self, run_context):
                return self.cost
            ```
        """

    @_hook
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called after the step with the results of `before_run`.

        Args:
            run_context: the `tf.compat.v1.train.SessionRunContext` of `before_run`.
            run_values: a `tf.compat.v1.train.SessionRunValues`; its `results` have the structure that the `before_run`
                of this plugin returned, and are None if it returned None.

        Example:
            ```python
            def after_run(self, run_context, run_values):
                self.costs.append(run_values.results)
            ```
        """

    @_hook
    def trigger_step(self, trainer: tpk.Trainer) -> None:
        """Called after each step.

        Args:
            trainer: the trainer; `trainer.local_step` is the number of the step in its epoch, from 0, and
                `trainer.global_step` the number of completed steps, including this one.

        Example:
            ```python
            def trigger_step(self, trainer):
                if trainer.global_step % 100 == 0:
                    self.trigger(trainer)
            ```
        """

    @_hook
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Called after the last step of each epoch, before any `trigger_epoch`.

        Complete results that are collected step by step here, so that `trigger_epoch` of other plugins can use them.

        Args:
            trainer: the trainer.

        Example:
            ```python
            def after_epoch(self, trainer):
                self.bar.close()
            ```
        """

    @_hook
    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Called at the end of each epoch, to evaluate, save and report.

        Args:
            trainer: the trainer; `trainer.epoch_num` is the number of the epoch that ends.

        Example:
            ```python
            def trigger_epoch(self, trainer):
                trainer.monitors.put_scalar("mean-cost", sum(self.costs) / len(self.costs))
            ```
        """
        trigger_of(self)(trainer)

    @_hook
    def after_train(self, trainer: tpk.Trainer) -> None:
        """Called once at the end, however the run ends; the session is still open.

        Each implementation runs even if others fail; failures are logged. Wrappers are not possible here.

        Args:
            trainer: the trainer.

        Example:
            ```python
            def after_train(self, trainer):
                self.file.close()
            ```
        """

    @hookspec(firstresult=True)
    @_flexible
    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return the error that caused a run of the session to fail; the first answer is raised instead.

        Args:
            error: the error that the run raised.

        Returns:
            The error that caused it; None if the plugin does not know.

        Example:
            ```python
            def translate_error(self, error):
                if isinstance(error, tf.errors.CancelledError):
                    return self.failure_of_thread
            ```
        """
        return None

    @hookspec(firstresult=True)
    @_flexible
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

    @_hook
    def before_checkpoint(self) -> None:
        """Called before a checkpoint is taken; an error that it raises prevents that.

        Example:
            ```python
            def before_checkpoint(self):
                if not math.isfinite(self.cost):
                    raise tpk.NonFiniteError("the model has diverged")
            ```
        """

    def resolve_plugins(self) -> None:
        """Replace names of plugins that the callback holds by the plugins; called before the graph is built."""

    def configure_run(self, run: RunSettings) -> None:
        """Change the options of the run before anything is built; called once by `Trainer.train`.

        It is called in all processes of the run, even with `chief_only`, and must do the same in each of them.

        Args:
            run: the options, to be changed in place.

        Example:
            ```python
            def configure_run(self, run):
                run.max_epoch = min(run.max_epoch, 3)
            ```
        """

    @_flexible
    def trigger(self, trainer: tpk.Trainer) -> None:
        """Called at the end of each epoch, or when `PeriodicTrigger` decides. It may leave out the trainer."""

    @property
    def epoch_num(self) -> int:
        """The number of the current epoch."""
        return self.trainer.epoch_num

    @property
    def local_step(self) -> int:
        """The number of the current step in the epoch, from 0; -1 before the first."""
        return self.trainer.local_step

    @property
    def global_step(self) -> int:
        """The number of completed steps."""
        return self.trainer.global_step

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that this callback implements, by name, as callables.

        The hook manager registers these. A callback that wraps another one overrides it.
        """
        implementations = {name: getattr(self, name) for name in HOOK_NAMES if self._overrides(name)}
        if "trigger_epoch" not in implementations and self._overrides("trigger"):
            implementations["trigger_epoch"] = self.trigger
        return {name: method for name, method in implementations.items() if name not in self.unused_hooks}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_arguments(self)})"

    def _overrides(self, name: str) -> bool:
        """Whether the class or the instance overrides a hook; does not evaluate properties."""
        return name in getattr(self, "__dict__", {}) or getattr(self.__class__, name) is not getattr(Callback, name)


def trigger_of(callback: Callback) -> Callable[[tpk.Trainer], None]:
    """Return `trigger` of a callback as a function of the trainer.

    Raises:
        HookError: if it takes other arguments.
    """
    return taking_all(f"{type(callback).__name__}.trigger", HOOK_ARGUMENTS["trigger_epoch"], callback.trigger)


HOOK_ARGUMENTS: dict[str, tuple[str, ...]] = {**arguments_of_specs(ConfigurationSpecs), **arguments_of_specs(Callback)}
"""The arguments of each hook; an implementation may take fewer."""

CONFIGURATION_HOOKS = tuple(arguments_of_specs(ConfigurationSpecs))
HOOK_NAMES = tuple(arguments_of_specs(Callback))
"""The hooks that a callback can implement."""

STEP_HOOKS = ("before_run", "after_run", "trigger_step")
"""The hooks around each step. They are compiled into plain tuples of methods, so wrappers are not possible."""

MAY_STOP = ("before_train", "before_epoch", "after_run", "trigger_step", "after_epoch", "trigger_epoch")
"""The hooks in which a `StopTraining` ends the run after all implementations were called."""


def in_run_dir(callback: Callback, filename: str | Path = "") -> Path:
    """Return the path of a file in the directory of the run, or the directory itself; an absolute path as it is.

    Raises:
        ConfigError: if the run has no directory.
    """
    run_dir = callback.trainer.run_dir
    if run_dir is None and not Path(filename).is_absolute():
        name = type(callback).__name__
        raise ConfigError(
            f"{name} needs the directory of the run, but this run has none (run_dir is None). Give the trainer a "
            f"run_dir, or leave {name} out."
        )
    return Path(run_dir or "", filename)
