"""That the harness of the other tests here tells the truth."""

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


def test_each_process_has_a_task_and_returns_what_its_function_returns(launch):
    def whoami(base):
        import os

        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return base + np.arange(2) + task["index"], task["type"], "tensorflow" in sys.modules

    running = launch(whoami, workers=2, servers=1, args=(10,))
    values = running.returned()
    assert [value[0].tolist() for value in values] == [[10, 11], [11, 12]]
    assert [value[1:] for value in values] == [("worker", True)] * 2
    assert running.servers[0].wait().returned[1] == "ps"


def sum_over_workers(cluster, rank):
    """One all-reduce by the servers of TensorFlow, without anything of tpk."""
    tf1 = tf.compat.v1
    config = tf1.ConfigProto()
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = tf.distribute.Server(cluster, job_name="worker", task_index=rank, config=config)
    with tf.Graph().as_default(), tf.device(f"/job:worker/task:{rank}/cpu:0"):
        total = tf.raw_ops.CollectiveReduce(
            input=tf.constant([1.0 + rank, 2.0]),
            group_size=2,
            group_key=1,
            instance_key=1,
            merge_op="Add",
            final_op="Id",
            subdiv_offsets=[0],
        )
        with tf1.Session(server.target, config=config) as sess:
            return sess.run(total).tolist()


def test_servers_and_collectives_of_tensorflow_work_in_forked_processes(launch):
    def train():
        config = json.loads(os.environ["TF_CONFIG"])
        return sum_over_workers(config["cluster"], config["task"]["index"])

    assert launch(train).returned() == [[3.0, 4.0]] * 2


def test_a_script_is_run_in_the_directory_of_all(launch):
    script = "import os\nprint(__name__, flush=True)\nreturned = os.listdir()"
    running = launch(script, workers=1)
    (outcome,) = running.wait()
    assert outcome.stdout == "__main__\n"
    assert "script.py" in outcome.returned


def test_parameter_servers_that_end_later_are_waited_for(launch, tmp_path):
    def end_one_after_the_other(pipe):
        if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
            os.open(pipe, os.O_WRONLY)  # It is closed when the worker ends.
            return "first"
        with open(pipe) as file:
            return file.read()

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    running = launch(end_one_after_the_other, workers=1, servers=1, args=(pipe,))
    assert running.returned() == ["first"]
    assert not running.servers[0].is_running


def test_a_parameter_server_that_fails_is_told(launch):
    def fail():
        if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "ps":
            raise RuntimeError("on purpose")

    with pytest.raises(AssertionError, match=r"(?s)exit statuses \[1\].*RuntimeError: on purpose"):
        launch(fail, workers=1, servers=1).returned()


def test_an_error_is_reported_with_all_output(launch):
    def fail():
        print("some words")
        raise RuntimeError("on purpose")

    with pytest.raises(AssertionError, match=r"(?s)exit statuses \[1\].*some words.*RuntimeError: on purpose"):
        launch(fail, workers=1).returned()


def test_a_process_can_be_brought_to_a_moment_and_killed(launch):
    def listen():
        print("ready")
        print("heard", input())
        input()

    running = launch(listen)
    for worker in running.workers:
        worker.wait_for("ready")
        worker.tell("you")
        worker.wait_for("heard you")
    running.workers[1].send(signal.SIGKILL)
    running.workers[0].tell("end")
    assert [outcome.status for outcome in running.wait()] == [0, -signal.SIGKILL]
    with pytest.raises(AssertionError, match="rank 0 never wrote 'more'"):
        running.workers[0].wait_for("more")


def test_a_worker_may_come_later_and_finds_its_port(launch):
    def serve():
        import socket

        config = json.loads(os.environ["TF_CONFIG"])
        host, port = config["cluster"]["worker"][config["task"]["index"]].split(":")
        with socket.create_server((host, int(port))) as server:
            return server.getsockname()[1]

    running = launch(serve, start=[1])
    assert [outcome.status for outcome in running.wait()] == [0]
    running.workers[0].start()
    ports = [int(address.split(":")[1]) for address in running.cluster.workers]
    assert running.returned() == ports


def test_what_hangs_is_killed_and_its_stack_is_shown(launch):
    def hang():
        input()

    with pytest.raises(AssertionError, match=r"(?s)rank 0 was killed after .*Fatal Python error: Aborted.* in hang"):
        launch(hang, workers=1, timeout=2).wait()


def test_what_a_test_leaves_behind_is_killed_and_told(zygote, tmp_path):
    from launching import Launcher

    def leave():
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL).pid

    def stay():
        subprocess.Popen(["sleep", "1000"])
        input()

    for function, waits in ((leave, True), (stay, False)):
        launcher = Launcher(zygote, tmp_path / function.__name__)
        (tmp_path / function.__name__).mkdir()
        running = launcher(function, workers=1)
        if waits:
            # Its child ends with its pipe, which counts as nothing left behind.
            running.returned()
            launcher.close()
        else:
            with pytest.raises(AssertionError, match="rank 0 still ran"):
                launcher.close()
