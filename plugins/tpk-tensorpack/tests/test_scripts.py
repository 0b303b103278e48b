"""Scripts as tensorpack's users write them, left as they are: that they run, and what they leave.

`nox -s port_oracle` compares them with tensorpack itself, see `oracle/test_training.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"

# As each in a process of its own would run, but that TensorFlow is imported once.
RUN = """
import sys
import tensorflow as tf
from tpk_tensorpack.runner.script import run_script

for path, *arguments in [each.split(",") for each in sys.argv[1:]]:
    tf.compat.v1.reset_default_graph()
    run_script(path, arguments)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Where all of them have run."""
    directory = tmp_path_factory.mktemp("scripts")
    goes_on = "resume.py,--load,train_log/resume/checkpoint,--from-epoch,3"
    runs = ["digits.py", "resume.py", goes_on, "hooks.py", "residual.py", "gan.py"]
    names = [f"{SCRIPTS}{os.sep}{run}" for run in runs]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *names], cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return directory / "train_log"


def stats(directory):
    return json.loads((directory / "stats.json").read_text())


def test_digits_are_learned(directory):
    first, last = stats(directory / "digits")
    assert last["validation_accuracy"] > 0.3
    assert last["total_cost"] < first["total_cost"]
    assert {path.stem for path in (directory / "digits").glob("*.index")} == {
        "model-20",
        "model-40",
        "max-validation_accuracy",
    }


def test_a_training_goes_on(directory):
    costs = [each["cost"] for each in stats(directory / "resume")]
    assert len(costs) == 4
    assert costs == sorted(costs, reverse=True)
    assert [each["learning_rate"] for each in stats(directory / "resume")] == pytest.approx([0.2, 0.1, 0.1, 0.05])


def test_a_residual_network_learns(directory):
    first, last = stats(directory / "residual")
    assert last["cross_entropy_loss"] < first["cross_entropy_loss"]
    assert {"validation_error", "activation-summary/last-rms", "QueueInput/queue_size"} <= set(last)
    assert (directory / "residual" / "min-validation_error.index").exists()


def test_a_trainer_of_ones_own_trains(directory):
    rows = stats(directory / "gan")
    assert [row["global_step"] for row in rows] == [3, 6, 9, 12]
    assert {"generated_mean", "GAN_loss/g_loss", "GAN_loss/d_loss", "QueueInput/queue_size"} <= set(rows[-1])
    assert (directory / "gan" / "model-12.index").exists()


def test_hooks_are_called(directory):
    import numpy as np

    with np.load(directory.parent / "calls.npz") as file:
        recorded = dict(file)
    assert recorded["calls"][:3].tolist() == [
        ["before_train", "0", "-1", "0"],
        ["before_epoch", "1", "-1", "0"],
        ["trigger_step", "1", "0", "1"],
    ]
    assert len(recorded["costs"]) == 6
    assert recorded["noises"].tolist() == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert [each["steps_so_far"] for each in stats(directory / "hooks")] == [2, 4, 6]


def test_scripts_that_need_no_trainer_run_and_leave_their_files(tmp_path):
    names = [f"{SCRIPTS}{os.sep}{name}" for name in ("lstm.py", "saliency.py", "export.py")]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *names], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == {
        "lstm.npz",
        "checkpoint",
        "saliency-model.index",
        "saliency-model.data-00000-of-00001",
        "exported",
        "exported.pb",
    }
