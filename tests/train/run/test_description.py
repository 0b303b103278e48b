"""What ``config.json`` says of a run."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.train.run.run_description import git_state, script_directory


class Linear(tpk.ModelDesc):
    def __init__(self, rate=0.1):
        self.rate = rate

    def inputs(self):
        return [tf.TensorSpec([None, 1], tf.float32, "x")]

    def build_graph(self, x):
        return tf.reduce_mean((x * tf.compat.v1.get_variable("w", []) - 1) ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(self.rate)


class Shout(tpk.Callback):
    """A callback of a script's own."""

    def __init__(self, word, at=lambda step: step % 2):
        self.word = word

    def trigger(self): ...


def launch(run_dir, trainer="SimpleTrainer", **options):
    flow = tpk.BatchData(tpk.DataFromList([[np.ones([1], np.float32)]] * 8), 4)
    options = {"dataflow": flow, "model": Linear(0.5), "max_epoch": 1, "extra_callbacks": [], **options}
    tpk.launch_train_with_config(tpk.TrainConfig(run_dir=run_dir, **options), trainer)
    text = (run_dir / "config.json").read_text()
    assert " object at 0x" not in text
    return json.loads(text)


def test_a_run_describes_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])
    run = launch(
        tmp_path / "run",
        tpk.use("replicated", devices=["/cpu:0"], mode="cpu"),
        callbacks=[Shout("hey"), tpk.use("ModelSaver", max_to_keep=3)],
        extra_monitors=[tpk.use("CSVWriter", filename="a.csv")],
        monitors=[tpk.ScalarPrinter],
        session_init={"w": np.float32(2)},
        session_config=tf.compat.v1.ConfigProto(log_device_placement=False, allow_soft_placement=True),
        seed=3,
    )
    assert run["trainer"]["name"] == "SingleCostTrainer"
    assert run["strategy"]["name"] == "ReplicatedStrategy"
    assert (run["strategy"]["options"]["mode"], run["devices"], run["num_replicas"]) == ("cpu", ["/cpu:0"], 1)
    shout, saver = run["callbacks"]
    assert shout["name"] == "Shout" and shout["options"]["word"] == "hey" and "<lambda>" in shout["options"]["at"]
    assert saver["name"] == "ModelSaver" and saver["options"]["max_to_keep"] == 3
    printer, writer = run["monitors"]
    assert printer["name"] == "ScalarPrinter"
    assert writer["name"] == "CSVWriter" and writer["options"]["filename"] == "a.csv"
    assert run["model"] == {"name": "Linear", "options": {"rate": 0.5}}
    assert run["signature"] == [f"x float32 {tf.TensorShape([None, 1])}"]
    assert run["input"]["name"] == "QueueInput" and run["batch_size"] == 4
    batch = run["input"]["options"]["flow"]
    assert batch["name"] == "BatchData" and batch["options"]["batch_size"] == 4
    assert batch["options"]["flow"]["name"] == "DataFromList"
    assert (run["seed"], run["precision"], run["steps_per_epoch"], run["max_epoch"]) == (3, "float32", 2, 1)
    assert run["session_init"] == {"w": 2.0} and run["session_config"] == "allow_soft_placement: true"
    assert run["argv"] == ["train.py", "--fast"]
    assert run["versions"] == {
        "tpk": tpk.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
    }


def test_a_run_without_a_config_describes_itself_too(tmp_path):
    class Counting(tpk.Trainer):
        def __init__(self, size=7):
            super().__init__()

        def run_step(self): ...

    trainer = Counting()
    trainer.register_callback(Shout("first"))
    trainer.train(callbacks=[Shout("second")], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path, describe={"note": "x"})
    run = json.loads((tmp_path / "config.json").read_text())
    assert run["trainer"] == {"name": "Counting", "options": {"size": 7}}
    assert [each["options"]["word"] for each in run["callbacks"]] == ["first", "second"]
    assert (run["note"], run["max_epoch"], run["monitors"]) == ("x", 1, [])


def test_what_is_configured_otherwise_when_a_run_goes_on_is_logged(tmp_path, caplog):
    caplog.set_level(logging.INFO, "tpk")
    launch(tmp_path, callbacks=[tpk.ModelSaver(max_to_keep=3)])
    launch(tmp_path, callbacks=["EpochMeans", tpk.ModelSaver(max_to_keep=4)], resume="must")
    changed = {message for message in caplog.messages if message.startswith("config: ")}
    assert "config: callbacks.ModelSaver.max_to_keep was 3, and is 4 now" in changed
    # That it is gone on with is none, either.
    assert not [message for message in changed if message.startswith("config: resume ")]
    # Another place in the list is no difference.
    assert not [message for message in changed if "ModelSaver " in message or "ModelSaver.checkpoint_dir" in message]
    assert not [message for message in changed if "model" in message or "clock" in message]


def git(directory, *arguments):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", "train.py")
    return tmp_path


def test_the_commit_is_that_of_the_script(repository, monkeypatch, tmp_path):
    assert git_state(repository) is None  # Nothing is committed.
    git(repository, "commit", "-m", "first")
    commit = git_state(repository)["commit"]
    assert len(commit) == 40 and git_state(repository) == {"commit": commit, "is_dirty": False}
    (repository / "notes.txt").write_text("no part of it")
    assert not git_state(repository)["is_dirty"]
    (repository / "train.py").write_text("2")
    assert git_state(repository) == {"commit": commit, "is_dirty": True}

    main = ModuleType("__main__")
    main.__file__ = str(repository / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert launch(tmp_path / "runs" / "1")["git"] == {"commit": commit, "is_dirty": True}
    del main.__file__
    monkeypatch.chdir(repository)
    assert script_directory() == repository
    for command in ("/opt/env/bin/tpk", str(Path(tpk.__file__).with_name("__main__.py"))):
        main.__file__ = command
        assert script_directory() == repository


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    assert git_state(tmp_path / "not there") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_git_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("tpk.train.run.run_description._GIT_TIMEOUT", 0.1)
    assert git_state(tmp_path) is None


def test_what_a_strategy_says_of_itself_is_made_plain(tmp_path):
    class Odd(tpk.strategies.SingleStrategy):
        def describe(self):
            return {"thing": SimpleNamespace()}

    assert launch(tmp_path, tpk.SingleCostTrainer(Odd()))["strategy"] == {
        "name": "Odd",
        "options": {"devices": None, "thing": "SimpleNamespace"},
    }
