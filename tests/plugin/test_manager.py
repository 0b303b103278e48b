from __future__ import annotations

import logging
import types

import attrs
import pluggy
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st

import tpk.errors
from tpk.plugin import Callback, HookManager, hookimpl, hookspec


@attrs.define(eq=False, slots=False)
class Recorder(Callback):
    calls: list = attrs.field(factory=list)

    def before_epoch(self, trainer):
        self.calls.append((self.plugin_name, "before_epoch", trainer))


class RecorderFirst(Recorder):
    @hookimpl(tryfirst=True)
    def before_epoch(self, trainer):
        super().before_epoch(trainer)


class RecorderLast(Recorder):
    @hookimpl(trylast=True)
    def before_epoch(self, trainer):
        super().before_epoch(trainer)


class Failing(Callback):
    def __init__(self, error=None):
        self.error = error or ValueError("boom")

    def before_epoch(self):
        raise self.error

    def after_train(self):
        raise self.error


def notes_of(error):
    return getattr(error, "__notes__", [])


# Names.


def test_names_are_class_names_and_unique():
    first, second, other = Recorder(), Recorder(), Failing()
    manager = HookManager()
    assert manager.register_all([first, other, second]) == ["Recorder", "Failing", "Recorder#2"]
    assert (first.plugin_name, other.plugin_name, second.plugin_name) == ("Recorder", "Failing", "Recorder#2")
    assert manager.plugins == {"Recorder": first, "Failing": other, "Recorder#2": second}
    assert manager.register(type("_Own", (Recorder,), {})()) == "Own"


def test_names_do_not_depend_on_an_earlier_registration():
    callback = Recorder()
    HookManager().register_all([Recorder(), callback])
    HookManager().register_all([callback])
    assert callback.plugin_name == "Recorder"


def test_the_name_attribute_of_a_plugin_is_not_changed():
    class Named(Recorder):
        name = "of the class"

    class Computed(Recorder):
        @property
        def name(self):
            return 5

    class Assigned(Recorder):
        def __init__(self, name):
            super().__init__()
            self.name = name

    callbacks = [Named(), Computed(), Assigned("of the instance")]
    assert HookManager().register_all(callbacks) == ["Named", "Computed", "Assigned"]
    assert [callback.name for callback in callbacks] == ["of the class", 5, "of the instance"]
    assert [callback.plugin_name for callback in callbacks] == ["Named", "Computed", "Assigned"]


def test_a_module_is_named_after_itself():
    module = types.ModuleType("some.plugin")
    module.before_epoch = hookimpl(lambda trainer: None)
    assert HookManager().register_all([module]) == ["some.plugin"]


def test_an_object_cannot_be_registered_twice():
    manager, callback = HookManager(), Recorder()
    with pytest.raises(tpk.errors.HookError, match="Recorder is listed twice"):
        manager.register_all([callback, callback])
    manager.register_all([callback])
    with pytest.raises(tpk.errors.HookError, match="Recorder is listed twice"):
        manager.register_all([callback])


def test_if_one_plugin_is_invalid_none_is_registered():
    manager, callback = HookManager(), Recorder()
    with pytest.raises(tpk.errors.HookError):
        manager.register_all([callback, object()])
    assert manager.plugins == {} and callback.plugin_name == ""
    manager.hook.before_epoch(trainer=None)
    assert callback.calls == []


def test_plugins_are_identified_by_the_users_object():
    manager, callback = HookManager(), Recorder()
    assert manager.register(callback) == "Recorder"
    assert manager.plugins["Recorder"] is callback
    manager.hook.before_epoch(trainer=1)
    assert callback.calls == [("Recorder", "before_epoch", 1)]


class EpisodeSpecs:
    @hookspec
    def after_episode(self, reward, length):
        """Called at the end of each episode."""

    @hookspec(firstresult=True)
    def choose_level(self, reward):
        """Say which level comes next."""


def test_callbacks_implement_the_hooks_of_third_parties():
    class Listening(Callback):
        def __init__(self):
            self.rewards = []

        def after_episode(self, reward):
            self.rewards.append(reward)

        def choose_level(self, reward):
            return reward + 1

    manager, first, second = HookManager(), Listening(), Listening()
    manager.add_hookspecs(EpisodeSpecs)
    manager.register_all([first, second])
    manager.hook.after_episode(reward=2, length=5)
    assert first.rewards == second.rewards == [2]
    assert manager.hook.choose_level(reward=2) == 3


def test_the_hooks_of_third_parties_are_checked():
    class Misspelled(Callback):
        def after_episod(self):
            pass

    class Wrong(Callback):
        def after_episode(self, rewards):
            pass

    manager = HookManager()
    manager.add_hookspecs(EpisodeSpecs)
    with pytest.raises(tpk.errors.HookError, match="did you mean 'after_episode'"):
        manager.register(Misspelled())
    with pytest.raises(tpk.errors.HookError, match=r"takes 'rewards'.* it may take reward, length, or fewer"):
        manager.register(Wrong())
    with pytest.raises(tpk.errors.HookError, match="adds after_episode, choose_level again"):
        manager.add_hookspecs(EpisodeSpecs)
    with pytest.raises(tpk.errors.HookError, match="has no function that is marked with"):
        manager.add_hookspecs(Recorder)


def test_failures_are_translated_by_the_first_answer():
    class Translator(Callback):
        def __init__(self, answer):
            self.answer, self.asked = answer, 0

        def translate_error(self, error):
            self.asked += 1
            return self.answer

    silent, first, second = Translator(None), Translator(KeyError("a")), Translator(KeyError("b"))
    manager = HookManager()
    manager.register_all([silent, first, second])
    assert manager.hook.translate_error(error=ValueError()) is first.answer
    assert (silent.asked, first.asked, second.asked) == (1, 1, 0)


# Order.


def order_of_calls(manager, shared):
    shared.clear()
    manager.hook.before_epoch(trainer=None)
    return [name for name, _, _ in shared]


@given(
    st.lists(st.lists(st.sampled_from([Recorder, RecorderFirst, RecorderLast]), max_size=5), max_size=3),
)
def test_list_order_is_call_order_within_first_and_last_too(batches):
    calls = []
    manager = HookManager()
    names = [name for batch in batches for name in manager.register_all([kind(calls) for kind in batch])]
    tier = {"RecorderFirst": 0, "Recorder": 1, "RecorderLast": 2}
    expected = sorted(names, key=lambda name: tier[name.partition("#")[0]])  # sorted() is stable
    assert order_of_calls(manager, calls) == expected


def test_one_plugin_may_be_first_last_and_neither():
    calls = []

    class Everywhere(Callback):
        @hookimpl(tryfirst=True)
        def before_epoch(self):
            calls.append(f"{self.plugin_name}.before_epoch")

        @hookimpl(trylast=True)
        def after_epoch(self):
            calls.append(f"{self.plugin_name}.after_epoch")

        def trigger(self):
            calls.append(f"{self.plugin_name}.trigger")

    manager = HookManager()
    manager.register_all([Everywhere(), Everywhere()])
    for hook in ("before_epoch", "after_epoch", "trigger_epoch"):
        getattr(manager.hook, hook)(trainer=None)
    assert calls == [
        f"{name}.{hook}"
        for hook in ("before_epoch", "after_epoch", "trigger")
        for name in ("Everywhere", "Everywhere#2")
    ]


def test_wrappers_nest_in_list_order():
    calls = []

    class Around(Callback):
        @hookimpl(wrapper=True)
        def before_epoch(self, trainer):
            calls.append(f"enter {self.plugin_name}")
            result = yield
            calls.append(f"leave {self.plugin_name}")
            return result

    class Inner(Callback):
        def before_epoch(self):
            calls.append("inner")

    manager = HookManager()
    manager.register_all([Inner(), Around(), Around()])
    manager.hook.before_epoch(trainer=None)
    assert calls == ["enter Around", "enter Around#2", "inner", "leave Around#2", "leave Around"]


def test_results_come_in_list_order():
    @hookimpl
    def tpk_default_callbacks(config):
        return [config]

    modules = [types.ModuleType(name) for name in ("first", "second")]
    for module in modules:
        module.tpk_default_callbacks = tpk_default_callbacks
    manager = HookManager()
    assert manager.register_all(modules) == ["first", "second"]
    assert manager.hook.tpk_default_callbacks(config="config") == [["config"], ["config"]]


# Errors.


def test_an_error_gets_one_note_that_names_callback_and_hook():
    manager = HookManager()
    manager.register_all([Recorder(), Failing(), Failing()])
    with pytest.raises(ValueError, match="boom") as caught:
        manager.hook.before_epoch(trainer=None)
    assert notes_of(caught.value) == ["in callback 'Failing', hook 'before_epoch'"]


def test_an_op_created_too_late_gets_a_note_that_says_where_it_belongs():
    class Late(Callback):
        def before_train(self):
            graph = tf.Graph()
            graph.finalize()
            with graph.as_default():
                tf.constant(0)

    manager = HookManager()
    manager.register_all([Late()])
    with pytest.raises(RuntimeError, match="finalized") as caught:
        manager.hook.before_train(trainer=None)
    where, remedy = notes_of(caught.value)
    assert where == "in callback 'Late', hook 'before_train'" and "create ops in setup_graph" in remedy


def test_a_wrapper_that_lets_an_error_pass_is_not_blamed():
    class Around(Callback):
        @hookimpl(wrapper=True)
        def before_epoch(self):
            return (yield)

    manager = HookManager()
    manager.register_all([Around(), Failing()])
    with pytest.raises(ValueError, match="boom") as caught:
        manager.hook.before_epoch(trainer=None)
    assert notes_of(caught.value) == ["in callback 'Failing', hook 'before_epoch'"]


def test_a_wrapper_that_fails_itself_is_blamed():
    class Around(Callback):
        @hookimpl(wrapper=True)
        def before_epoch(self):
            yield
            raise ValueError("after")

    manager = HookManager()
    manager.register_all([Around()])
    with pytest.raises(ValueError, match="after") as caught:
        manager.hook.before_epoch(trainer=None)
    assert notes_of(caught.value) == ["in callback 'Around', hook 'before_epoch'"]


def test_after_train_runs_every_implementation_and_returns_the_failures(caplog):
    ended = []

    class Ending(Callback):
        def after_train(self, trainer):
            ended.append((self.plugin_name, trainer))

    first, second = ValueError("one"), KeyboardInterrupt("two")
    manager = HookManager()
    manager.register_all([Ending(), Failing(first), Ending(), Failing(second), Ending()])
    with caplog.at_level(logging.ERROR):
        assert manager.after_train("trainer") == [first, second]
    assert ended == [(name, "trainer") for name in ("Ending", "Ending#2", "Ending#3")]
    assert [record.message for record in caplog.records] == [
        "after_train of Failing failed",
        "after_train of Failing#2 failed",
    ]
    assert [record.exc_info[1] for record in caplog.records] == [first, second]
    assert notes_of(first) == ["in callback 'Failing', hook 'after_train'"]


def test_managers_share_nothing():
    one, other = HookManager(), HookManager()
    one.register_all([Recorder()])
    assert other.plugins == {}
    assert other.hook.before_epoch.get_hookimpls() == []


# As pluggy.


@attrs.define(slots=False)
class Equal(Callback):
    """Equal to each other one."""

    def before_epoch(self):
        pass


def test_plugins_are_found_by_name_and_by_identity():
    manager, ours = HookManager(), pluggy.PluginManager("tpk")
    first, second, stranger = Recorder(), Failing(), Recorder()
    for plugin in (first, second):
        plugin.trainer = types.SimpleNamespace(
            epoch_num=0, local_step=-1, global_step=0
        )  # pluggy 1.6 reads properties.
        ours.register(plugin, manager.register(plugin))
    assert manager.list_name_plugin() == ours.list_name_plugin() == [("Recorder", first), ("Failing", second)]
    for name in ("Recorder", "Failing", "Recorder#2"):
        assert manager.get_plugin(name) is ours.get_plugin(name)
    for plugin in (first, second, stranger):
        assert manager.is_registered(plugin) == ours.is_registered(plugin) == (plugin is not stranger)


def test_an_equal_object_is_another_plugin():
    manager, first, second = HookManager(), Equal(), Equal()
    manager.register(first)
    assert first == second and not manager.is_registered(second)
    assert manager.register(second) == "Equal#2"
    assert manager.get_plugin("Equal") is first and manager.get_plugin("Equal#2") is second


class HistoricSpecs:
    @hookspec(historic=True)
    def on_level(self, level):
        """Called for each level, and for the earlier ones when a plugin is registered."""


class Player(Callback):
    def __init__(self):
        self.levels = []

    @hookimpl
    def on_level(self, level):
        self.levels.append(level)
        return level


class PlayerFirst(Player):
    @hookimpl(tryfirst=True)
    def on_level(self, level):
        return super().on_level(level)


class PlayerLast(Player):
    @hookimpl(trylast=True)
    def on_level(self, level):
        return super().on_level(level)


PLAYERS = [Player, PlayerFirst, PlayerLast]


@given(st.lists(st.one_of(st.just("call"), st.lists(st.sampled_from(PLAYERS), min_size=1, max_size=3)), max_size=6))
def test_a_historic_hook_is_called_as_often_as_by_pluggy(moments):
    manager, theirs = HookManager(), pluggy.PluginManager("tpk")
    results, their_results = [], []
    for each in (manager, theirs):
        each.add_hookspecs(HistoricSpecs)
    players, their_players = [], []
    for level, moment in enumerate(moments):
        if moment == "call":
            manager.hook.on_level.call_historic(results.append, {"level": level})
            theirs.hook.on_level.call_historic(their_results.append, {"level": level})
        else:
            players += (new := [kind() for kind in moment])
            their_players += (their_new := [kind() for kind in moment])
            manager.register_all(new)
            for player in their_new:
                player.trainer = types.SimpleNamespace(epoch_num=0, local_step=-1, global_step=0)  # as above
                theirs.register(player)
    assert [player.levels for player in players] == [player.levels for player in their_players]
    assert sorted(results) == sorted(their_results)
