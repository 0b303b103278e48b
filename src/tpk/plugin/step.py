"""The hooks of a step, compiled into plain tuples of the methods that implement them.

A hook call through pluggy costs 0.7 µs with no implementation and 2 µs with five; a loop over such a tuple
costs 0.02 and 0.13 µs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, cast

import attrs
import pluggy

from tpk.errors import StopTraining, add_note
from tpk.plugin.callback import HOOK_ARGUMENTS, MAY_STOP, STEP_HOOKS
from tpk.plugin.implementations import Implementation
from tpk.plugin.spec import taking_all

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


Method = Callable[..., Any]

_GRAPH_IS_FINALIZED = "Graph is finalized"
"""Part of TensorFlow's message for an op that is created too late."""


class Registration:
    """A plugin as pluggy sees it: an object whose attributes are exactly the hooks that the plugin implements.

    pluggy never sees the plugin itself: it would evaluate its properties, miss hooks that it forwards by
    ``__getattr__``, and confuse it with an equal one.

    Attributes:
        name: the unique name of the plugin.
        implementations: its hooks, by name.
    """

    def __init__(
        self,
        name: str,
        implementations: list[Implementation],
        step_function: Callable[[str, Implementation], Callable[..., Any]] | None = None,
        take_stop: Callable[[StopTraining], None] | None = None,
    ) -> None:
        """Hold `implementations`.

        Args:
            name: the unique name of the plugin.
            implementations: its hooks.
            step_function: replaces the functions of step hooks; None for none.
            take_stop: called with a `StopTraining` of a hook that lets the other plugins finish.
        """
        self.name = name
        self.implementations = {each.hook: each for each in implementations}
        for each in implementations:
            if each.hook not in STEP_HOOKS:
                function = noted(name, each, take_stop or raise_stop)
            elif step_function is not None:
                function = step_function(name, each)
            else:
                function = each.method
            setattr(self, each.hook, function)

    def __dir__(self) -> list[str]:
        return list(self.implementations)

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self.implementations)}>"


def raise_stop(stop: StopTraining) -> None:
    """Raise `stop`; the default where no loop can end the run cleanly."""
    raise stop


def noted(
    name: str, implementation: Implementation, take_stop: Callable[[StopTraining], None] = raise_stop
) -> Callable[..., Any]:
    """Return the method of `implementation`, wrapped to add a note with plugin and hook to its errors.

    `take_stop` gets a `StopTraining` of a hook in `MAY_STOP`, so that the other plugins are still called.
    """
    method = implementation.method
    may_stop = implementation.hook in MAY_STOP

    # pluggy finds the names of the arguments through `functools.wraps`.
    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except StopTraining as stop:
            note_failure(stop, name, implementation.hook)
            if not may_stop:
                raise
            take_stop(stop)
        except BaseException as error:
            note_failure(error, name, implementation.hook)
            raise

    @functools.wraps(method)
    def call_wrapper(*arguments: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from method(*arguments))
        except BaseException as error:
            note_failure(error, name, implementation.hook)
            raise

    return call_wrapper if implementation.wrapper else call


def note_failure(error: BaseException, name: str, hook: str) -> None:
    """Add a note to `error` that it was raised in `hook` of the plugin `name`, unless it has such a note.

    A wrapper also sees the errors of the plugins that it wraps; the first note is correct.
    """
    if not any(note.startswith("in callback ") for note in getattr(error, "__notes__", ())):
        add_note(error, f"in callback {name!r}, hook {hook!r}")
        if _GRAPH_IS_FINALIZED in str(error):
            add_note(error, "create ops in setup_graph, the last hook before the graph is finalized, and keep them")


@attrs.frozen(eq=False)
class StepHooks:
    """The hooks of a step, in call order.

    Attributes:
        before_run: functions of a run context that return what their plugin adds to the run of the step.
        after_run: pairs: a function of a run context and of its plugin's run values, and the index in
            `before_run` of the same plugin, or None if it does not implement that.
        trigger_step: functions of the trainer.
        names: for each of the three hooks, the names of the plugins, in the same order.
        take_stop: called with a `StopTraining` of `after_run` or `trigger_step`, so that the others are still called.
        translate_error: returns the error that caused the failure of a run, or None.

    Example:
        ```python
        try:
            for method in step_hooks.before_run:
                requests.append(method(run_context))
        except BaseException as error:
            step_hooks.note_failure(error, "before_run", method)
            raise
        ```
    """

    before_run: tuple[Method, ...] = ()
    after_run: tuple[tuple[Method, int | None], ...] = ()
    trigger_step: tuple[Method, ...] = ()
    names: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    take_stop: Callable[[StopTraining], None] = raise_stop
    translate_error: Callable[[BaseException], BaseException | None] = lambda error: None

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Call every `trigger_step`; an error gets a note that names the callback."""
        methods = iter(self.trigger_step)
        while True:
            try:
                for method in methods:
                    method(trainer)
                return
            except StopTraining as stop:
                self.note_failure(stop, "trigger_step", method)
                self.take_stop(stop)
            except BaseException as error:
                self.note_failure(error, "trigger_step", method)
                raise

    def note_failure(self, error: BaseException, hook: str, method: Method) -> None:
        """Add a note to `error`, raised by `method` of `hook`, that names the plugin.

        The name is looked up only here, which keeps the loops over the tuples fast.
        """
        methods = [pair[0] for pair in self.after_run] if hook == "after_run" else getattr(self, hook)
        for name, candidate in zip(self.names.get(hook, ()), methods, strict=False):
            if candidate is method:
                note_failure(error, name, hook)
                return


def compile_step(
    hook: pluggy.HookRelay,
    take_stop: Callable[[StopTraining], None] = raise_stop,
    translate_error: Callable[[BaseException], BaseException | None] = lambda error: None,
) -> StepHooks:
    """Compile the step hooks registered with `hook`, in the order in which pluggy would call them."""
    called = {name: call_order(getattr(hook, name)) for name in STEP_HOOKS}
    names = {name: tuple(each.name for each in registrations) for name, registrations in called.items()}
    methods = {
        name: tuple(direct(each.implementations[name]) for each in registrations)
        for name, registrations in called.items()
    }
    index = {plugin: position for position, plugin in enumerate(names["before_run"])}
    return StepHooks(
        before_run=methods["before_run"],
        after_run=tuple(
            (method, index.get(plugin)) for plugin, method in zip(names["after_run"], methods["after_run"], strict=True)
        ),
        trigger_step=methods["trigger_step"],
        names=names,
        take_stop=take_stop,
        translate_error=translate_error,
    )


def direct(implementation: Implementation) -> Method:
    """Return a function of all arguments of the hook: the method itself if it takes all of them."""
    return taking_all(implementation.method, implementation.arguments, HOOK_ARGUMENTS[implementation.hook])


def call_order(caller: pluggy.HookCaller) -> list[Registration]:
    """Return the registrations that implement the hook of `caller`, first called first."""
    # pluggy calls the last one in its list first.
    return [cast(Registration, each.plugin) for each in reversed(caller.get_hookimpls())]


logger = logging.getLogger("tpk.trace")


class TracedStep:
    """The hooks of a step through pluggy, with every call logged; slower, in the same order.

    ``TPK_TRACE=1`` uses this instead of the compiled step. Requests and values differ by plugin, which pluggy does not
    support, so the functions that it calls store and look them up by the name of the plugin.
    """

    def __init__(self, manager: pluggy.PluginManager, take_stop: Callable[[StopTraining], None]) -> None:
        """Let `manager` log each hook call, with arguments and results, to the logger ``tpk.trace``."""
        self._take_stop = take_stop
        self._hook = manager.hook
        self._trace = manager.trace.root.get("plugin")
        self._requests: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        manager.trace.root.setwriter(lambda text: logger.info(text.rstrip("\n")))
        manager.enable_tracing()

    def step_function(self, name: str, implementation: Implementation) -> Callable[..., Any]:
        """Return the function that pluggy calls for `implementation` of the plugin `name`."""
        hook = implementation.hook
        noted_call = noted(name, attrs.evolve(implementation, method=direct(implementation)), self._take_stop)

        def call(*arguments: Any) -> Any:
            self._trace(name, hook)
            return noted_call(*arguments)

        def before_run(run_context: Any) -> Any:
            self._requests[name] = call(run_context)
            return self._requests[name]

        def after_run(run_context: Any, run_values: Any) -> None:
            call(run_context, run_values[name])

        def trigger_step(trainer: Any) -> None:
            call(trainer)

        functions: dict[str, Callable[..., Any]] = {
            "before_run": before_run,
            "after_run": after_run,
            "trigger_step": trigger_step,
        }
        return functions[hook]

    def compile(self, translate_error: Callable[[BaseException], BaseException | None]) -> StepHooks:
        """Return step hooks with the same entries as the compiled ones, which call pluggy once for each hook.

        The first `before_run` and the last `after_run` make the calls for all plugins.
        """
        compiled = compile_step(self._hook, translate_error=translate_error)
        requesting, receiving = compiled.names["before_run"], compiled.names["after_run"]
        return attrs.evolve(
            compiled,
            before_run=tuple(functools.partial(self._request, name, name == requesting[0]) for name in requesting),
            after_run=tuple(
                (functools.partial(self._receive, name, name == receiving[-1]), index)
                for name, (_, index) in zip(receiving, compiled.after_run, strict=True)
            ),
            trigger_step=(self._trigger,) if compiled.trigger_step else (),
        )

    def _request(self, name: str, is_first: bool, run_context: Any) -> Any:
        if is_first:
            self._requests.clear()
            self._hook.before_run(run_context=run_context)
        return self._requests[name]

    def _receive(self, name: str, is_last: bool, run_context: Any, run_values: Any) -> None:
        self._values[name] = run_values
        if is_last:
            self._hook.after_run(run_context=run_context, run_values=self._values)

    def _trigger(self, trainer: Any) -> None:
        self._hook.trigger_step(trainer=trainer)
