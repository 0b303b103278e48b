from __future__ import annotations

import logging

import pytest

from tpk.errors import ConfigError, HookError, StopTraining
from tpk.monitors.base import MAX_CONSECUTIVE_FAILURES, Monitor
from tpk.plugin import HookManager, hookimpl


class Scripted(Monitor):
    """Raises what the script says next, once for each call."""

    def __init__(self, *script):
        self.script = list(script)
        self.calls = 0

    def process_scalar(self, name, value):
        self.calls += 1
        error = self.script.pop(0) if self.script else None
        if error is not None:
            raise error

    def after_train(self):
        self.closed = True


def isolate(*script):
    return Scripted(*script).isolation


def report(isolated, times=1):
    for _ in range(times):
        isolated.call("process_scalar", "cost", 1.0)


def end(isolated):
    isolated.monitor.hook_implementations()["after_train"]()


def records(caplog):
    return [record for record in caplog.records if record.name == "tpk.monitors.base"]


def test_a_failure_is_logged_once_with_its_traceback(caplog):
    isolated = isolate(OSError("disk full"), OSError("disk full"))
    report(isolated, 2)
    (record,) = records(caplog)
    assert record.levelno == logging.ERROR
    assert "monitor Scripted failed in process_scalar" in record.getMessage()
    assert record.exc_info[1].args == ("disk full",)


def test_a_different_failure_is_logged(caplog):
    report(isolate(OSError("disk full"), None, OSError("disk full"), ValueError("x")), 4)
    assert [repr(record.exc_info[1]) for record in records(caplog)] == [
        "OSError('disk full')",
        "ValueError('x')",
    ]


def test_failing_repeatedly_disables_a_monitor(caplog):
    isolated = isolate(*[OSError("gone")] * 100)
    report(isolated, MAX_CONSECUTIVE_FAILURES + 3)
    assert isolated.disabled
    assert isolated.monitor.calls == MAX_CONSECUTIVE_FAILURES
    last = records(caplog)[-1].getMessage()
    assert "Scripted is disabled: process_scalar failed 5 times in a row, last with OSError('gone')" in last


def test_a_success_in_between_keeps_a_monitor_enabled():
    isolated = isolate(*[OSError("gone")] * 4, None, *[OSError("gone")] * 4)
    report(isolated, 9)
    assert not isolated.disabled


def test_successes_of_other_methods_do_not_reset_the_count():
    class CannotFlush(Monitor):
        def process_scalar(self, name, value):
            pass

        def flush(self):
            raise ConnectionError("no route")

    isolated = CannotFlush().isolation
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        report(isolated)
        isolated.call("flush")
    assert isolated.disabled


def test_a_disabled_monitor_may_still_close_its_files():
    isolated = isolate(*[OSError("gone")] * 5)
    report(isolated, 5)
    end(isolated)
    assert isolated.monitor.closed


def test_a_stop_in_the_last_flush_does_not_prevent_closing():
    class StopsInFlush(Scripted):
        def flush(self):
            raise StopTraining("enough")

    isolated = StopsInFlush().isolation
    end(isolated)
    assert isolated.monitor.closed


def test_the_number_of_failed_calls_is_logged_at_the_end(caplog):
    isolated = isolate(OSError("gone"), None, OSError("gone"))
    report(isolated, 3)
    caplog.clear()
    end(isolated)
    (record,) = records(caplog)
    assert record.getMessage() == (
        "monitor Scripted failed in 2 of 5 calls, so its records are incomplete; last in process_scalar with "
        "OSError('gone')"
    )


def test_without_failures_nothing_is_logged_at_the_end(caplog):
    isolated = isolate()
    report(isolated)
    end(isolated)
    assert records(caplog) == []


@pytest.mark.parametrize("request_", [StopTraining("enough"), KeyboardInterrupt(), SystemExit()])
def test_stop_requests_are_not_swallowed(request_):
    with pytest.raises(type(request_)):
        report(isolate(request_))


@pytest.mark.parametrize("hook", ["setup_graph", "before_train"])
def test_a_wrong_option_is_an_error_before_training(hook):
    def fail(self, trainer):
        raise ConfigError("no place to write to")

    writer = type("Writer", (Monitor,), {hook: fail})()
    with pytest.raises(ConfigError, match="no place"):
        writer.hook_implementations()[hook](object())


def test_any_other_error_before_training_is_isolated(caplog):
    class NoNetwork(Monitor):
        def before_train(self):
            raise ConnectionError("no route")

    NoNetwork().hook_implementations()["before_train"]()
    assert "NoNetwork failed in before_train" in records(caplog)[0].getMessage()


def test_hooks_may_take_fewer_arguments():
    class Fewer(Monitor):
        def after_run(self, run_values):
            self.got = run_values

    fewer = Fewer()
    hooks = HookManager()
    hooks.register(fewer)
    hooks.hook.after_run(run_context="context", run_values="values")
    assert fewer.got == "values"


def test_a_misspelled_hook_is_an_error():
    class Misspelled(Monitor):
        def befor_train(self, trainer):
            pass

    with pytest.raises(HookError, match="before_train"):
        HookManager().register(Misspelled())


def test_a_misspelled_report_method_is_an_error():
    class Misspelled(Monitor):
        def proces_scalar(self, name, value):
            pass

    with pytest.raises(HookError, match="did you mean 'process_scalar'"):
        HookManager().register(Misspelled())


def test_a_monitor_cannot_have_hook_wrappers():
    class Around(Monitor):
        @hookimpl(wrapper=True)
        def before_epoch(self):
            yield

    with pytest.raises(HookError, match=r"Around\.before_epoch is a hook wrapper"):
        HookManager().register(Around())
