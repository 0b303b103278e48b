from __future__ import annotations

import errno
import json
import logging
import os
import socket
import subprocess
import sys

import pytest
import tensorflow as tf

import tpk
from tpk.train.run import lock as module
from tpk.train.run.lock import LOCK_NAME, owner_of, run_lock

OTHER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
os.write(descriptor, sys.argv[2].replace("PID", str(os.getpid())).encode())
print("locked", flush=True)
sys.stdin.read()
"""


class Nothing(tpk.Trainer):
    def run_step(self):
        pass


@pytest.fixture
def other_process(tmp_path):
    """A function that has another process lock the directory, and leave this text in the file."""
    started = []

    def start(text):
        path = tmp_path / LOCK_NAME
        command = [sys.executable, "-c", OTHER, str(path), text]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "locked\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=20)


def owner(pid="PID", host=None):
    text = json.dumps({"pid": 0, "host": host or socket.gethostname()})
    return text.replace('"pid": 0', f'"pid": {pid}')


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=20)
    return process.pid


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path, other_process):
    process = other_process(owner())
    with pytest.raises(tpk.ConfigError, match=rf"in use by process {process.pid} on {socket.gethostname()}"):
        Nothing().train(steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)
    assert not (tmp_path / "config.json").exists()
    process.kill()
    process.wait(timeout=20)
    Nothing().train(steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)
    assert not (tmp_path / LOCK_NAME).exists()


def test_a_process_that_has_not_written_its_pid_yet_is_respected(tmp_path, other_process):
    other_process("")
    with pytest.raises(tpk.ConfigError, match="in use by another process"), run_lock(tmp_path):
        pass


def test_two_trainings_of_one_process_are_two(tmp_path):
    with (
        run_lock(tmp_path),
        pytest.raises(tpk.ConfigError, match=f"process {os.getpid()} "),
        run_lock(tmp_path),
    ):
        pass
    with run_lock(tmp_path):
        assert json.loads((tmp_path / LOCK_NAME).read_text()) == {"pid": os.getpid(), "host": socket.gethostname()}


def test_a_lock_of_a_dead_process_is_taken_over(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    pid = dead_pid()
    (tmp_path / LOCK_NAME).write_text(owner(pid))
    with run_lock(tmp_path):
        assert f"process {pid} is dead" in caplog.text


def test_a_lock_that_a_worker_of_a_dead_process_holds_is_taken_over(tmp_path, other_process, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    other_process(owner(dead_pid()))
    with run_lock(tmp_path):
        assert "has left a worker behind" in caplog.text


@pytest.mark.parametrize(
    ("content", "refused"),
    [("", False), ("{", False), (owner(os.getppid()), True), (owner(1, "elsewhere"), True)],
    ids=["empty", "torn", "alive", "elsewhere"],
)
def test_without_locks_of_the_file_system_the_pid_decides(tmp_path, monkeypatch, content, refused):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", no_locks)
    (tmp_path / LOCK_NAME).write_text(content)
    if refused:
        with pytest.raises(tpk.ConfigError, match="in use by process"), run_lock(tmp_path):
            pass
    else:
        with run_lock(tmp_path):
            pass


@pytest.mark.parametrize("there", [True, False])
def test_a_lock_that_is_a_link_is_refused_and_not_followed(tmp_path, there):
    run_dir, target = tmp_path / "run", tmp_path / "target"
    run_dir.mkdir()
    (run_dir / LOCK_NAME).symlink_to(target)
    if there:
        target.write_text("mine")
    with pytest.raises(tpk.ConfigError, match=r"\.lock' is a symbolic link.*Remove it"):
        Nothing().train(steps_per_epoch=1, max_epoch=1, run_dir=run_dir)
    assert target.exists() is there and (not there or target.read_text() == "mine")


def test_a_system_without_locks_goes_without(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "fcntl", None)
    with run_lock(tmp_path):
        assert not list(tmp_path.iterdir())


def test_a_file_system_that_is_read_only_is_an_error(tmp_path, monkeypatch):
    def read_only(path, *arguments):
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(module.os, "open", read_only)
    with pytest.raises(tpk.ConfigError, match=r"cannot be written to: .*Read-only file system.*Name another"):
        Nothing().train(steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)


def test_the_lock_is_released_however_the_training_ends(tmp_path):
    class Broken(Nothing):
        def run_step(self):
            raise ValueError

    for resume in ("never", "auto"):
        with pytest.raises(ValueError), tf.Graph().as_default():
            Broken().train(steps_per_epoch=1, max_epoch=1, run_dir=tmp_path, resume=resume)
    assert not (tmp_path / LOCK_NAME).exists()


def test_others_can_ask_who_trains_there(tmp_path, other_process):
    assert owner_of(tmp_path) is None
    with run_lock(tmp_path):
        assert owner_of(tmp_path) == {"pid": os.getpid(), "host": socket.gethostname()}
        assert owner_of(tmp_path)["pid"] == os.getpid()
    assert owner_of(tmp_path) is None
    process = other_process(owner())
    assert owner_of(tmp_path)["pid"] == process.pid
    process.kill()
    process.wait(timeout=20)
    # It has left the file, but not the lock.
    assert (tmp_path / LOCK_NAME).exists() and owner_of(tmp_path) is None


def test_a_worker_that_outlives_its_training_trains_nothing(tmp_path, other_process):
    other_process(owner(dead_pid()))
    assert owner_of(tmp_path) is None


def test_who_owns_a_lock_is_told_by_the_file_where_there_are_no_locks(tmp_path, monkeypatch):
    (tmp_path / LOCK_NAME).write_text(owner(os.getpid()))
    assert owner_of(tmp_path) is None

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", refuse)
    assert owner_of(tmp_path)["pid"] == os.getpid()
