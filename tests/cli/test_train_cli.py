"""``tpk train``: its file, its run directory, and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tpk.cli.main import main
from tpk.train.run.names import how_to_resume

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULE = """
import numpy as np
import tensorflow as tf

import tpk


class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 2], tf.float32, "x")]

    def build_graph(self, x):
        return tf.reduce_mean(tpk.layers.dense(x, 1, name="out") ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def data(size=4, broken=False):
    for point in range(size):
        if broken:
            raise tpk.CheckpointError("no disk")
        yield [np.full([3, 2], point, np.float32)]


class Refuses(tpk.Callback):
    def __init__(self, size):
        raise tpk.ConfigError(f"size={size} is too much.")
"""
FILE = """
model = "module_of_train_cli:Model"
dataflow = {use = "module_of_train_cli:data", size = 4}
callbacks = ["ModelSaver"]
monitors = ["JSONWriter"]
steps_per_epoch = 2
max_epoch = 1
seed = 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with the run file linear.toml and its module."""
    (tmp_path / "module_of_train_cli.py").write_text(MODULE)
    (tmp_path / "linear.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("module_of_train_cli", None)


def steps_of(run_dir):
    lines = (run_dir / "stats.jsonl").read_text().splitlines()
    return [json.loads(line)["global_step"] for line in lines]


def test_a_file_is_trained_repeated_and_resumed(folder):
    assert main(["train", "linear.toml", "max_epoch=2"]) == 0
    (first,) = (folder / "runs" / "linear").iterdir()
    assert steps_of(first) == [2, 4]
    assert main(["train", str(first / "config.toml")]) == 0
    (second,) = set((folder / "runs" / "linear").iterdir()) - {first}
    assert [(run / "stats.jsonl").read_text().count("cost") for run in (first, second)] == [2, 2]
    assert main(["train", str(first / "config.toml"), "--resume", "max_epoch=3", "dataflow.size=9"]) == 0
    assert steps_of(first) == [2, 4, 6]


def test_the_file_can_name_the_run_dir(folder):
    assert main(["train", "linear.toml", "run_dir=here", "resume=auto"]) == 0
    assert (folder / "here" / "config.toml").is_file()
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["linear.toml", "max_epoc=1"], "tpk: linear.toml: there is no key 'max_epoc'. Nearest: 'max_epoch'"),
        (["linear.toml", "resume=auto"], "tpk: resume='auto' needs a run_dir"),
        (["linear.toml", "--resume"], "tpk: --resume: linear.toml is not the config.toml of a run. Write run_dir="),
        (
            ["linear.toml", 'callbacks=[{use = "module_of_train_cli:Refuses", size = 9}]'],
            "tpk: size=9 is too much. (while creating callback 'module_of_train_cli:Refuses' "
            "(module_of_train_cli:Refuses), of linear.toml: callbacks.0)",
        ),
    ],
)
def test_errors_of_a_file_are_one_line(folder, capsys, arguments, message):
    assert main(["train", *arguments]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tpk: ")]
    assert line.startswith(message)
    assert not (folder / "runs").exists()


def test_an_error_in_a_training_has_a_traceback(folder, capsys):
    assert main(["train", "linear.toml", "dataflow.broken=true"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert 'raise tpk.CheckpointError("no disk")' in shown


def test_a_missing_file_is_an_error_before_tensorflow_is_imported(tmp_path):
    script = (
        "import sys; from tpk.cli.main import main; status = main(['train', 'nothing.toml']);"
        "assert not {'tensorflow', 'numpy'} & set(sys.modules); sys.exit(status)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert result.returncode == 2
    assert "File 'nothing.toml' does not exist." in result.stderr


def test_the_file_is_a_required_argument(capsys):
    assert main(["train"]) == 2
    assert "Missing argument 'FILE'" in capsys.readouterr().err


def test_a_run_of_the_command_is_resumed_by_the_command():
    run_dir = Path("runs/a b")
    assert how_to_resume(run_dir, ["/bin/tpk", "train", "x.toml"]) == "tpk train 'runs/a b/config.toml' --resume"
    assert how_to_resume(run_dir, ["/lib/tpk/__main__.py", "train"]) == "tpk train 'runs/a b/config.toml' --resume"
    assert how_to_resume(run_dir, ["train.py", "train"]) == 'run_dir="runs/a b", resume="auto"'


def test_the_example_trains(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "digits_convnet", raising=False)
    assert main(["train", str(EXAMPLES / "digits.toml"), "steps_per_epoch=3", "max_epoch=1", "run_dir=digits"]) == 0
    (row,) = (folder / "digits" / "stats.jsonl").read_text().splitlines()
    assert 0 <= json.loads(row)["validation_error"] <= 1
    assert tf.train.latest_checkpoint(str(folder / "digits")).endswith("model-3")
    sys.modules.pop("digits_convnet", None)
