from __future__ import annotations

from functools import partial

import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.factory import CallbackFactory
from tpk.callbacks.triggers import EnableCallbackIf, Every, PeriodicCallback, PeriodicTrigger
from tpk.errors import ConfigError, HookError, PluginError, UnknownPluginError


class Recorder(tpk.Callback):
    """Records when each of its hooks was called, as (epoch, step of the epoch)."""

    def __init__(self):
        self.calls = []

    def record(self, hook):
        self.calls.append((hook, self.epoch_num, self.local_step))

    def setup_graph(self, trainer):
        self.one = tf.constant(1.0)
        self.calls.append("setup_graph")

    def before_train(self):
        self.calls.append("before_train")

    def before_epoch(self):
        self.record("before_epoch")

    def before_run(self, run_context):
        self.record("before_run")
        return self.one

    def after_run(self, run_values):
        assert run_values.results == 1.0
        self.record("after_run")

    def trigger_step(self):
        self.record("trigger_step")

    def after_epoch(self):
        self.record("after_epoch")

    def trigger(self):
        self.record("trigger")

    def after_train(self, trainer):
        self.calls.append("after_train")

    def of(self, hook):
        return [call[1:] for call in self.calls if call[0] == hook]


class DoNothing(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.train_op = tf.no_op()


def train(*callbacks, steps_per_epoch=3, max_epoch=4, starting_epoch=1, session_init=None):
    DoNothing().train(
        callbacks=list(callbacks),
        monitors=[],
        steps_per_epoch=steps_per_epoch,
        max_epoch=max_epoch,
        starting_epoch=starting_epoch,
        session_init=session_init,
    )


@pytest.mark.parametrize(
    ("options", "triggered"),
    [
        ({"every_k_epochs": 1}, [(1, 2), (2, 2), (3, 2), (4, 2)]),
        ({"every_k_epochs": 3}, [(3, 2)]),
        ({"every_k_steps": 4}, [(2, 0), (3, 1), (4, 2)]),
        ({"every_k_steps": 6, "every_k_epochs": 3}, [(2, 2), (3, 2), (4, 2)]),
        ({"before_train": True}, [(0, -1)]),
        ({"every_k_steps": 12, "before_train": True}, [(0, -1), (4, 2)]),
        ({"every_k_epochs": 5}, []),
    ],
)
def test_periodic_trigger_triggers_at_the_chosen_times_and_no_others(options, triggered):
    recorder = Recorder()
    train(PeriodicTrigger(recorder, **options))
    assert recorder.of("trigger") == triggered


def test_periodic_trigger_hands_on_the_other_hooks():
    plain, wrapped = Recorder(), Recorder()
    train(plain)
    train(PeriodicTrigger(wrapped, every_k_steps=5, every_k_epochs=2, before_train=True))

    def others(recorder):
        return [call for call in recorder.calls if call[0] != "trigger"]

    assert others(wrapped) == others(plain)


def test_periodic_trigger_triggers_after_the_callback_has_counted_the_step():
    recorder = Recorder()
    train(PeriodicTrigger(recorder, every_k_steps=1), max_epoch=1, steps_per_epoch=1)
    assert recorder.calls.index(("trigger_step", 1, 0)) + 1 == recorder.calls.index(("trigger", 1, 0))


def test_periodic_trigger_goes_on_with_its_steps_where_the_training_goes_on():
    whole, rest = Recorder(), Recorder()
    train(PeriodicTrigger(whole, every_k_steps=4))
    train(PeriodicTrigger(rest, every_k_steps=4), starting_epoch=3, session_init={"global_step": 6})
    assert rest.of("trigger") == [(epoch, step) for epoch, step in whole.of("trigger") if epoch >= 3]


def test_periodic_triggers_nest():
    recorder = Recorder()
    train(PeriodicTrigger(PeriodicTrigger(recorder, every_k_epochs=2), every_k_steps=6))
    assert recorder.of("trigger") == [(2, 2), (4, 2)]


class Without(tpk.Callback):
    def __init__(self, given):
        self.given = given

    def trigger(self):
        self.given.append(self.trainer)


class With(Without):
    def trigger(self, trainer):
        super().trigger()
        self.given.append(trainer)


class AtEpoch(Without):
    def trigger_epoch(self, trainer):
        super().trigger_epoch(trainer)


@pytest.mark.parametrize(
    "proxy",
    [
        lambda callback: callback,
        lambda callback: PeriodicTrigger(callback, every_k_steps=3),
        lambda callback: PeriodicTrigger(EnableCallbackIf(callback, lambda self: True), every_k_epochs=1),
    ],
)
def test_a_trigger_takes_the_trainer_or_leaves_it_out(proxy):
    given = []
    made = [Without(given), With(given), AtEpoch(given)]
    made.append(CallbackFactory(trigger=lambda self, trainer: given.append(trainer)))
    made.append(CallbackFactory(trigger=lambda self: given.append(self.trainer)))
    train(*map(proxy, made), max_epoch=1)
    assert given == [made[0].trainer] * 6


def test_a_trigger_that_takes_something_else_is_an_error():
    class Wrong(tpk.Callback):
        def trigger(self, epoch):
            raise AssertionError

    with pytest.raises(HookError, match=r"Wrong\.trigger takes 'epoch', which this hook does not pass; it may take tr"):
        PeriodicTrigger(Wrong(), every_k_steps=2)


def test_a_callback_that_comes_last_does_so_at_every_time_of_its_trigger():
    order = []

    class Reader(tpk.Callback):
        @tpk.hookimpl(trylast=True)
        def trigger(self):
            order.append("reader")

    writer = CallbackFactory(trigger=lambda self: order.append("writer"))
    times = {"every_k_steps": 2, "every_k_epochs": 1, "before_train": True}
    train(
        PeriodicTrigger(Reader(), **times),
        PeriodicTrigger(writer, **times),
        steps_per_epoch=2,
        max_epoch=1,
    )
    assert order == ["writer", "reader"] * 3


@pytest.mark.parametrize("options", [{}, {"before_train": False}])
def test_no_time_is_an_error(options):
    for make in (partial(PeriodicTrigger, Recorder()), Every):
        with pytest.raises(ConfigError, match=r"never be triggered"):
            make(**options)


@pytest.mark.parametrize("period", [0, -1, 2.0, True, "3"])
@pytest.mark.parametrize("kind", [PeriodicTrigger, PeriodicCallback])
@pytest.mark.parametrize("name", ["every_k_steps", "every_k_epochs"])
def test_a_period_is_a_positive_int(kind, name, period):
    with pytest.raises(
        ConfigError, match=f"{name.removeprefix('every_k_')} must be an integer, 1 or more, not {period!r}"
    ):
        kind(Recorder(), **{name: period})


@pytest.mark.parametrize("minutes", [0, -1, float("nan")])
def test_minutes_are_positive(minutes):
    with pytest.raises(ConfigError, match=f"Every: minutes must be positive, not {minutes!r}"):
        Every(minutes=minutes)


def test_times_are_values():
    assert tpk.Every(steps=5) == tpk.Every(steps=5) != tpk.Every(epochs=5)
    assert repr(tpk.Every(minutes=2.5)) == "Every(steps=None, epochs=None, minutes=2.5, before_train=False)"


def test_periodic_trigger_of_a_callback_without_trigger_is_an_error_that_says_what_to_do():
    callback = CallbackFactory(trigger_epoch=lambda self: None)
    with pytest.raises(HookError, match=r"implements trigger_epoch.*use PeriodicCallback"):
        PeriodicTrigger(callback, every_k_steps=1)
    with pytest.raises(HookError, match=r"does not implement"):
        PeriodicTrigger(EnableCallbackIf(callback, lambda self: True), every_k_steps=1)


@pytest.mark.parametrize("offered", [3, None, object()])
def test_only_a_callback_can_be_wrapped(offered):
    with pytest.raises(PluginError, match=r"PeriodicTrigger takes a tpk\.Callback"):
        PeriodicTrigger(offered, every_k_epochs=1)


@pytest.mark.parametrize(
    "named", [Recorder, tpk.use("RunOp", op=None), "EstimatedTimeLeft", "tpk.callbacks:ModelSaver"]
)
def test_a_wrapped_callback_may_be_named_in_any_way(named):
    wrapper = EnableCallbackIf(named, lambda self: True)
    wrapper.resolve_plugins()
    assert isinstance(wrapper.cb, tpk.Callback)
    wrapped = wrapper.cb
    wrapper.resolve_plugins()
    assert wrapper.cb is wrapped


def test_a_wrapped_name_that_leads_nowhere_is_an_error():
    trigger = PeriodicTrigger(EnableCallbackIf("ModelSavr", lambda self: True), every_k_epochs=1)
    assert repr(trigger) == "PeriodicTrigger(EnableCallbackIf('ModelSavr'))"
    with pytest.raises(UnknownPluginError, match="Nearest: 'ModelSaver'"):
        train(trigger)


@pytest.mark.parametrize(
    ("predicate", "epochs"),
    [(lambda self: True, {1, 2, 3, 4}), (lambda self: False, set()), (lambda self: self.epoch_num > 2, {3, 4})],
)
def test_enable_callback_if_runs_the_hooks_of_epochs_and_steps_while_the_predicate_holds(predicate, epochs):
    plain, gated = Recorder(), Recorder()
    train(plain)
    train(EnableCallbackIf(gated, predicate))
    assert gated.calls == [call for call in plain.calls if isinstance(call, str) or call[1] in epochs]


def test_the_predicate_gets_the_wrapper_with_trainer_and_counters():
    seen = []
    wrapper = EnableCallbackIf(
        CallbackFactory(trigger_epoch=lambda self: None),
        lambda self: seen.append((self, self.trainer.loop.max_epoch, self.global_step)),
    )
    train(wrapper, max_epoch=1)
    assert seen == [(wrapper, 1, 3)]


def test_after_run_runs_exactly_when_before_run_did():
    calls = []
    toggle = iter([True, False] * 100)
    callback = CallbackFactory(
        before_run=lambda self: calls.append("before"), after_run=lambda self: calls.append("after")
    )
    train(EnableCallbackIf(callback, lambda self: next(toggle)), max_epoch=1, steps_per_epoch=4)
    assert calls == ["before", "after"] * 2


def test_enable_callback_if_gates_an_after_run_without_before_run():
    calls = []
    callback = CallbackFactory(after_run=lambda self, run_values: calls.append(run_values.results))
    train(EnableCallbackIf(callback, lambda self: self.global_step % 2 == 0), max_epoch=1, steps_per_epoch=4)
    assert calls == [None, None]


def test_enable_callback_if_gates_trigger_at_the_times_of_a_periodic_trigger():
    recorder = Recorder()
    train(PeriodicTrigger(EnableCallbackIf(recorder, lambda self: self.epoch_num != 2), every_k_steps=2))
    assert recorder.of("trigger") == [(1, 1), (3, 1), (4, 0), (4, 2)]


def test_enable_callback_if_refuses_hook_wrappers():
    class Wrapper(tpk.Callback):
        @tpk.hookimpl(wrapper=True)
        def trigger_epoch(self, trainer):
            return (yield)

    with pytest.raises(HookError, match=r"trigger_epoch of .* is a hook wrapper"):
        train(EnableCallbackIf(Wrapper(), lambda self: True))


def test_periodic_callback_is_enabled_in_every_kth_epoch():
    plain, periodic = Recorder(), Recorder()
    train(plain)
    train(PeriodicCallback(periodic, every_k_epochs=2))
    assert periodic.calls == [call for call in plain.calls if isinstance(call, str) or call[1] in {2, 4}]


def test_periodic_callback_is_enabled_at_every_kth_step():
    recorder = Recorder()
    train(PeriodicCallback(recorder, every_k_steps=4))
    assert recorder.of("trigger_step") == [(2, 0), (3, 1), (4, 2)]
    # Before a run, global_step counts the runs that are over.
    assert recorder.of("before_run") == recorder.of("after_run") == [(1, 0), (2, 1), (3, 2)]


def test_periodic_callback_without_a_period_is_an_error():
    with pytest.raises(ConfigError, match=r"never run"):
        PeriodicCallback(Recorder())


def test_a_bad_signature_in_a_wrapped_callback_is_found_before_the_training():
    callback = CallbackFactory(trigger_step=lambda self, step: None)
    with pytest.raises(HookError, match=r"takes 'step'"):
        train(EnableCallbackIf(callback, lambda self: True))


def test_a_wrapper_shares_trainer_name_state_and_chief_only():
    class Stateful(Recorder):
        chief_only = False

        def state_dict(self):
            return {"calls": 3}

        def load_state_dict(self, state):
            self.loaded = state

    callback = Stateful()
    wrapper = PeriodicTrigger(callback, every_k_epochs=1)
    train(wrapper)
    assert callback.trainer is wrapper.trainer
    assert callback.plugin_name == wrapper.plugin_name != ""
    assert wrapper.chief_only is False
    wrapper.chief_only = True
    assert callback.chief_only is True
    assert wrapper.state_dict() == {"calls": 3}
    wrapper.load_state_dict({"calls": 4})
    assert callback.loaded == {"calls": 4}
    assert "Stateful" in repr(wrapper)
