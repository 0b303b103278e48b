from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time

import pytest

import tpk
from tpk.cli.main import main
from tpk.cli.plugins.check import check_imports
from tpk.cli.plugins.plugin_table import summary_of
from tpk.plugin.catalog import CatalogEntry, get_catalog

GREETER = '''
"""A module of plugins."""
import tpk

class Greeter(tpk.Callback):
    """Says hello.

    Args:
        greeting: what it says.
    """

    def __init__(self, greeting: str, *, times: int = 1) -> None:
        pass

    def before_train(self): ...
    def trigger(self): ...

class Wrapper(tpk.Callback):
    def hook_implementations(self):
        return {}

def factory(**options):
    """Makes a greeter."""

@tpk.hookimpl
def tpk_configure(config): ...

ready = Greeter("hello")
'''


@pytest.fixture
def installed(fake_distribution):
    """Install a distribution with one plugin of each sort."""
    fake_distribution(
        "tpk-greeter",
        "2.1",
        entry_points={
            "tpk.callbacks": {"greeter": "greeter_module:Greeter", "both": "greeter_module:Wrapper"},
            "tpk.monitors": {"both": "greeter_module:factory"},
            "tpk.plugins": {"configuring": "greeter_module", "broken": "no_such_module"},
        },
        modules={"greeter_module": GREETER},
    )


def run(capsys, *arguments):
    """Run the command; return its exit status, stdout and stderr."""
    status = main(arguments)
    written, errors = capsys.readouterr()
    return status, written, errors


def rows_of(table):
    return {tuple(line.split()) for line in table.splitlines()}


# The list.


def test_the_list_has_all_plugins_with_origin_and_description(installed, capsys):
    status, table, errors = run(capsys, "plugins")
    assert (status, errors) == (0, "")
    assert table.splitlines()[0].split() == ["kind", "name", "from", "description"]
    for row in (
        ("callback", "greeter", "tpk-greeter", "2.1", "Says", "hello."),
        ("monitor", "both", "tpk-greeter", "2.1", "Makes", "a", "greeter."),
        ("plugin", "configuring", "tpk-greeter", "2.1", "A", "module", "of", "plugins."),
        ("plugin", "broken", "tpk-greeter", "2.1"),
        ("callback", "ModelSaver", "tpk", *inspect.getdoc(tpk.ModelSaver).partition("\n")[0].split()),
    ):
        assert row in rows_of(table)


def test_each_builtin_plugin_has_a_description():
    assert [entry.name for entry in get_catalog().entries() if entry.is_builtin and not summary_of(entry.target)] == []


def test_the_list_marks_blocked_and_conflicting_plugins(installed, fake_distribution, capsys, monkeypatch):
    fake_distribution("tpk-other", "1.0", entry_points={"tpk.callbacks": {"both": "other:Both"}})
    monkeypatch.setenv("TPK_BLOCK", "greeter")
    _, table, _ = run(capsys, "plugins", "--kind", "callback")
    assert ("callback", "greeter", "tpk-greeter", "2.1", "blocked:", "Says", "hello.") in rows_of(table)
    assert ("callback", "both", "tpk-other", "1.0", "conflict:") in rows_of(table)


def test_the_list_can_be_limited_to_one_kind(installed, capsys):
    _, table, _ = run(capsys, "plugins", "--kind", "plugin")
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [["plugin", "broken"], ["plugin", "configuring"]]


def test_the_list_as_json(installed, capsys):
    _, text, _ = run(capsys, "plugins", "--kind", "plugin", "--json")
    assert json.loads(text)[1] == {
        "kind": "plugin",
        "name": "configuring",
        "target": "greeter_module",
        "distribution": "tpk-greeter",
        "version": "2.1",
        "status": "available",
        "description": "A module of plugins.",
        "problem": None,
    }


@pytest.mark.parametrize("arguments", [["plugins"], ["plugins", "--json"], []])
def test_listing_imports_neither_tensorflow_nor_numpy(arguments):
    script = (
        f"import sys; from tpk.cli.main import main; status = main({arguments!r});"
        "unwanted = {'tensorflow', 'numpy', 'tpk.callbacks'} & set(sys.modules);"
        "assert not unwanted, unwanted; sys.exit(status)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tpk {tpk.__version__}\n"


def test_an_error_is_one_line_on_stderr(installed, capsys, monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "no-such-plugin")
    status, written, errors = run(capsys, "plugins")
    assert (status, written) == (1, "")
    assert errors.startswith("tpk: TPK_BLOCK has the unknown name 'no-such-plugin'") and errors.count("\n") == 1


def test_a_reader_that_stops_reading_is_no_error():
    script = "import sys; from tpk.cli.main import main; sys.exit(main(['plugins']))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


# Checking.


def test_checking_imports_each_plugin_and_reports_problems(installed, capsys):
    status, table, _ = run(capsys, "plugins", "--kind", "plugin", "--check")
    assert status == 1
    assert ("plugin", "configuring", "tpk-greeter", "2.1", "ok:", "A", "module", "of", "plugins.") in rows_of(table)
    assert ("plugin", "broken", "tpk-greeter", "2.1", "failed:") in rows_of(table)
    assert "No module named 'no_such_module'" in table
    assert "greeter_module" not in sys.modules


def test_checking_skips_blocked_plugins(installed, capsys, monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "broken")
    status, text, _ = run(capsys, "plugins", "--kind", "plugin", "--check", "--json")
    assert status == 0
    assert {row["name"]: (row["status"], row["problem"]) for row in json.loads(text)} == {
        "broken": ("blocked", None),
        "configuring": ("ok", None),
    }


def test_checking_survives_crashes_hangs_and_output(fake_distribution):
    modules = {
        "noisy": "import os; print('noise'); os.write(1, b'noise\\n'); plugin = print",
        "exiting": "import sys; sys.exit('no reason')",
        "crashing": "import os, sys; print('the last words', file=sys.stderr, flush=True); os._exit(7)",
        "hanging": "import threading; threading.Event().wait()",
        "lingering": "import threading; threading.Thread(target=threading.Event().wait).start(); plugin = print",
    }
    fake_distribution("tpk-strange", modules=modules)
    entries = {name: CatalogEntry("callback", name, f"{name}:plugin") for name in modules}
    hanging = entries.pop("hanging")
    noisy, exiting, crashing, lingering = check_imports([*entries.values()])
    assert noisy is None and lingering is None
    assert "SystemExit: no reason" in exiting
    assert crashing == "importing it ended the process with exit status 7: the last words"
    assert check_imports([hanging], timeout=1) == ["importing it takes more than 1 s"]


def test_the_time_to_import_tensorflow_is_no_problem_of_a_plugin():
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import tpk; tpk.Trainer"], check=True, timeout=200)
    timeout = (time.monotonic() - began) / 2
    trainers = [entry for entry in tpk.get_catalog().entries("trainer") if entry.is_builtin]
    assert check_imports(trainers, timeout) == [None] * len(trainers)


def test_checking_a_plugin_module_checks_its_hooks(fake_distribution):
    fake_distribution("tpk-hookless", modules={"hookless": "x = 1"})
    (problem,) = check_imports([CatalogEntry("plugin", "hookless", "hookless")])
    assert "implements no hook" in problem


SLIPS = """
import tpk

class Misspelled(tpk.Callback):
    def befor_train(self):
        pass

class Wrong(tpk.Callback):
    def before_epoch(self, epoch):
        pass

class Reporting(tpk.Monitor):
    def proces_scalar(self, name, value):
        pass

class Training(tpk.Trainer):
    def before_train(self, trainer):
        pass

class Replicating(tpk.Strategy):
    def on_epoch_end(self):
        pass

class Good(tpk.Callback):
    def before_train(self):
        pass

def factory(count=1):
    return Good()

number = 3
"""


def test_checking_finds_mistakes_without_a_training(fake_distribution):
    fake_distribution("tpk-slips", modules={"slips": SLIPS})
    expected = {
        ("callback", "Misspelled"): "did you mean 'before_train'",
        ("callback", "Wrong"): "takes 'epoch', which this hook does not pass",
        ("monitor", "Reporting"): "did you mean 'process_scalar'",
        ("trainer", "Training"): "which is a hook: decorate it with @tpk.hookimpl",
        (
            "strategy",
            "Replicating",
        ): "has hooks of another framework; in a tpk.Callback, on_epoch_end is 'trigger_epoch'",
        ("monitor", "Good"): "is not a monitor: it does not derive from tpk.Monitor",
        ("callback", "number"): "leads to a class or a factory",
        ("callback", "Good"): None,
        ("callback", "factory"): None,
    }
    problems = check_imports([CatalogEntry(kind, name, f"slips:{name}", "tpk-slips", "1.0") for kind, name in expected])
    for wanted, problem in zip(expected.values(), problems, strict=True):
        assert problem is None if wanted is None else wanted in problem


def test_checking_finds_a_plugin_for_another_version_of_tpk(isolated_catalog, fake_distribution):
    fake_distribution("tpk-future", modules={"future": "def plugin(): ..."})
    (site,) = isolated_catalog.path
    with open(f"{site}/tpk_future-1.0.dist-info/METADATA", "a") as metadata:
        metadata.write("Requires-Dist: tpk-train>=99\n")
    (problem,) = check_imports([CatalogEntry("callback", "future", "future:plugin", "tpk-future", "1.0")])
    assert problem == (
        "callback 'future' (future:plugin, from tpk-future 1.0) requires tpk-train>=99, but this is tpk "
        f"{tpk.__version__}"
    )


# Showing.


def test_show_prints_docstring_options_and_hooks(installed, capsys):
    status, text, _ = run(capsys, "plugins", "show", "greeter")
    assert status == 0
    assert text == (
        "callback 'greeter' (greeter_module:Greeter, from tpk-greeter 2.1)\n\n"
        "Says hello.\n\nArgs:\n    greeting: what it says.\n\n"
        "Options:\n  greeting: str\n  times: int = 1\n\n"
        "Hooks: before_train, trigger_epoch\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["configuring"], ["A module of plugins.", "Options: none", "Hooks: tpk_configure"]),
        (["both", "--kind", "callback"], ["It has no docstring.", "Hooks: they depend on the instance"]),
        (["both", "--kind", "monitor"], ["Makes a greeter.", "  **options", "Hooks: they depend on what it returns"]),
        (["greeter_module:ready"], ["Options: none", "Hooks: before_train, trigger_epoch"]),
        (["single"], ["strategy 'single'", "One tower on one device", "devices: "]),
    ],
)
def test_show_supports_every_sort_of_plugin(installed, capsys, arguments, expected):
    status, text, _ = run(capsys, "plugins", "show", *arguments)
    assert status == 0
    for part in expected:
        assert part in text


def test_show_asks_for_the_kind_of_an_ambiguous_name(installed, capsys):
    status, _, errors = run(capsys, "plugins", "show", "both")
    assert status == 1
    assert "'both' is the name of a callback and of a monitor: choose one with --kind" in errors


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("greter", "there is no plugin 'greter'. Nearest: 'greeter'"),
        ("broken", "plugin 'broken' (no_such_module, from tpk-greeter 2.1) cannot be imported: ModuleNotFoundError"),
        ("greeter_module:No", "has no attribute 'No'"),
    ],
)
def test_errors_of_show_are_one_line(installed, capsys, name, message):
    status, written, errors = run(capsys, "plugins", "show", name)
    assert (status, written) == (1, "")
    assert message in errors and errors.count("\n") == 1
