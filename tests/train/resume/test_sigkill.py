"""Processes that are killed for real, while they train and write checkpoints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.once

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
import tpk
from tpk.dataflow import BatchData, DataFromList

class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 4], tf.float32, "x")]
    def build_graph(self, x):
        hidden = tpk.layers.dense(x, 300, activation=tf.nn.relu, name="hidden")
        cost = tf.reduce_mean((tpk.layers.dense(hidden, 1, name="out")[:, 0] - tf.reduce_sum(x, 1)) ** 2, name="cost")
        tpk.add_moving_summary(cost)
        return cost
    def optimizer(self):
        return tf.compat.v1.train.AdamOptimizer(0.01)

class Say(tpk.Callback):
    def trigger_step(self, trainer):
        if trainer.global_step % 5 == 0:
            trainer.monitors.put_scalar("step", trainer.global_step)
        print(trainer.global_step, flush=True)

rows = [[row] for row in np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)]
config = tpk.TrainConfig(
    model=Model(), data=tpk.QueueInput(BatchData(DataFromList(rows, shuffle=True), 8)),
    callbacks=[Say(), tpk.ModelSaver(when=tpk.Every(steps=2), max_to_keep=3, asynchronous=True)],
    extra_callbacks=["MovingAverageSummary", "MergeAllSummaries"],
    monitors=["JSONWriter"], steps_per_epoch=20, max_epoch=3, run_dir=sys.argv[1], resume="auto", seed=1,
)
tpk.launch_train_with_config(config, "single")
"""


def train(run_dir, kill_at=None):
    """Train to the end, or until the process says that it has made the step `kill_at`; return the steps it made."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", SCRIPT, str(run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    steps = []
    with process.stdout, process.stderr:
        try:
            for line in process.stdout:
                steps.append(int(line))
                if kill_at is not None and steps[-1] >= kill_at:
                    break
            if kill_at is None:
                process.wait(timeout=300)
        finally:
            process.kill()
            process.wait(timeout=20)
        steps += map(int, process.stdout)  # Those made before the signal came.
        errors = process.stderr.read()
    assert process.returncode == (0 if kill_at is None else -signal.SIGKILL), errors
    return steps


def stats(run_dir):
    lines = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text().splitlines()]
    timed = ("time", "steps_per_second", "examples_per_second")
    return [{name: value for name, value in line.items() if name not in timed} for line in lines]


# Each process imports TensorFlow, which takes long where others do, too.
@pytest.mark.timeout(1200)
def test_a_process_that_is_killed_twice_ends_where_one_that_never_was_does(tmp_path):
    train(tmp_path / "whole")
    first, second, third = (train(tmp_path / "killed", kill_at) for kill_at in (13, 44, None))
    assert first[0] == 1 < second[0] <= first[-1] + 1
    assert second[0] < third[0] <= second[-1] + 1
    assert stats(tmp_path / "whole") == stats(tmp_path / "killed")
    whole, killed = (tf.train.load_checkpoint(str(tmp_path / name)) for name in ("whole", "killed"))
    assert whole.get_variable_to_shape_map() == killed.get_variable_to_shape_map()
    for name in whole.get_variable_to_shape_map():
        np.testing.assert_array_equal(whole.get_tensor(name), killed.get_tensor(name), err_msg=name)
