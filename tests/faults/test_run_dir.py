"""The directory of a run that cannot be written to, or not any more, or is another process's; and a clock set back."""

from __future__ import annotations

import json
import os
import signal

import pytest
import tensorflow as tf
from faulty_runs import assert_same_end, assert_same_values
from killed_training import Scenario, train

import tpk
from tpk.checkpoint.checkpoint_directory import CheckpointDirectory
from tpk.checkpoint.files import newest_complete
from tpk.checkpoint.series import CheckpointSeries, Retention

pytestmark = pytest.mark.once


@pytest.fixture
def read_only(tmp_path):
    """A directory that nobody may write to, but for the superuser."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run_dir.chmod(0o555)
    yield run_dir
    run_dir.chmod(0o755)


def test_a_directory_that_is_read_only_is_refused_at_once(zygote, read_only):
    outcome = zygote.start(read_only, powerless=True).end()
    assert (outcome.status, outcome.said) == (1, [])
    assert f"tpk.errors.ConfigError: run_dir '{read_only}' cannot be written to" in outcome.log
    assert not list(read_only.iterdir())


def test_a_directory_that_becomes_read_only_ends_the_training(zygote, never_killed, tmp_path):
    whole, _ = never_killed()
    run_dir = tmp_path / "run"
    run = zygote.start(run_dir, powerless=True)
    run.wait_to_say("4")
    run_dir.chmod(0o555)
    try:
        outcome = run.end()
    finally:
        run_dir.chmod(0o755)
    assert outcome.status == 1, outcome.log[-3000:]
    assert "tpk.errors.CheckpointError" in outcome.log
    assert "Permission denied" in outcome.log
    assert str(run_dir) in outcome.log
    assert newest_complete(run_dir).step >= 2
    assert zygote.start(run_dir, powerless=True).end().status == 0
    assert_same_end(whole, run_dir)


def test_one_that_is_read_only_for_a_while_stops_nothing_if_that_is_wanted(zygote, never_killed, tmp_path):
    run_dir = tmp_path / "run"
    run = zygote.start(run_dir, powerless=True, on_failure="warn")
    run.wait_to_say("4")
    run_dir.chmod(0o555)
    try:
        run.wait_to_say("20")
    finally:
        run_dir.chmod(0o755)
    outcome = run.end()
    assert outcome.status == 0, outcome.log[-3000:]
    assert "The training continues" in outcome.log
    assert_same_values(never_killed()[0], run_dir)
    assert newest_complete(run_dir).step == 40


def test_of_two_processes_the_second_is_refused_with_the_pid_of_the_first(zygote, never_killed, tmp_path):
    run_dir = tmp_path / "run"
    first = zygote.start(run_dir)
    first.wait_to_say("began")
    os.kill(first.pid, signal.SIGSTOP)  # so that it is there for long enough
    second = zygote.start(run_dir).end()
    os.kill(first.pid, signal.SIGCONT)
    assert second.status == 1
    assert f"tpk.errors.ConfigError: run_dir '{run_dir}' is in use by process {first.pid} on " in second.log
    assert first.end().status == 0
    assert_same_end(never_killed()[0], run_dir)


def test_of_processes_that_start_at_once_one_trains(zygote, never_killed, tmp_path):
    run_dir = tmp_path / "run"
    outcomes = [run.end() for run in [zygote.start(run_dir) for _ in range(4)]]
    # Whoever comes when it is over finds it complete.
    trained = [outcome for outcome in outcomes if outcome.steps]
    assert len(trained) == 1
    assert trained[0].status == 0
    # "Another process" is one that has the lock, and has not written yet who it is.
    assert all("is in use by " in outcome.log for outcome in outcomes if outcome.status)
    assert_same_end(never_killed()[0], run_dir)


def test_a_dead_process_and_its_workers_do_not_keep_others_out(zygote, never_killed, tmp_path):
    scenario = {"input": "workers"}
    whole, _ = never_killed(**scenario)
    run_dir = tmp_path / "run"
    run = zygote.start(run_dir, **scenario)
    run.wait_to_say("10")
    run.send(signal.SIGKILL)
    assert run.end().status == -signal.SIGKILL
    assert f'"pid": {run.pid}' in (run_dir / ".lock").read_text()
    # At once: its workers have not even noticed.
    outcome = zygote.attempt(run_dir, None, **scenario)
    assert outcome.status == 0, outcome.log[-3000:]
    assert outcome.steps[0] > 10 - 2
    assert_same_end(whole, run_dir)
    zygote.assert_nothing_is_left()


# The clock.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a run of which nothing is special."""
    run_dir = tmp_path_factory.mktemp("whole")
    train(run_dir, Scenario())
    return run_dir


def test_the_newest_checkpoint_is_that_of_the_last_step_whatever_the_dates_of_the_files(tmp_path, whole):
    train(tmp_path / "run", Scenario(), max_epoch=3)
    for path in (tmp_path / "run").iterdir():
        step = path.name.partition("-")[2].partition(".")[0]
        date = 1e9 - 1e6 * int(step) if step.isdigit() else 1e9
        os.utime(path, (date, date))
    assert newest_complete(tmp_path / "run").step == 30
    train(tmp_path / "run", Scenario(), resume="must")
    assert_same_end(whole, tmp_path / "run")


def test_a_clock_that_is_set_back_changes_nothing_but_times(tmp_path, whole):
    """TensorBoard, too, shows the same: it goes by the names of files."""
    now = [2e9]

    def clock():
        now[0] -= 3600
        return now[0]

    for epochs in (2, 3, 4):
        monitors = [tpk.JSONWriter(clock=clock), tpk.TFEventWriter(clock=clock)]
        train(tmp_path / "run", Scenario(), monitors=monitors, max_epoch=epochs)
    assert_same_end(whole, tmp_path / "run")
    assert len(list((tmp_path / "run").glob("events.*"))) == 3


@pytest.mark.parametrize("set_to", [-1e6, 0.0, 1e9])
def test_a_clock_that_is_set_between_two_attempts_does_not_keep_or_remove_too_much(tmp_path, set_to):
    """The clock goes on an hour a checkpoint; before the third, it is set."""
    now = 0.0

    def clock():
        return now

    def series(state):
        retention = Retention(2, 2.5)
        directory = CheckpointDirectory(tmp_path)
        if state is not None:
            retention.load_state_dict(json.loads(json.dumps(state)), directory.names())
        it = CheckpointSeries(directory, retention, clock=clock)
        it.prepare()
        return it, retention

    state = None
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        variable = tf.compat.v1.get_variable("x", initializer=1.0)
        sess.run(variable.initializer)
        for step in range(1, 13):
            now = set_to if step == 3 else now + 3600
            it, retention = series(state)
            it.save(sess, [variable], step, {})
            it.close()
            state = retention.state_dict()
            assert newest_complete(tmp_path).step == step
            assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model-{step}")
            assert {f"model-{step}", f"model-{max(step - 1, 1)}"} <= set(it.directory.names())
    # Of some nine hours, in which three were due, two to four were kept for good.
    assert 2 <= len(retention.preserved) <= 4, retention.preserved
    assert it.directory.names() == retention.names
