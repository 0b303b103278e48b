"""A chief, a worker, a parameter server and an evaluator, each in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import line
import pytest
import tensorflow as tf
from tpk_estimator import EvalSpec, TrainSpec, train_and_evaluate

PROGRAM = """
import sys, line, tpk_estimator as e
e.train_and_evaluate(
    line.estimator(sys.argv[1], save_checkpoints_steps=30),
    e.TrainSpec(line.input_fn, 60),
    e.EvalSpec(line.one_pass, start_delay_secs=0, throttle_secs=1),
)
"""


def free_address():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return f"localhost:{taken.getsockname()[1]}"


def test_workers_share_the_variables_on_parameter_servers(tmp_path):
    cluster = {job: [free_address()] for job in ("chief", "worker", "ps")}
    processes = {}
    try:
        for job in (*cluster, "evaluator"):
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
            with (tmp_path / f"{job}.txt").open("w") as output:
                processes[job] = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(tmp_path / "model")],
                    cwd=Path(__file__).parent,
                    env={**os.environ, "TF_CONFIG": config},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        for job in ("chief", "worker", "evaluator"):
            assert processes[job].wait(180) == 0, (tmp_path / f"{job}.txt").read_text()[-4000:]
    finally:
        for process in processes.values():
            process.kill()
            process.wait(30)
    path = tf.train.latest_checkpoint(tmp_path / "model")
    assert 60 <= tf.train.load_variable(path, "global_step") <= 61
    assert [tag for _, tag, _ in line.events_in(tmp_path / "model/eval")][-3:] == ["loss", "mae", "checkpoint_path"]


def test_a_worker_does_not_wait_for_others(tmp_path, monkeypatch):
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2", "localhost:3"], "ps": ["localhost:4"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    assert line.estimator(tmp_path).config.session_config.device_filters == ["/job:ps", "/job:worker/task:1"]


def test_a_cluster_needs_parameter_servers(tmp_path, monkeypatch):
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(ValueError, match="has no job ps"):
        train_and_evaluate(line.estimator(tmp_path), TrainSpec(line.input_fn, 1), EvalSpec(line.one_pass))
