from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tpk
from tpk.cli.main import main
from tpk.cli.new import TEMPLATE_KINDS

SOURCES = Path(tpk.__file__).parents[1]


def test_new_packages_pass_their_own_tests(tmp_path, capsys):
    packages = []
    for kind in TEMPLATE_KINDS:
        assert main(["plugins", "new", f"fresh-{kind}", "--kind", kind, "--directory", str(tmp_path)]) == 0
        packages.append(tmp_path / f"tpk-fresh-{kind}")
        assert f"pip install -e '{packages[-1]}[test]'" in capsys.readouterr().out
    # As if they were installed, which takes too long here.
    path = os.pathsep.join(map(str, [SOURCES, *(package / "src" for package in packages)]))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *packages],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert "9 passed" in result.stdout


def test_a_new_package_announces_its_plugin(tmp_path):
    main(["plugins", "new", "tpk-cost-curve", "--directory", str(tmp_path)])
    root = tmp_path / "tpk-cost-curve"
    metadata = (root / "pyproject.toml").read_text()
    assert 'name = "tpk-cost-curve"' in metadata
    assert '[project.entry-points."tpk.callbacks"]\ncost-curve = "tpk_cost_curve:CostCurve"' in metadata
    assert "class CostCurve(tpk.Callback)" in (root / "src" / "tpk_cost_curve.py").read_text()


@pytest.mark.parametrize("name", ["", "Cost", "cost curve", "-cost", "../cost", "1st"])
def test_a_name_that_no_package_can_have_is_an_error(tmp_path, capsys, name):
    assert main(["plugins", "new", "--directory", str(tmp_path), "--", name]) == 1
    assert "cannot be the name of a package" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "tpk-hello").mkdir()
    assert main(["plugins", "new", "hello", "--directory", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_no_module_is_hidden(tmp_path, capsys, monkeypatch):
    (tmp_path / "tpk_hello.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["plugins", "new", "hello", "--directory", str(tmp_path / "new")]) == 1
    assert "there is a module tpk_hello already" in capsys.readouterr().err
