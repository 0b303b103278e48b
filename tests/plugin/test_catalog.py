from __future__ import annotations

import importlib
import inspect
import pathlib
import subprocess
import sys

import pytest

import tpk
import tpk.errors
from tpk.plugin import Callback, Catalog, get_catalog, use, use_catalog
from tpk.plugin.builtins import BUILTINS
from tpk.plugin.catalog import GROUPS

HELLO = """
import tpk.plugin

class Hello(tpk.plugin.Callback):
    def __init__(self, greeting="hello", *, times=1):
        if times < 0:
            raise ValueError("times must not be negative")
        self.greeting, self.times = greeting, times

    def before_train(self):
        pass

class Demanding(Hello):
    def __init__(self, greeting):
        super().__init__(greeting)

def loud(greeting):
    return Hello(greeting.upper())

ready = Hello("ready")
"""


@pytest.fixture
def hello(fake_distribution, isolated_catalog):
    """Install a distribution with a callback; return the catalog."""
    names = {
        "hello": "hello_module:Hello",
        "demanding": "hello_module:Demanding",
        "loud": "hello_module:loud",
        "ready": "hello_module:ready",
    }
    fake_distribution("tpk-hello", "1.2", entry_points={"tpk.callbacks": names}, modules={"hello_module": HELLO})
    return isolated_catalog


@pytest.fixture
def broken(fake_distribution, isolated_catalog):
    """Install a distribution whose module cannot be imported; return the catalog."""
    fake_distribution(
        "tpk-broken",
        "0.1",
        entry_points={"tpk.callbacks": {"broken": "broken_module:Broken"}},
        modules={"broken_module": "import no_such_module"},
    )
    return isolated_catalog


def status_of(catalog, name):
    return [entry.status for entry in catalog.entries() if entry.name == name]


# Built-ins.


@pytest.mark.parametrize(
    "target",
    [target for targets in BUILTINS.values() for target in targets.values()],
    ids=lambda target: target,
)
def test_every_builtin_target_exists(target):
    module, _, attribute = target.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


BASES = {"ProxyCallback", "StatisticFollower", "Monitor", "Trainer", "TowerTrainer"}
"""Public classes to derive from, which do nothing by themselves."""


@pytest.mark.parametrize(
    ("kind", "room", "base"),
    [
        ("callback", "callbacks", "Callback"),
        ("monitor", "monitors", "Monitor"),
        ("strategy", "strategies", "Strategy"),
        ("trainer", "train", "Trainer"),
    ],
)
def test_every_public_plugin_is_a_builtin(kind, room, base):
    public = {name: getattr(tpk, name) for name in getattr(tpk, room).__all__}
    classes = {name: each for name, each in public.items() if inspect.isclass(each) and not inspect.isabstract(each)}
    plugins = {name for name, each in classes.items() if issubclass(each, getattr(tpk, base))} - BASES
    assert {target.partition(":")[2] for target in BUILTINS[kind].values()} == plugins


def test_builtins_are_grouped_by_known_kinds():
    assert set(BUILTINS) == set(GROUPS)


def test_nothing_is_imported_until_it_is_named():
    script = (
        "import sys; from tpk.plugin import get_catalog; entries = get_catalog().entries();"
        "assert len(entries) >= 20;"
        "unwanted = {'tensorflow', 'numpy', 'tpk.callbacks', 'tpk.train'} & set(sys.modules);"
        "assert not unwanted, unwanted"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# The ways to name a plugin.


def test_an_instance_is_used_unchanged(isolated_catalog):
    callback = Callback()
    assert isolated_catalog.resolve("callback", callback) is callback


def test_a_class_is_instantiated(isolated_catalog):
    class Simple(Callback):
        pass

    assert type(isolated_catalog.resolve("callback", Simple)) is Simple


def test_a_class_that_needs_arguments_is_an_error_that_says_how_to_pass_them(isolated_catalog):
    class Demanding(Callback):
        def __init__(self, period: int, *, verbose: bool = False) -> None:
            pass

    with pytest.raises(tpk.errors.PluginError, match=r"Demanding.*'period'.*takes \(period.*tpk.use\(.*an instance"):
        isolated_catalog.resolve("callback", Demanding)


def test_a_name_creates_an_instance(hello):
    callback = hello.resolve("callback", "hello")
    assert type(callback).__name__ == "Hello" and callback.greeting == "hello"


def test_use_passes_options(hello):
    assert hello.resolve("callback", use("hello", greeting="hi", times=2)).times == 2


def test_a_name_may_name_a_factory(hello):
    assert hello.resolve("callback", use("loud", greeting="hi")).greeting == "HI"


def test_module_and_attribute_need_no_entry_point(hello):
    assert hello.resolve("callback", "hello_module:Hello").greeting == "hello"
    assert hello.resolve("callback", use("hello_module:Hello", greeting="hi")).greeting == "hi"


def test_module_and_attribute_may_be_an_instance(hello):
    assert hello.resolve("callback", "hello_module:ready").greeting == "ready"
    with pytest.raises(tpk.errors.PluginError, match="takes no options"):
        hello.resolve("callback", use("hello_module:ready", greeting="hi"))


def test_wrong_options_are_an_error_with_the_accepted_ones(hello):
    with pytest.raises(tpk.errors.PluginError, match=r"argument 'greting'.*greeting='hello', \*, times=1"):
        hello.resolve("callback", use("hello", greting="hi"))
    with pytest.raises(tpk.errors.PluginError, match=r"'demanding' .*missing a required argument: 'greeting'"):
        hello.resolve("callback", "demanding")


def test_an_error_of_the_plugin_itself_keeps_its_type_and_says_what_was_created(hello):
    with pytest.raises(ValueError, match="times must not be negative") as caught:
        hello.resolve("callback", use("hello", times=-1))
    assert caught.value.__notes__ == ["while creating callback 'hello' (hello_module:Hello, from tpk-hello 1.2)"]


def test_use_is_a_value():
    assert use("hello", times=2) == use("hello", times=2) != use("hello")
    assert repr(use("hello", times=2)) == "use('hello', times=2)"
    assert use("hello", name="an option may be called name").options == {"name": "an option may be called name"}
    with pytest.raises(AttributeError):
        use("hello").name = "other"
    with pytest.raises(TypeError):
        use(3)


# Errors.


def test_an_unknown_name_lists_the_nearest_and_the_known(hello):
    with pytest.raises(tpk.errors.UnknownPluginError, match=r"no callback 'helo'.*Nearest: 'hello'.*Known.*ModelSaver"):
        hello.resolve("callback", "helo")
    with pytest.raises(LookupError, match="There is a monitor of that name"):
        hello.resolve("callback", "ScalarPrinter")


def test_a_broken_plugin_is_an_error_when_it_is_named(broken):
    with pytest.raises(tpk.errors.PluginImportError) as caught:
        broken.resolve("callback", "broken")
    message = str(caught.value)
    for part in ("callback", "'broken'", "broken_module:Broken", "tpk-broken 0.1", "no_such_module"):
        assert part in message
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert status_of(broken, "broken") == ["failed"]


def test_a_broken_plugin_does_not_matter_until_it_is_named(broken, hello):
    assert hello.resolve("callback", "hello").greeting == "hello"
    assert status_of(broken, "broken") == ["available"]


def test_a_module_that_exits_is_broken_and_does_not_end_the_process(fake_distribution, isolated_catalog):
    fake_distribution(
        "tpk-exit",
        entry_points={"tpk.callbacks": {"exit": "exit_module:Exit"}},
        modules={"exit_module": "raise SystemExit(3)"},
    )
    with pytest.raises(tpk.errors.PluginImportError, match="SystemExit: 3"):
        isolated_catalog.resolve("callback", "exit")


def test_a_broken_submodule_says_what_is_broken(fake_distribution, isolated_catalog):
    (site,) = isolated_catalog.path
    pathlib.Path(site, "package_of_broken").mkdir()
    fake_distribution(
        "tpk-broken",
        entry_points={"tpk.plugins": {"broken": "package_of_broken.submodule"}},
        modules={"package_of_broken/__init__": "", "package_of_broken/submodule": "import no_such_module"},
    )
    with pytest.raises(tpk.errors.PluginImportError, match="No module named 'no_such_module'"):
        isolated_catalog.resolve("plugin", "broken")


@pytest.mark.parametrize("name", ["my-module:Hello", "hello_module:", ":Hello", "my module:X"])
def test_a_name_that_cannot_be_that_of_a_module(isolated_catalog, name):
    with pytest.raises(tpk.errors.PluginImportError, match=rf"{name}.*: expected 'module:attr', such as 'my_module:My"):
        isolated_catalog.resolve("callback", name)


def test_a_missing_attribute_is_an_import_error(hello):
    with pytest.raises(tpk.errors.PluginImportError, match="has no attribute 'Goodbye'"):
        hello.resolve("callback", "hello_module:Goodbye")


def test_a_plugin_that_requires_another_version_of_tpk_is_refused(hello):
    (site,) = hello.path
    with open(f"{site}/tpk_hello-1.2.dist-info/METADATA", "a") as metadata:
        metadata.write("Requires-Dist: tpk-train<0.1\n")
    with pytest.raises(
        tpk.PluginError, match=rf"tpk-hello 1\.2\) requires tpk-train<0\.1, but this is tpk {tpk.__version__}"
    ):
        tpk.Trainer().resolve_plugins(["hello"])


def test_two_distributions_with_one_name_are_an_error_that_names_both(hello, fake_distribution):
    fake_distribution("tpk-other", "3.0", entry_points={"tpk.callbacks": {"hello": "other_module:Hello"}})
    with pytest.raises(tpk.errors.PluginError, match="more than one") as caught:
        hello.resolve("callback", "hello")
    for part in ("tpk-hello 1.2", "tpk-other 3.0", "'hello_module:Hello' or 'other_module:Hello'"):
        assert part in str(caught.value)
    assert status_of(hello, "hello") == ["conflict", "conflict"]
    assert hello.resolve("callback", "hello_module:Hello").greeting == "hello"


def test_one_name_in_two_kinds_is_not_a_conflict(hello, fake_distribution):
    fake_distribution("tpk-other", entry_points={"tpk.monitors": {"hello": "tpk.monitors:JSONWriter"}})
    assert hello.resolve("callback", "hello").greeting == "hello"
    assert type(hello.resolve("monitor", "hello")).__name__ == "JSONWriter"


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("callback", "tpk.monitors:JSONWriter", "is not a callback but a monitor: it belongs in the monitors"),
        ("monitor", "hello_module:Hello", "is not a monitor but a callback: it belongs in the callbacks"),
        ("monitor", object(), "is not a monitor: expected an instance of tpk.Monitor"),
        ("strategy", "hello_module:Hello", "is not a strategy but a callback"),
        ("callback", "ready", r"'ready' .*from tpk-hello 1.2.* leads to a class or a factory"),
    ],
)
def test_a_plugin_of_another_kind_is_an_error_that_says_where_it_belongs(hello, kind, spec, message):
    with pytest.raises(tpk.errors.PluginError, match=message):
        hello.resolve(kind, spec)


def test_a_third_party_plugin_named_like_a_builtin_is_logged(fake_distribution, isolated_catalog, caplog):
    fake_distribution("tpk-other", entry_points={"tpk.monitors": {"JSONWriter": "other:JSONWriter"}})
    isolated_catalog.resolve("monitor", "JSONWriter")
    theirs = "monitor 'JSONWriter' (other:JSONWriter, from tpk-other 1.0)"
    assert f"'JSONWriter' is the built-in monitor. To use {theirs}, name its target" in caplog.text


def test_no_third_party_shadows_a_builtin(fake_distribution, isolated_catalog):
    fake_distribution("tpk-evil", entry_points={"tpk.monitors": {"JSONWriter": "evil:JSONWriter"}})
    assert isolated_catalog.find("monitor", "JSONWriter").target == "tpk.monitors:JSONWriter"
    assert status_of(isolated_catalog, "JSONWriter") == ["available", "conflict"]


def test_a_distribution_that_is_on_the_path_twice_counts_once(tmp_path):
    for directory, version in (("overlay", "2.0"), ("system", "1.0")):
        metadata = tmp_path / directory / f"tpk_hello-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tpk-hello\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text("[tpk.callbacks]\nhello = hello_module:Hello\n")
    catalog = Catalog(path=[str(tmp_path / "overlay"), str(tmp_path / "system")])
    assert catalog.find("callback", "hello").version == "2.0"


def test_unreadable_metadata_is_skipped_with_a_warning(hello, caplog):
    other = pathlib.Path(hello.path[0]) / "other-1.0.dist-info"
    other.mkdir()
    (other / "entry_points.txt").write_text("[tpk.callbacks]\nthis line has no equals sign\n")
    hello.refresh()
    assert hello.resolve("callback", "hello").greeting == "hello"
    assert "cannot be read" in caplog.text


# Blocking.


@pytest.mark.parametrize("block", ["hello", "callback:hello", "JSONWriter, hello"])
def test_a_blocked_plugin_is_not_imported(hello, monkeypatch, block):
    monkeypatch.setenv("TPK_BLOCK", block)
    with pytest.raises(tpk.errors.PluginError, match=r"hello_module:Hello.*is blocked by TPK_BLOCK="):
        hello.resolve("callback", "hello")
    assert "hello_module" not in sys.modules
    assert status_of(hello, "hello") == ["blocked"]


def test_blocking_one_kind_leaves_the_others(hello, fake_distribution, monkeypatch):
    fake_distribution("tpk-other", entry_points={"tpk.monitors": {"hello": "hello_module:Hello"}})
    monkeypatch.setenv("TPK_BLOCK", "monitor:hello")
    assert hello.resolve("callback", "hello").greeting == "hello"


@pytest.mark.parametrize("block", ["helo", "monitor:hello", "hello_module:Hello"])
def test_blocking_an_unknown_name_is_an_error(hello, monkeypatch, block):
    monkeypatch.setenv("TPK_BLOCK", block)
    with pytest.raises(tpk.errors.UnknownPluginError, match=f"TPK_BLOCK has the unknown name '{block}'"):
        hello.resolve("callback", "hello")


@pytest.mark.parametrize("off", ["", "0", " "])
def test_blocking_can_be_off(hello, monkeypatch, off):
    monkeypatch.setenv("TPK_BLOCK", off)
    assert status_of(hello, "hello") == ["available"]


# The catalog of the process.


def test_loaded_plugins_are_listed_with_their_versions(hello):
    hello.resolve("callback", use("loud", greeting="hi"))
    hello.resolve("callback", "hello")
    assert [(each.name, each.distribution, each.version) for each in hello.loaded()] == [
        ("hello", "tpk-hello", "1.2"),
        ("loud", "tpk-hello", "1.2"),
    ]
    assert status_of(hello, "hello") == ["loaded"]


def test_the_catalog_of_the_process_can_be_replaced_temporarily():
    before, other = get_catalog(), Catalog(path=[])
    with use_catalog(other) as current:
        assert get_catalog() is current is other
    assert get_catalog() is before
