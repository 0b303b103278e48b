"""A chief, workers, a parameter server and an evaluator, each in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import line
import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.timeout(900)

PROGRAM = """
import sys, line, tpk_estimator as e
e.train_and_evaluate(
    line.estimator(sys.argv[1], save_checkpoints_steps=30),
    e.TrainSpec(line.input_fn, 60),
    e.EvalSpec(line.one_pass, start_delay_secs=0, throttle_secs=1),
)
"""

WITHOUT_PARAMETER_SERVERS = """
import sys, line, tensorflow as tf, test_cluster, tpk_estimator as e
devices = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]) if sys.argv[2] == "2" else None
estimator = line.estimator(sys.argv[1], save_checkpoints_steps=5, save_summary_steps=1, train_distribute=devices)
for last_step in map(int, sys.argv[3:]):
    e.train_and_evaluate(estimator, e.TrainSpec(test_cluster.sharded, last_step), e.EvalSpec(line.one_pass))
"""


def sharded(input_context):
    data = batches(line.BATCH // 2)
    return data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)


def batches(size):
    return tf.data.Dataset.from_tensor_slices(({"x": line.X}, line.Y)).repeat().batch(size)


def free_address():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return f"localhost:{taken.getsockname()[1]}"


@pytest.fixture
def run_cluster(tmp_path):
    """Run a program in each task of a cluster; parameter servers are ended when the others are done."""

    def run(program, cluster, *others, arguments=()):
        processes = {}
        try:
            tasks = [(job, index) for job, addresses in cluster.items() for index in range(len(addresses))]
            for job, index in (*tasks, *others):
                config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                with (tmp_path / f"{job}{index}.txt").open("w") as output:
                    processes[job, index] = subprocess.Popen(
                        [sys.executable, "-c", program, str(tmp_path / "model"), *arguments],
                        cwd=Path(__file__).parent,
                        env={**os.environ, "TF_CONFIG": config},
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
            for (job, index), process in processes.items():
                if job != "ps":
                    assert process.wait(400) == 0, (tmp_path / f"{job}{index}.txt").read_text()[-4000:]
        finally:
            for process in processes.values():
                process.kill()
                process.wait(30)
        return tmp_path / "model"

    return run


def test_workers_share_the_variables_on_parameter_servers(run_cluster):
    cluster = {job: [free_address()] for job in ("chief", "worker", "ps")}
    directory = run_cluster(PROGRAM, cluster, ("evaluator", 0))
    path = tf.train.latest_checkpoint(directory)
    # A worker that reads the step before the last updates of the other one takes one more step.
    assert 60 <= tf.train.load_variable(path, "global_step") <= 63
    assert [tag for _, tag, _ in line.events_in(directory / "eval")][-3:] == ["loss", "mae", "checkpoint_path"]


@pytest.mark.parametrize(("devices", "last_steps"), [(1, [9, 14]), (2, [9])])
def test_workers_without_parameter_servers_train_as_one_process(devices, last_steps, run_cluster, tmp_path):
    addresses = [free_address(), free_address()]
    cluster = {"chief": addresses[:1], "worker": addresses[1:]} if devices == 1 else {"worker": addresses}
    directory = run_cluster(WITHOUT_PARAMETER_SERVERS, cluster, arguments=[str(devices), *map(str, last_steps)])
    alone = line.estimator(tmp_path / "alone", save_checkpoints_steps=5, save_summary_steps=1)
    for last_step in last_steps:
        alone.train(lambda: batches(line.BATCH * devices), max_steps=last_step)
        found, expected = (line.values_in(f"{each}/model.ckpt-{last_step}") for each in (directory, alone.model_dir))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)
    losses = [
        [value for _, tag, value in line.events_in(each) if tag == "loss"]
        for each in (directory, Path(alone.model_dir))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_worker_does_not_wait_for_others(tmp_path, monkeypatch):
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2", "localhost:3"], "ps": ["localhost:4"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    assert line.estimator(tmp_path).config.session_config.device_filters == ["/job:ps", "/job:worker/task:1"]
