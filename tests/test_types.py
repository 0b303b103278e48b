"""What a type checker says of code that uses tpk as it is installed: the examples, and new packages of plugins.

`nox -s types` runs it; elsewhere it needs mypy, and tpk as a distribution rather than on a path.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tpk.cli.main import main
from tpk.cli.plugins.new import TEMPLATE_KINDS

mypy = pytest.importorskip("mypy.api")
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
CONFIG = """
[mypy]
check_untyped_defs = True
# Neither types of its own, nor installed where types are checked.
[mypy-tensorflow.*,sklearn.*,PIL.*]
ignore_missing_imports = True
follow_imports = skip
"""


def is_installed():
    try:
        importlib.metadata.distribution("tpk-train")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="mypy finds tpk only where it is installed"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What mypy knows of tpk and NumPy, which takes it most of its time to find out."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def check(cache, tmp_path, monkeypatch):
    """Return what checks files, and returns the complaints of the type checker."""
    monkeypatch.chdir(tmp_path)  # So that nothing is found beside what is installed.
    (tmp_path / "mypy.ini").write_text(CONFIG)

    def check(*paths):
        said, broken, status = mypy.run(["--no-error-summary", "--cache-dir", str(cache), *map(str, paths)])
        assert broken == ""
        assert status == (1 if said else 0)
        return said

    return check


def test_new_packages_of_plugins_are_right(tmp_path, check, capsys):
    for kind in TEMPLATE_KINDS:
        assert main(["plugins", "new", f"fresh-{kind}", "--kind", kind, "--directory", str(tmp_path)]) == 0
    sources = sorted(tmp_path.glob("fresh-*/src/*.py"))
    tests = sorted(tmp_path.glob("fresh-*/tests/test_*.py"))
    assert len(sources) == len(tests) == len(TEMPLATE_KINDS)
    assert check(*sources, *tests) == ""


def test_the_examples_are_right(check):
    assert EXAMPLES
    assert check(*EXAMPLES) == ""


def test_what_is_wrong_is_seen(tmp_path, check):
    script = tmp_path / "script.py"
    script.write_text("import tpk\n\ntpk.ModelSaver(max_to_kep=3)\ntpk.NoSuchName\ntpk.callbacks.MinSaver(1)\n")
    said = check(script).splitlines()
    assert [line.partition("[")[2] for line in said if ": error:" in line] == [
        "call-arg]",
        "attr-defined]",
        "arg-type]",
    ]


def test_a_hook_may_take_fewer_arguments_and_a_tower_need_not_ask_for_its_context(tmp_path, check):
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import tpk\n\n\n"
        "class Fewer(tpk.Callback):\n"
        "    def before_run(self) -> list[str]:\n"
        "        return ['cost:0']\n\n"
        "    def after_run(self, run_values: object) -> None:\n"
        "        self.trainer.monitors.put_scalar('learning', tpk.get_current_tower_context().is_training)\n"
    )
    assert check(plugin) == ""
