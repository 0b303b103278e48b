from __future__ import annotations

import logging

import pytest
from hypothesis import given, strategies as st

from tpk.plugin import Callback, HookManager, StepHooks, hookimpl

CONTEXT = object()


class Asking(Callback):
    """Fetches something in each step."""

    def __init__(self, calls, request="request"):
        self.calls = calls
        self.request = request

    def before_run(self, run_context):
        self.calls.append((self.plugin_name, "before_run", run_context))
        return self.request

    def after_run(self, run_context, run_values):
        self.calls.append((self.plugin_name, "after_run", run_context, run_values))


class Silent(Asking):
    """Fetches nothing, takes fewer arguments, and is called first."""

    @hookimpl(tryfirst=True)
    def before_run(self):
        self.calls.append((self.plugin_name, "before_run"))


class Receiving(Callback):
    """Implements `after_run` only, with the arguments in another order."""

    def __init__(self, calls):
        self.calls = calls

    def after_run(self, run_values, run_context):
        self.calls.append((self.plugin_name, "after_run", run_context, run_values))


class Stepping(Callback):
    def __init__(self, calls):
        self.calls = calls

    def trigger_step(self, trainer):
        self.calls.append((self.plugin_name, "trigger_step", trainer))


class AskingLast(Asking, Stepping):
    @hookimpl(trylast=True)
    def before_run(self, run_context):
        return super().before_run(run_context)

    @hookimpl(trylast=True)
    def trigger_step(self):
        self.calls.append((self.plugin_name, "trigger_step"))


KINDS = [Asking, Silent, Receiving, Stepping, AskingLast]


def run_step(hooks: StepHooks, calls: list) -> list:
    """Do what a hooked session does in a step."""
    requests = [method(CONTEXT) for method in hooks.before_run]
    calls.append(("run", *requests))
    results = [f"result {position} of {request}" for position, request in enumerate(requests)]
    for method, position in hooks.after_run:
        method(CONTEXT, None if position is None else results[position])
    hooks.trigger("trainer")
    return calls


def compiled(kinds, calls):
    manager = HookManager()
    manager.register_all([kind(calls) for kind in kinds])
    return manager.compile_step()


def test_without_implementations_the_step_hooks_are_empty():
    hooks = HookManager().compile_step()
    assert (hooks.before_run, hooks.after_run, hooks.trigger_step) == ((), (), ())


def test_methods_with_all_arguments_are_called_directly():
    callback = AskingLast([])
    stepping = Stepping([])
    manager = HookManager()
    manager.register_all([callback, stepping])
    hooks = manager.compile_step()
    assert hooks.before_run == (callback.before_run,)
    assert hooks.after_run == ((callback.after_run, 0),)
    assert hooks.trigger_step[0] == stepping.trigger_step


def test_each_plugin_gets_its_own_results():
    calls = []
    run_step(compiled([Receiving, Asking, Silent, Asking], calls), calls)
    # Silent is first, so its request is the first.
    assert calls == [
        ("Silent", "before_run"),
        ("Asking", "before_run", CONTEXT),
        ("Asking#2", "before_run", CONTEXT),
        ("run", None, "request", "request"),
        ("Receiving", "after_run", CONTEXT, None),
        ("Asking", "after_run", CONTEXT, "result 1 of request"),
        ("Silent", "after_run", CONTEXT, "result 0 of None"),
        ("Asking#2", "after_run", CONTEXT, "result 2 of request"),
    ]


@given(st.lists(st.sampled_from(KINDS), max_size=6))
def test_the_compiled_step_has_the_order_of_pluggy(kinds):
    calls = []
    manager = HookManager()
    manager.register_all([kind(calls) for kind in kinds])
    hooks = manager.compile_step()
    manager.hook.before_run(run_context=CONTEXT)
    manager.hook.after_run(run_context=CONTEXT, run_values=None)
    manager.hook.trigger_step(trainer="trainer")
    expected = [(name, hook) for hook in ("before_run", "after_run", "trigger_step") for name in hooks.names[hook]]
    assert [call[:2] for call in calls] == expected


@given(st.lists(st.sampled_from(KINDS), max_size=6))
def test_traced_and_compiled_steps_make_the_same_calls_in_the_same_order(kinds):
    plain, traced = [], []
    hooks = compiled(kinds, plain)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TPK_TRACE", "1")
        traced_hooks = compiled(kinds, traced)
    assert traced_hooks.names == hooks.names
    for _ in range(2):
        assert run_step(traced_hooks, traced) == run_step(hooks, plain)


def test_a_trace_logs_every_call_with_arguments_and_results(monkeypatch, caplog):
    monkeypatch.setenv("TPK_TRACE", "1")
    calls = []
    manager = HookManager()
    manager.register_all([Asking(calls), Stepping(calls)])
    with caplog.at_level(logging.INFO, logger="tpk.trace"):
        run_step(manager.compile_step(), calls)
        manager.hook.before_epoch(trainer="the trainer")
    text = "\n".join(record.message for record in caplog.records)
    parts = ("before_run of Asking(", "finish before_run of Asking --> 'request'", "before_epoch [hook]")
    for part in parts:
        assert part in text


@pytest.mark.parametrize("off", ["", "0"])
def test_tracing_can_be_off(monkeypatch, off):
    monkeypatch.setenv("TPK_TRACE", off)
    callback = Asking([])
    manager = HookManager()
    manager.register_all([callback])
    assert manager.compile_step().before_run == (callback.before_run,)


# Errors.


class FailingAt(Callback):
    def __init__(self, hook):
        self.hook = hook

    def hook_implementations(self):
        return {self.hook: self.fail}

    def fail(self):
        raise ValueError("boom")


@pytest.mark.parametrize("trace", ["0", "1"])
@pytest.mark.parametrize("hook", ["before_run", "after_run", "trigger_step"])
def test_an_error_in_a_step_hook_gets_one_note(monkeypatch, hook, trace):
    monkeypatch.setenv("TPK_TRACE", trace)
    calls = []
    manager = HookManager()
    manager.register_all([AskingLast(calls), FailingAt(hook), AskingLast(calls)])
    hooks = manager.compile_step()
    methods = [pair[0] for pair in hooks.after_run] if hook == "after_run" else getattr(hooks, hook)
    arguments = (CONTEXT, None) if hook == "after_run" else (CONTEXT,)
    with pytest.raises(ValueError, match="boom") as caught:
        if hook == "trigger_step":
            hooks.trigger("trainer")
        else:
            try:
                for method in methods:
                    method(*arguments)
            except ValueError as error:
                hooks.note_failure(error, hook, method)
                raise
    assert caught.value.__notes__ == [f"in callback 'FailingAt', hook '{hook}'"]


def test_a_method_that_is_not_a_hook_gets_no_note():
    error = ValueError("boom")
    compiled([Asking], []).note_failure(error, "before_run", print)
    assert not hasattr(error, "__notes__")
