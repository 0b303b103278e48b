"""Unmodified scripts in the style of tensorpack's users: they run, and write the expected files.

`nox -s port_oracle` compares them with tensorpack itself, see `oracle/test_training.py`.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

SCRIPTS = Path(__file__).parent / "scripts"

# The same as separate processes, but TensorFlow is imported only once.
RUN = """
import sys
import tensorflow as tf
from tpk_tensorpack.runner import run_script

for path, *arguments in [each.split(",") for each in sys.argv[1:]]:
    tf.compat.v1.reset_default_graph()
    run_script(path, arguments)
"""


@attrs.frozen
class Script:
    """A script and its expected output.

    Attributes:
        arguments: the arguments of each of its runs, which share a directory.
        log: the name of its log directory, if it has one.
        falls, rises: a statistic that improves for any random draw.
        files: the files it writes, next to the log directory or in it.
    """

    arguments: tuple[tuple[str, ...], ...] = ((),)
    log: str | None = None
    falls: str | None = None
    rises: str | None = None
    files: tuple[str, ...] = ()


RUN_TWICE = ((), ("--load", "train_log/resume/checkpoint", "--from-epoch", "3"))
# Scripts of the same group share a process and a directory.
GROUPS: list[dict[str, Script]] = [
    {
        "digits": Script(log="digits", falls="validation_cross_entropy_loss", files=("max-validation_accuracy.index",)),
        "resume": Script(RUN_TWICE, "resume", falls="cost"),
        "hooks": Script(log="hooks", falls="cost", files=("calls.npz", "model-6.index")),
        "residual": Script(log="residual", falls="cross_entropy_loss", files=("min-validation_error.index",)),
        "gan": Script(log="gan", files=("model-12.index",)),
        "convnet": Script(log="convnet", falls="validation_cross_entropy_loss", files=("model-20.index",)),
        "inference": Script(log="inference", falls="val-error-top1", files=("model-20.index",)),
    },
    {
        "lstm": Script(files=("lstm.npz",)),
        "mask_rcnn": Script(log="mask_rcnn", falls="total_cost", files=("mask_rcnn.npz", "model-100.index")),
        "saliency": Script(files=("saliency-model.index",)),
        "export": Script(files=("exported", "exported.pb")),
        "surgery": Script(files=("surgery.npz", "averaged.npz", "averaged-model.index")),
        "detection": Script(files=("detection.npz",)),
        "serialized": Script(files=("serialized.npz", "prepared")),
        "spatial_transformer": Script(log="spatial_transformer", rises="psnr", files=("model-60.index",)),
        "super_resolution": Script(log="super_resolution", rises="validation_psnr", files=("pictures-2.npy",)),
        "wgan": Script(log="wgan", files=("wgan.npz", "model-35.index")),
        "fine_tune": Script(log="fine_tune", falls="cost", files=("fine_tuned.npz",)),
        "dqn": Script(log="dqn", files=("model-80.index",)),
    },
    {
        "actor_critic": Script(log="actor_critic", files=("model-30.index",)),
        "async_towers": Script(log="async_towers", files=("model-20.index",)),
        "autoresume": Script(log="autoresume", falls="cost", files=("min-cost.index",)),
        "cifar": Script((("--make-data",),), "cifar", files=("model-20.index",)),
        "gan_towers": Script(log="gan_towers", files=("model-20.index",)),
        "keras_model": Script(log="keras_model", falls="total_loss"),
        "multi_tower": Script(log="multi_tower:replicated", falls="validation_cost", files=("model-20.index",)),
        "old_style": Script(log="old_style"),
        "own_data": Script(log="own_data", files=("model-20.index",)),
        "ptb": Script(log="ptb", falls="perplexity"),
        "siamese": Script(log="siamese:siamese", falls="cost", files=("model-100.index",)),
    },
]


@pytest.fixture(scope="module")
def directory_of(tmp_path_factory):
    """A function that returns the directory of a group, after its scripts have run."""
    return functools.cache(lambda number: run_all(GROUPS[number], tmp_path_factory.mktemp("scripts")))


def run_all(group, directory):
    """Run the scripts of a group in its directory."""
    runs = [
        ",".join([str(SCRIPTS / f"{name}.py"), *arguments])
        for name, script in group.items()
        for arguments in script.arguments
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *runs], cwd=directory, env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return directory


@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_scripts_run_as_they_are(directory_of, number):
    directory = directory_of(number)
    for name, script in GROUPS[number].items():
        log = directory / "train_log" / (script.log or "")
        for file in script.files:
            assert (directory / file).exists() or (log / file).exists(), f"{name} has left no {file}"
        for statistic, sign in ((script.falls, -1), (script.rises, 1)):
            if statistic is not None:
                values = [row[statistic] for row in stats(log) if statistic in row]
                assert sign * (values[-1] - values[0]) > 0, f"{name}: {statistic} {values}"


def test_every_script_is_in_the_table():
    listed = [name for group in GROUPS for name in group]
    assert sorted(listed) == sorted(path.stem for path in SCRIPTS.glob("*.py"))


@pytest.fixture
def directory(directory_of):
    """The log directories of the first group."""
    return directory_of(0) / "train_log"


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
