"""Signals: the step is finished, a checkpoint written, and the status is the conventional one."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.train_op = v1.get_variable("counter", initializer=0).assign_add(1, read_value=False)


class Signal(tpk.Callback):
    """Sends this process a signal in a hook, at a global step."""

    def __init__(self, signum, hook="before_run", step=6):
        self.signum, self.hook, self.step = signum, hook, step

    def hook_implementations(self):
        def send():
            if self.global_step == self.step:
                signal.raise_signal(self.signum)

        return {self.hook: send, "after_train": self.finish}

    def finish(self):
        self.finished_at = self.global_step


def state(run_dir, step):
    return json.loads((run_dir / f"state-{step}.json").read_text())["state"]


def handlers():
    return [signal.getsignal(signum) for signum in tpk.Preempted.SIGNALS]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("callbacks", [[], ["ModelSaver"], [tpk.ModelSaver(asynchronous=True)]], ids=len)
def test_the_step_is_finished_and_saved_and_the_status_is_conventional(tmp_path, signum, callbacks):
    before, sender = handlers(), Signal(signum)
    with pytest.raises(tpk.errors.Preempted) as ended:
        Counting().train(callbacks=[sender, *callbacks], steps_per_epoch=5, max_epoch=9, run_dir=tmp_path)
    assert (ended.value.code, ended.value.signum) == (128 + signum, signum)
    assert isinstance(ended.value, SystemExit)
    assert sender.finished_at == 7
    assert state(tmp_path, 7)["progress"] == {"epoch_num": 2, "local_step": 1, "global_step": 7}
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("counter") == 7
    assert handlers() == before

    trainer = Counting()
    trainer.train(callbacks=["ModelSaver"], steps_per_epoch=5, max_epoch=2, run_dir=tmp_path, resume="must")
    assert trainer.global_step == 10


def test_ctrl_c_leaves_a_resumable_run_and_is_raised(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, logger="tpk")
    sender = Signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as raised:
        Counting().train(callbacks=[sender], steps_per_epoch=5, max_epoch=9, run_dir=tmp_path)
    assert sender.finished_at == 7
    assert state(tmp_path, 7)["epoch_is_over"] is False
    line = (
        f"SIGINT ended the training in epoch 2, after 2 of its 5 steps (7 in all); saved {tmp_path}/model-7; to "
        f'resume from it: run_dir="{tmp_path}", resume="auto"'
    )
    # The log file has it, too, but the terminal has it once.
    assert [record.levelname for record in caplog.records if record.message == line] == ["DEBUG"]
    assert max(record.levelno for record in caplog.records) == logging.INFO
    assert str(raised.value) == line
    # What a notebook shows in place of a traceback; and only this very class ends a process by the signal.
    assert raised.value._render_traceback_() == [f"KeyboardInterrupt: {line}"]
    assert type(raised.value) is KeyboardInterrupt
    # The line would be hidden under the frames of the loop.
    assert len(traceback.extract_tb(raised.value.__traceback__)) == 2


def test_the_way_to_go_on_is_that_of_the_script(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sys, "argv", ["train.py", f"--run-dir={tmp_path}"])
    with pytest.raises(KeyboardInterrupt, match=rf"to resume from it: --run-dir {tmp_path} --resume auto"):
        Counting().train(callbacks=[Signal(signal.SIGINT)], steps_per_epoch=5, max_epoch=9, run_dir=tmp_path)


def test_a_signal_in_the_last_hooks_of_an_epoch_ends_with_the_epoch(tmp_path):
    sender = Signal(signal.SIGTERM, "trigger_epoch", 5)
    with pytest.raises(tpk.errors.Preempted):
        Counting().train(callbacks=[sender], steps_per_epoch=5, max_epoch=9, run_dir=tmp_path)
    assert state(tmp_path, 5)["epoch_is_over"] is True


@pytest.mark.parametrize("step", [0, 5])
def test_a_signal_before_the_first_step_of_an_epoch_leaves_a_resumable_run(tmp_path, step):
    with pytest.raises(tpk.errors.Preempted):
        sender = Signal(signal.SIGTERM, "before_epoch", step)
        Counting().train(callbacks=["ModelSaver", sender], steps_per_epoch=5, max_epoch=3, run_dir=tmp_path)

    resumed = Counting()
    resumed.train(callbacks=["ModelSaver"], steps_per_epoch=5, max_epoch=3, run_dir=tmp_path, resume="must")
    assert resumed.loop.starting_epoch == step // 5 + 1
    assert resumed.global_step == 15
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("counter") == 15


def test_a_saver_that_has_just_saved_does_not_save_again(tmp_path, caplog):
    caplog.set_level("DEBUG", logger="tpk")
    with pytest.raises(tpk.errors.Preempted):
        sender = Signal(signal.SIGTERM, "trigger_epoch", 5)
        Counting().train(callbacks=["ModelSaver", sender], steps_per_epoch=5, max_epoch=9, run_dir=tmp_path)
    assert sum(message.startswith(f"saved {tmp_path}") for message in caplog.messages) == 1


def test_without_a_place_for_a_checkpoint_it_ends_all_the_same():
    sender = Signal(signal.SIGTERM)
    with pytest.raises(tpk.errors.Preempted):
        Counting().train(callbacks=[sender], steps_per_epoch=5, max_epoch=9)
    assert sender.finished_at == 7


def test_a_signal_that_comes_at_the_very_end_is_not_lost(tmp_path):
    class Late(tpk.Callback):
        def after_train(self, trainer):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(tpk.errors.Preempted):
        Counting().train(callbacks=[Late()], steps_per_epoch=1, max_epoch=1)


def test_a_handler_of_the_program_stays(tmp_path):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *arguments: seen.append(1))
    try:
        Counting().train(callbacks=[Signal(signal.SIGUSR1)], steps_per_epoch=5, max_epoch=2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


def test_preemptions_do_not_pile_up_checkpoints(tmp_path):
    for step in (2, 4, 6, 8):
        with pytest.raises(tpk.errors.Preempted):
            sender = Signal(signal.SIGTERM, step=step)
            Counting().train(callbacks=[sender], steps_per_epoch=5, max_epoch=9, run_dir=tmp_path, resume="auto")
    assert sorted(path.name for path in tmp_path.glob("state-*")) == ["state-7.json", "state-9.json"]


def test_a_training_in_another_thread_leaves_signals_alone():
    before, seen = handlers(), []

    class Look(tpk.Callback):
        def trigger_step(self, trainer):
            seen.append(handlers())

    def train():
        with tf.Graph().as_default():
            Counting().train(callbacks=[Look()], steps_per_epoch=1, max_epoch=1)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(60)
    assert seen == [before]


def test_a_forked_worker_ends_by_signals_as_any_process():
    statuses = []

    class Fork(tpk.Callback):
        def trigger_step(self, trainer):
            pid = os.fork()
            if not pid:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(3)
            statuses.append(os.waitpid(pid, 0)[1])

    class Nothing(tpk.Trainer):
        def run_step(self):
            pass

    Nothing().train(callbacks=[Fork()], steps_per_epoch=1, max_epoch=1)
    assert [os.WTERMSIG(status) for status in statuses] == [signal.SIGTERM]


SCRIPT = """
import sys, threading
import numpy as np
import tensorflow as tf
import tpk
from tpk.dataflow import MultiProcessRunner

class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 1], tf.float32, "x")]
    def build_graph(self, x):
        return tf.reduce_mean(tpk.layers.dense(x, 1) ** 2, name="cost")
    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.01)

class Say(tpk.Callback):
    def trigger_step(self, trainer):
        if trainer.global_step == 5:
            print("five", flush=True)
            if sys.argv[2] == "hangs":
                while not trainer.loop.stop.is_set():
                    pass
                print("stop requested", flush=True)
                threading.Event().wait()

def numbers():
    while True:
        yield [np.ones([2, 1], np.float32)]

flow = MultiProcessRunner(tpk.DataFromGenerator(numbers), 1) if sys.argv[2] == "workers" else numbers()
config = tpk.TrainConfig(
    model=Model(), data=tpk.QueueInput(flow), callbacks=[Say()], steps_per_epoch=10**6,
    run_dir=sys.argv[1], resume="auto", seed=1,
)
tpk.launch_train_with_config(config, "single")
"""


def start(run_dir, kind):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", SCRIPT, str(run_dir), kind]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stdout.readline() == "five\n", process.communicate(timeout=60)
    return process


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_process_with_bar_and_workers_ends_with_its_status(tmp_path, signum, status):
    process = start(tmp_path, "workers")
    try:
        # As a terminal, and a batch system, do: to all processes at once.
        os.killpg(process.pid, signum)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(timeout=20)
    assert process.returncode == status, errors
    (line,) = [line for line in errors.splitlines() if f"{signal.Signals(signum).name} ended" in line]
    assert f"saved {tmp_path}/model-" in line
    assert line.endswith(f'to resume from it: run_dir="{tmp_path}", resume="auto"')
    assert "ERROR: " not in errors
    (path,) = tmp_path.glob("state-*.json")
    assert int(path.stem.removeprefix("state-")) >= 5
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_second_signal_ends_a_process_whose_callback_hangs(tmp_path):
    process = start(tmp_path, "hangs")
    try:
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stop requested\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(timeout=20)
    assert process.returncode == -signal.SIGTERM
    assert not list(tmp_path.glob("state-*"))
