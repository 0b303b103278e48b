"""For every kind of plugin, either its hooks are found, or an error says why not."""

from __future__ import annotations

import functools
import types
import weakref

import attrs
import pytest

import tpk.errors
from tpk.plugin import Callback, HookManager, hookimpl, order_of
from tpk.plugin.implementations import implementations_of


def hooks_of(plugin):
    return {implementation.hook for implementation in implementations_of(plugin)}


class Undecorated(Callback):
    def before_run(self, run_context):
        return "request"

    def trigger(self):
        pass


class Forwarder:
    """Not a callback; forwards all attributes, like many wrappers."""

    def __init__(self, wrapped):
        self._wrapped = wrapped

    def __getattr__(self, name):
        return getattr(self._wrapped, name)


class Runner:
    """Not a callback; has a method with the name of a hook."""

    def __init__(self):
        self.calls = []

    def before_epoch(self):
        self.calls.append("before_epoch")


def module_with(**functions):
    module = types.ModuleType("plugin_module")
    for name, function in functions.items():
        function.__module__ = module.__name__
        setattr(module, name, function)
    return module


# Implementations that are found.


def test_an_override_needs_no_decorator():
    assert hooks_of(Undecorated()) == {"before_run", "trigger_epoch"}


def test_trigger_epoch_calls_trigger_unless_overridden():
    class Both(Undecorated):
        def trigger_epoch(self, trainer):
            pass

    (implementation,) = (each for each in implementations_of(Both()) if each.hook == "trigger_epoch")
    assert implementation.method.__name__ == "trigger_epoch"


def test_a_method_set_on_the_instance_counts():
    callback = Callback()
    callback.before_epoch = lambda trainer: None
    assert hooks_of(callback) == {"before_epoch"}


def test_static_and_class_methods_count():
    class Methods(Callback):
        @staticmethod
        def before_epoch(trainer):
            pass

        @classmethod
        def after_epoch(cls, trainer):
            pass

    assert hooks_of(Methods()) == {"before_epoch", "after_epoch"}


def test_a_property_that_raises_is_never_touched():
    class Fragile(Undecorated):
        @property
        def results(self):
            raise RuntimeError("not yet")

        @property
        def before_everything(self):
            raise RuntimeError("not yet")

    manager = HookManager()
    assert manager.register_all([Fragile()]) == ["Fragile"]
    assert len(manager.compile_step().before_run) == 1


def test_a_weak_proxy_keeps_its_hooks():
    callback = Undecorated()
    manager = HookManager()
    assert manager.register_all([weakref.proxy(callback)]) == ["Undecorated"]
    assert [method(None) for method in manager.compile_step().before_run] == ["request"]
    assert callback.plugin_name == "Undecorated"


def test_a_weak_proxy_of_something_else_keeps_its_hooks():
    runner = Runner()
    manager = HookManager()
    manager.register_all([weakref.proxy(runner)])
    manager.hook.before_epoch(trainer=None)
    assert runner.calls == ["before_epoch"]


def test_an_object_that_forwards_by_getattr_keeps_its_hooks():
    runner = Runner()
    manager = HookManager()
    assert manager.register_all([Forwarder(runner)]) == ["Forwarder"]
    manager.hook.before_epoch(trainer=None)
    assert runner.calls == ["before_epoch"]


def test_a_callback_that_forwards_by_getattr_implements_no_hook():
    class ForwardingCallback(Forwarder, Callback):
        pass

    with pytest.raises(tpk.errors.HookError, match=r"to forward hooks.* override hook_implementations"):
        implementations_of(ForwardingCallback(Undecorated()))


def test_a_callback_that_forwards_by_getattr_may_return_its_hooks():
    class ForwardingCallback(Forwarder, Callback):
        def hook_implementations(self):
            return self._wrapped.hook_implementations()

    assert hooks_of(ForwardingCallback(Undecorated())) == {"before_run", "trigger_epoch"}


def test_a_callback_without_hooks_would_never_be_called():
    with pytest.raises(tpk.errors.HookError, match="Callback implements no hook, so nothing would call it"):
        implementations_of(Callback())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("on_epoch_end", "trigger_epoch"), ("on_train_batch_start", "before_run"), ("_setup_graph", "setup_graph")],
)
def test_hooks_of_other_frameworks_are_errors_that_name_ours(theirs, ours):
    plugin_class = type("Foreign", (Callback,), {theirs: lambda self: None, "before_train": lambda self: None})
    with pytest.raises(tpk.errors.HookError, match=rf"Foreign .*{theirs}\b.*'{ours}'"):
        implementations_of(plugin_class())


def test_the_decorated_functions_of_a_module_count():
    @hookimpl
    def tpk_configure(config):
        pass

    def helper():
        pass

    assert hooks_of(module_with(tpk_configure=tpk_configure, helper=helper)) == {"tpk_configure"}


def test_a_decorated_function_that_a_module_imports_counts():
    @hookimpl
    def before_train(trainer):
        pass

    module = types.ModuleType("package")
    module.before_train = before_train
    assert hooks_of(module) == {"before_train"}


# Invalid names.


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("befor_run", "before_run"),
        ("before_trains", "before_train"),
        ("after_training", "after_train"),
        ("trigger_epochs", "trigger_epoch"),
        ("setupgraph", "setup_graph"),
        ("afterTrain", "after_train"),
        ("triggers", "trigger"),
    ],
)
def test_a_near_miss_is_an_error_that_suggests_the_right_name(name, meant):
    plugin_class = type("Slip", (Callback,), {name: lambda self: None})
    with pytest.raises(tpk.errors.HookError, match=f"Slip defines {name}.*did you mean '{meant}'"):
        implementations_of(plugin_class())


@pytest.mark.parametrize(
    "name",
    [
        *("_setup_graph", "_before_train", "_before_epoch", "_before_run", "_after_run", "_trigger_step"),
        *("_after_epoch", "_trigger_epoch", "_after_train", "_trigger"),
    ],
)
def test_the_underscored_names_of_tensorpack_are_an_error(name):
    plugin_class = type("Ported", (Callback,), {name: lambda self: None})
    with pytest.raises(tpk.errors.HookError, match=f"hooks have no underscore: call it '{name[1:]}'"):
        implementations_of(plugin_class())


def test_an_underscored_part_of_a_hook_is_allowed():
    class Template(Callback):
        def trigger_epoch(self, trainer):
            self._trigger_epoch()

        def _trigger_epoch(self):
            pass

    class Filled(Template):
        def _trigger_epoch(self):
            pass

    assert hooks_of(Filled()) == {"trigger_epoch"}


@pytest.mark.parametrize(
    "name",
    ["before_inference", "after_inference", "triggered", "trigger_once", "after_step", "build_graph"],
)
def test_names_with_another_meaning_are_allowed(name):
    plugin_class = type("Other", (Undecorated,), {name: lambda self: None})
    assert hooks_of(plugin_class()) == {"before_run", "trigger_epoch"}


def test_a_near_miss_among_the_data_of_a_class_is_allowed():
    data = {"befor_run": 3, "triggers": property(lambda self: 1 / 0), "before_train": lambda self: None}
    assert hooks_of(type("Data", (Callback,), data)()) == {"before_train"}


def test_a_decorated_function_that_is_not_a_hook_is_an_error():
    class Decorated(Callback):
        @hookimpl
        def whenever_it_rains(self):
            pass

    with pytest.raises(tpk.errors.HookError, match=r"whenever_it_rains, which is not a hook.*the hooks are"):
        implementations_of(Decorated())


def test_a_decorated_near_miss_in_a_module_is_an_error():
    @hookimpl
    def tpk_config(config):
        pass

    with pytest.raises(tpk.errors.HookError, match="did you mean 'tpk_configure'"):
        implementations_of(module_with(tpk_config=tpk_config))


def test_an_undecorated_hook_in_a_module_is_an_error():
    def before_train(trainer):
        pass

    with pytest.raises(tpk.errors.HookError, match=r"before_train .*not decorated: add @tpk.hookimpl"):
        implementations_of(module_with(before_train=before_train))


def test_a_callback_cannot_configure():
    class Configuring(Callback):
        def tpk_configure(self, config):
            pass

    with pytest.raises(tpk.errors.HookError, match=r"before callbacks are registered.*tpk.plugins"):
        implementations_of(Configuring())


# Invalid implementations.


@pytest.mark.parametrize("plugin", [3, None, "ModelSaver", object(), print, types.ModuleType("empty")])
def test_an_object_without_hooks_is_an_error(plugin):
    with pytest.raises(tpk.errors.HookError, match="implements no hook"):
        implementations_of(plugin)


def test_a_class_is_an_error():
    with pytest.raises(tpk.errors.HookError, match=r"Undecorated is a class.*pass an instance"):
        implementations_of(Undecorated)


def test_a_session_run_hook_is_an_error_that_says_how_to_wrap_it():
    class SessionRunHook:
        def before_run(self, run_context):
            pass

    class NanTensorHook(SessionRunHook):
        pass

    with pytest.raises(tpk.errors.HookError, match=r"give tpk.HookToCallback\(NanTensorHook\(...\)\)"):
        implementations_of(NanTensorHook())


@pytest.mark.parametrize("method", [functools.partial(print), 3, Callback])
def test_a_hook_that_is_not_a_function_is_an_error(method):
    callback = Callback()
    callback.before_run = method
    with pytest.raises(tpk.errors.HookError, match="must be a function or a method"):
        implementations_of(callback)


def test_an_instance_leaves_out_hooks_that_it_does_not_need():
    class Sometimes(Callback):
        def __init__(self, unused):
            self.unused_hooks = unused

        def before_run(self, run_context):
            return None

        def trigger(self):
            pass

    assert hooks_of(Sometimes(())) == {"before_run", "trigger_epoch"}
    assert hooks_of(Sometimes({"before_run"})) == {"trigger_epoch"}
    assert hooks_of(Sometimes({"trigger_epoch"})) == {"before_run"}


def test_hook_implementations_of_an_unknown_hook_are_an_error():
    class Wrong(Callback):
        def hook_implementations(self):
            return {"before_step": self.trigger}

    with pytest.raises(tpk.errors.HookError, match="before_step: unknown hook"):
        implementations_of(Wrong())


# Invalid arguments and options.


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda self, run_context=None: None, "gives 'run_context' a default"),
        (lambda self, run_context, verbose=True: None, "gives 'verbose' a default"),
        (lambda self, context: None, "takes 'context', which this hook does not pass"),
        (lambda self, trainer: None, "takes 'trainer', which this hook does not pass"),
        (lambda self, *arguments: None, r"takes \*arguments"),
        (lambda self, **options: None, r"takes \*\*options"),
        (lambda self, *, run_context: None, "takes run_context, but hooks are called with positional"),
    ],
)
def test_arguments_that_the_hook_does_not_pass_are_errors(method, message):
    plugin_class = type("Slip", (Callback,), {"before_run": method})
    with pytest.raises(tpk.errors.HookError, match=f"Slip.before_run {message}.*may take run_context"):
        implementations_of(plugin_class())


@pytest.mark.parametrize("hook", ["before_run", "after_run", "trigger_step", "after_train"])
def test_a_wrapper_is_refused_for_hooks_that_cannot_be_wrapped(hook):
    def generator(self):
        yield

    plugin_class = type("Wrapping", (Callback,), {hook: hookimpl(wrapper=True)(generator)})
    with pytest.raises(tpk.errors.HookError, match=f"Wrapping.{hook} cannot be a wrapper"):
        implementations_of(plugin_class())


def test_a_wrapper_must_be_a_generator():
    plugin_class = type("Wrapping", (Callback,), {"before_epoch": hookimpl(wrapper=True)(lambda self: None)})
    with pytest.raises(tpk.errors.HookError, match="needs a `yield`"):
        implementations_of(plugin_class())


def test_a_generator_must_be_a_wrapper():
    def generator(self):
        yield

    async def coroutine(self):
        pass

    for method in (generator, coroutine):
        plugin_class = type("Lost", (Callback,), {"before_epoch": method})
        with pytest.raises(tpk.errors.HookError, match="calling it would not run it"):
            implementations_of(plugin_class())


@pytest.mark.parametrize("option", [{"hookwrapper": True}, {"optionalhook": True}, {"specname": "before_run"}])
def test_other_options_of_pluggy_are_refused(option):
    plugin_class = type("Optional", (Callback,), {"before_run": hookimpl(**option)(lambda self: None)})
    with pytest.raises(tpk.errors.HookError, match="tpk supports wrapper, tryfirst and trylast"):
        implementations_of(plugin_class())


def test_tryfirst_and_trylast_together_are_refused():
    method = hookimpl(tryfirst=True, trylast=True)(lambda self: None)
    with pytest.raises(tpk.errors.HookError, match="both tryfirst and trylast"):
        implementations_of(type("Torn", (Callback,), {"before_run": method})())


# Options that undecorated methods inherit.


class Last(Callback):
    @hookimpl(trylast=True)
    def trigger(self):
        pass


class Refined(Last):
    def trigger(self):
        pass


class RefinedAtTheEpoch(Last):
    def trigger_epoch(self, trainer):
        pass


class First(Refined):
    @hookimpl(tryfirst=True)
    def trigger(self):
        pass


@pytest.mark.parametrize(
    ("callback", "first", "last"),
    [
        (Undecorated(), False, False),
        (Last(), False, True),
        (Refined(), False, True),
        (RefinedAtTheEpoch(), False, True),
        (First(), True, False),
    ],
)
def test_an_override_inherits_the_place_in_the_order(callback, first, last):
    (implementation,) = (each for each in implementations_of(callback) if each.hook == "trigger_epoch")
    assert implementation.place == last - first
    assert order_of(callback.trigger) == {"tryfirst": first, "trylast": last}


def test_the_place_in_the_order_is_found_through_wraps():
    class Wrapping(Callback):
        def hook_implementations(self):
            method = Refined().trigger

            @functools.wraps(method)
            def trigger(*arguments):
                return method(*arguments)

            return {"trigger_epoch": trigger}

    (implementation,) = implementations_of(Wrapping())
    assert implementation.place == 1


def test_a_decorator_above_staticmethod_is_not_lost():
    class Static(Callback):
        @hookimpl(trylast=True)
        @staticmethod
        def before_epoch():
            pass

    (implementation,) = implementations_of(Static())
    assert implementation.place == 1


def test_an_override_does_not_inherit_being_a_wrapper():
    class Wrapping(Callback):
        @hookimpl(wrapper=True, tryfirst=True)
        def before_epoch(self):
            return (yield)

    class Plain(Wrapping):
        def before_epoch(self):
            pass

    (implementation,) = implementations_of(Plain())
    assert (implementation.wrapper, implementation.place) == (False, -1)


def test_equal_callbacks_do_not_collide():
    @attrs.define(eq=True)
    class Equal(Callback):
        tag: str = "same"
        calls: list = attrs.field(factory=list, eq=False)

        def before_epoch(self):
            self.calls.append(self.plugin_name)

    first, second = Equal(), Equal()
    assert first == second
    manager = HookManager()
    assert manager.register_all([first, second]) == ["Equal", "Equal#2"]
    manager.hook.before_epoch(trainer=None)
    assert (first.calls, second.calls) == (["Equal"], ["Equal#2"])
