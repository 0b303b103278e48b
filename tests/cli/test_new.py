from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.cli.main import main
from tpk.cli.plugins.new import TEMPLATE_KINDS

pytestmark = pytest.mark.once

SOURCES = Path(tpk.__file__).parents[1]


class Scale(tpk.ModelDesc):
    """A model with one variable."""

    def inputs(self):
        return [tf.TensorSpec([], tf.float32, "x")]

    def build_graph(self, x):
        return tf.square(x * tf.compat.v1.get_variable("scale", initializer=1.0), name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.5)


def test_new_packages_pass_their_own_tests(tmp_path, capsys):
    packages = []
    for name, kinds in {**{f"fresh-{kind}": [kind] for kind in TEMPLATE_KINDS}, "several": TEMPLATE_KINDS}.items():
        options = [f"--kind={kind}" for kind in kinds]
        assert main(["plugins", "new", name, *options, "--directory", str(tmp_path)]) == 0
        packages.append(tmp_path / name)
        assert f"pip install -e '{packages[-1]}[test]'" in capsys.readouterr().out
    # On the path instead of installed, because installing takes too long.
    path = os.pathsep.join(map(str, [SOURCES, *(package / "src" for package in packages)]))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *packages],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert "24 passed" in result.stdout


@pytest.mark.parametrize(
    ("name", "module", "plugin", "class_name"),
    [
        ("my-package", "my_package", "my-package", "MyPackage"),
        ("tpk-cost-curve", "tpk_cost_curve", "cost-curve", "CostCurve"),
        ("cost.curve", "cost_curve", "cost-curve", "CostCurve"),
    ],
)
def test_a_new_package_has_the_given_name_and_an_entry_point(tmp_path, name, module, plugin, class_name):
    main(["plugins", "new", name, "--directory", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    metadata = (tmp_path / name / "pyproject.toml").read_text()
    assert f'\nname = "{name}"\n' in metadata
    assert f'[project.entry-points."tpk.callbacks"]\n{plugin} = "{module}:{class_name}"' in metadata
    assert f"class {class_name}(tpk.Callback)" in (tmp_path / name / "src" / f"{module}.py").read_text()
    assert f"# {name}\n" in (tmp_path / name / "README.md").read_text()


def test_a_package_with_several_kinds_has_a_module_and_a_name_for_each(tmp_path, capsys):
    kinds = ["--kind", "callback", "--kind", "hooks", "--kind", "callback"]
    main(["plugins", "new", "tpk-mine", *kinds, "--directory", str(tmp_path)])
    package = tmp_path / "tpk-mine"
    metadata = (package / "pyproject.toml").read_text()
    assert '[project.entry-points."tpk.callbacks"]\nmine-callback = "tpk_mine.callback:MineCallback"\n' in metadata
    assert '[project.entry-points."tpk.plugins"]\nmine-hooks = "tpk_mine.hooks"\n' in metadata
    assert "class MineCallback(tpk.Callback)" in (package / "src/tpk_mine/callback.py").read_text()
    assert (
        "For tpk: the callback mine-callback, the hooks mine-hooks."
        in (package / "src/tpk_mine/__init__.py").read_text()
    )
    readme = (package / "README.md").read_text()
    assert "TPK_BLOCK=mine-hooks" in readme and "The callback `mine-callback` for tpk" in readme
    shown = capsys.readouterr().out
    assert "tpk plugins show mine-callback\n  tpk plugins show mine-hooks\n" in shown


def test_a_new_package_is_ready_for_a_repository(tmp_path):
    main(["plugins", "new", "tpk-mine", "--directory", str(tmp_path)])
    package = tmp_path / "tpk-mine"
    assert "*.egg-info/" in (package / ".gitignore").read_text()
    assert "- run: pytest" in (package / ".github/workflows/tests.yml").read_text()
    assert "no license yet" in (package / "README.md").read_text()
    assert "# Choose a license" in (package / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["", "Cost", "cost curve", "-cost", "../cost", "1st", "tpk-1st", "class", "none"])
def test_an_invalid_package_name_is_an_error(tmp_path, capsys, name):
    assert main(["plugins", "new", "--directory", str(tmp_path), "--", name]) == 1
    assert "cannot be the name of a package: begin with a lower-case letter, and use lower" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "hello").mkdir()
    assert main(["plugins", "new", "hello", "--directory", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_no_module_is_hidden(tmp_path, capsys, monkeypatch):
    (tmp_path / "hello_there.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["plugins", "new", "hello-there", "--directory", str(tmp_path / "new")]) == 1
    assert "would hide the module hello_there" in capsys.readouterr().err


def test_callbacks_find_the_rate_and_gradients_of_a_new_strategy(tmp_path, monkeypatch):
    main(["plugins", "new", "reporting", "--kind", "strategy", "--directory", str(tmp_path)])
    monkeypatch.syspath_prepend(str(tmp_path / "reporting" / "src"))
    trainer = tpk.SingleCostTrainer(strategy="reporting:Reporting")
    tpk.launch_train_with_config(
        tpk.TrainConfig(
            model=Scale(),
            dataflow=[[np.float32(1)], [np.float32(2)]],
            callbacks=["GradientHistogram"],
            max_epoch=1,
            run_dir=tmp_path / "run",
        ),
        trainer,
    )
    assert trainer.history["learning_rate"] == [0.5]
    assert len(trainer.history["gradients/scale/norm"]) == 1
