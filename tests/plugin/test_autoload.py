from __future__ import annotations

import logging
import sys

import pytest

import tpk.errors
from tpk.plugin import HookManager

GOOD = """
import tpk.plugin

@tpk.plugin.hookimpl
def tpk_default_callbacks(config):
    return []
"""


@pytest.fixture
def catalog(fake_distribution, isolated_catalog):
    """Install three distributions that ask to be loaded: one is good, one is broken, one has no hooks."""
    for name, source in [("good", GOOD), ("broken", "1 / 0"), ("hookless", "x = 1")]:
        fake_distribution(
            f"tpk-{name}",
            "0.3",
            entry_points={"tpk.plugins": {name: f"{name}_plugin"}},
            modules={f"{name}_plugin": source},
        )
    return isolated_catalog


@pytest.fixture
def good_catalog(catalog, monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "broken,hookless")
    return catalog


def autoload():
    hooks = HookManager()
    hooks.autoload()
    return list(hooks.plugins.values())


def names_of(plugins):
    return [plugin.__name__ for plugin in plugins]


def statuses(catalog):
    return {entry.name: entry.status for entry in catalog.entries("plugin")}


def test_installed_plugins_are_loaded(good_catalog):
    assert names_of(autoload()) == ["good_plugin"]
    assert statuses(good_catalog) == {"good": "loaded", "broken": "blocked", "hookless": "blocked"}
    assert "broken_plugin" not in sys.modules


def test_a_broken_plugin_is_skipped_with_a_warning(catalog, caplog):
    assert names_of(autoload()) == ["good_plugin"]
    assert statuses(catalog) == {"good": "loaded", "broken": "failed", "hookless": "failed"}
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    for part in ("plugin 'broken'", "tpk-broken 0.3", "TPK_BLOCK=plugin:broken"):
        assert part in warnings[0].getMessage()
    assert "ZeroDivisionError" in caplog.text and "implements no hook" in caplog.text


def test_strict_makes_a_broken_plugin_an_error(catalog, monkeypatch):
    monkeypatch.setenv("TPK_STRICT", "1")
    with pytest.raises(tpk.errors.PluginImportError, match=r"'broken' .*tpk-broken 0.3.*ZeroDivisionError"):
        autoload()


def test_autoload_can_be_disabled(catalog, monkeypatch):
    monkeypatch.setenv("TPK_DISABLE_AUTOLOAD", "1")
    assert autoload() == []
    assert statuses(catalog) == dict.fromkeys(("good", "broken", "hookless"), "available")


def test_a_named_plugin_is_loaded_even_if_autoload_is_disabled(catalog, monkeypatch):
    monkeypatch.setenv("TPK_DISABLE_AUTOLOAD", "1")
    monkeypatch.setenv("TPK_PLUGINS", "good")
    assert names_of(autoload()) == ["good_plugin"]


def test_a_named_plugin_is_loaded_first_and_once(good_catalog, fake_distribution, monkeypatch):
    fake_distribution("tpk-more", modules={"another": GOOD})
    monkeypatch.setenv("TPK_PLUGINS", "another,good")
    assert names_of(autoload()) == ["another", "good_plugin"]
    monkeypatch.setenv("TPK_PLUGINS", "good_plugin")
    assert names_of(autoload()) == ["good_plugin"]


def test_a_named_plugin_may_be_an_attribute_of_a_module(good_catalog, fake_distribution, monkeypatch):
    source = "class Plugin:\n    def before_train(self, trainer): ...\nplugin = Plugin()\n"
    fake_distribution("tpk-more", modules={"another": source})
    monkeypatch.setenv("TPK_PLUGINS", "another:plugin,another:Plugin")
    first, second, _ = autoload()
    assert type(first).__name__ == type(second).__name__ == "Plugin"


def test_a_missing_named_plugin_is_an_error(good_catalog, monkeypatch):
    monkeypatch.setenv("TPK_PLUGINS", "god")
    with pytest.raises(tpk.errors.PluginImportError, match="No module named 'god'") as caught:
        autoload()
    assert caught.value.__notes__ == ["TPK_PLUGINS asks for plugin 'god' (god)"]


def test_a_misspelled_name_that_cannot_be_a_module_lists_the_known(good_catalog, fake_distribution, monkeypatch):
    fake_distribution("tpk-tools", entry_points={"tpk.plugins": {"my-tools-hooks": "hooks_of_tools"}})
    good_catalog.refresh()
    monkeypatch.setenv("TPK_PLUGINS", "my-tools-hoks")
    with pytest.raises(tpk.errors.UnknownPluginError, match=r"no plugin 'my-tools-hoks'.*Nearest: 'my-tools-hooks'"):
        autoload()


@pytest.mark.parametrize("name", ["broken", "hookless"])
def test_a_broken_named_plugin_is_an_error(catalog, monkeypatch, name):
    monkeypatch.setenv("TPK_PLUGINS", name)
    with pytest.raises(tpk.errors.PluginError, match=name):
        autoload()


def test_a_blocked_named_plugin_is_an_error(good_catalog, monkeypatch):
    monkeypatch.setenv("TPK_PLUGINS", "broken")
    with pytest.raises(tpk.errors.PluginError, match="is blocked by TPK_BLOCK"):
        autoload()


def test_two_plugins_with_one_name_are_both_skipped_with_a_warning(good_catalog, fake_distribution, caplog):
    fake_distribution("tpk-better", entry_points={"tpk.plugins": {"good": "better_plugin"}})
    assert autoload() == []
    assert "more than one distribution offers the plugin 'good'" in caplog.text


SPECS = """
import tpk.plugin

class EpisodeSpecs:
    @tpk.plugin.hookspec
    def after_episode(self, reward):
        "Called at the end of each episode."

@tpk.plugin.hookimpl
def tpk_add_hookspecs(hooks):
    hooks.add_hookspecs(EpisodeSpecs)
"""
FIRST_OF_ALL = """
import tpk.plugin

rewards = []

@tpk.plugin.hookimpl
def after_episode(reward):
    rewards.append(reward)

def recover(error):
    1 / 0
"""


def test_a_plugin_may_implement_hooks_that_a_later_plugin_adds(fake_distribution, isolated_catalog):
    for name, source in [("a-listener", FIRST_OF_ALL), ("b-episodes", SPECS)]:
        module = name.replace("-", "_")
        fake_distribution(f"tpk-{name}", entry_points={"tpk.plugins": {name: module}}, modules={module: source})
    hooks = HookManager()
    hooks.autoload()
    hooks.hook.after_episode(reward=3)
    assert sys.modules["a_listener"].rewards == [3]
    assert hooks.hook.recover(error=ValueError()) is None  # A function that is not marked is not called.
