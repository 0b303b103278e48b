"""What would be published, as `nox -s release` has built it: that it is whole, says what it is, and works.

`TPK_DISTRIBUTIONS` in the environment is the folder with the wheels and the source archives of all packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = os.environ.get("TPK_DISTRIBUTIONS")
PACKAGES = {path.parent.name: path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml")} | {"tpk-train": ROOT}

pytestmark = pytest.mark.skipif(DISTRIBUTIONS is None, reason="`nox -s release` builds what is looked at here")


@pytest.fixture(params=sorted(PACKAGES))
def package(request):
    return request.param


@pytest.fixture
def wheel(package):
    (path,) = Path(DISTRIBUTIONS).glob(f"{package.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture
def metadata(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_a_wheel_holds_every_file_of_the_source_and_nothing_else(package, wheel):
    source = PACKAGES[package] / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == files
    assert any(name.endswith("/py.typed") for name in files)


def test_a_wheel_says_what_it_is_and_under_which_licence(wheel, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    (licence,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert metadata["Summary"].endswith(".")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Author"] == "The tpk authors"


def test_the_description_has_no_dead_links(metadata):
    text = metadata.get_payload()
    assert len(text) > 500
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", text)


def test_it_is_found_by_what_it_is_for_and_runs_on(metadata):
    classifiers = metadata.get_all("Classifier")
    supported = [f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)]
    assert [each for each in classifiers if "Python :: 3." in each] == supported
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(classifiers)
    assert {"tensorflow", "training"} <= set(metadata["Keywords"].split(","))


def test_all_are_of_one_version_that_the_changelog_describes(package, metadata):
    import tpk

    assert metadata["Version"] == tpk.__version__
    assert re.search(rf"^## {re.escape(tpk.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    asked_for = [each for each in metadata.get_all("Requires-Dist", []) if re.match(r"tpk-train\b[^\[]*$", each)]
    if package != "tpk-train":
        assert asked_for == [f"tpk-train>={tpk.__version__}"]


def test_the_requirements_for_cpus_are_the_dependencies_with_another_tensorflow():
    tomllib = pytest.importorskip("tomllib")
    lines = (ROOT / "requirements-cpu.txt").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cpu = [each.replace("tensorflow", "tensorflow-cpu") for each in project["dependencies"]]
    assert [line for line in lines if not line.startswith("#")] == cpu


def test_a_source_archive_has_the_tests_too(package):
    (path,) = Path(DISTRIBUTIONS).glob(f"{package.replace('-', '_')}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert any(name.startswith("tests/") for name in names)
    assert not any(name.startswith("plugins/") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("runs/", ".nox/", "dist/"))]


def test_the_readmes_example_trains_with_the_installed_distribution(tmp_path):
    (code,) = re.findall(r"```python\n(import numpy.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.glob("runs/*/*/model-160.index"))
