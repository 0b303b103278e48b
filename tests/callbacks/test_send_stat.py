from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil
import pytest

import tpk
from tpk.errors import ConfigError


class Report(tpk.Callback):
    """Reports a statistic at the end of each epoch, from the second on; after those that stand before it."""

    def __init__(self, name="validation.error/mean", first_epoch=1):
        self.name, self.first_epoch = name, first_epoch

    def trigger_epoch(self, trainer):
        if self.epoch_num >= self.first_epoch:
            trainer.monitors.put_scalar(self.name, self.epoch_num / 8)


def records(caplog, level):
    return [each.getMessage() for each in caplog.records if each.levelname == level]


def test_the_command_has_the_values_of_each_epoch(run_steps, tmp_path):
    file = tmp_path / "sent"
    command = f"echo '{{{{{{epoch_num}}}}}} {{global_step}} {{validation.error/mean:.3f}}' >> {file}"
    run_steps([tpk.SendStat(command), Report()], 3, epochs=2)
    assert file.read_text() == "{1} 3 0.125\n{2} 6 0.250\n"


def test_it_can_be_triggered_at_other_times(run_steps, tmp_path):
    file = tmp_path / "sent"
    send = tpk.SendStat(f"echo {{validation.error/mean}} >> {file}", "validation.error/mean")
    run_steps([tpk.PeriodicTrigger(send, every_k_epochs=2), Report()], 1, epochs=4)
    assert file.read_text() == "0.25\n0.5\n"


def test_a_command_that_fails_is_logged_with_what_it_has_written(run_steps, caplog):
    trainer = run_steps([tpk.SendStat("echo no route >&2; exit 7 # {x}"), Report("x")], 1, epochs=2)
    assert trainer.global_step == 2
    assert records(caplog, "ERROR") == [
        f"SendStat: 'echo no route >&2; exit 7 # {value}' failed with exit code 7: no route" for value in (0.125, 0.25)
    ]


def test_a_command_that_hangs_is_killed_with_what_it_has_started(run_steps, tmp_path, caplog):
    pids = tmp_path / "pids"
    command = f"sleep 600 & echo $! $$ > {pids}; echo waiting; wait # {{x}}"
    run_steps([tpk.SendStat(command, timeout=2.0), Report("x")], 1)
    (error,) = records(caplog, "ERROR")
    assert "took longer than 2 s, and was killed: waiting" in error
    for pid in pids.read_text().split():
        # It is killed, and ends when it gets the processor.
        while not is_over(int(pid)):
            threading.Event().wait(0.01)


def is_over(pid):
    """Whether a process has ended; what init has not taken away yet is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_command_that_leaves_something_in_the_background_is_not_waited_for(run_steps, tmp_path):
    pid = tmp_path / "pid"
    run_steps([tpk.SendStat(f"sleep 600 & echo $! > {pid} # {{x}}", timeout=60), Report("x")], 1)
    os.kill(int(pid.read_text()), 9)


def test_nothing_is_sent_before_there_is_a_value_which_is_said_once(run_steps, tmp_path, caplog):
    file = tmp_path / "sent"
    run_steps([tpk.SendStat(f"echo {{x}} >> {file}"), Report("y"), Report("x", first_epoch=3)], 1, epochs=3)
    assert Path(file).read_text() == "0.375\n"
    assert records(caplog, "WARNING") == ["SendStat sends nothing: x was not reported yet. There is y."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("echo {x} {y}", ["x"]), r"it mentions y, which is not among names=\['x'\]"),
        (("echo",), "it mentions no statistic.*in braces"),
        (("echo {epoch_num}",), "it mentions no statistic"),
        (("echo {x",), "it is formatted as by str.format, which says: expected '}' before end of string"),
        (("echo {x:y}",), "it is formatted as by str.format, which says: Unknown format code 'y'"),
        (("echo {}",), "an empty pair of braces names no statistic"),
        ((["echo", "{x}"],), "expected a command as text"),
        (("echo {x}", None, 0), r"SendStat\(timeout=0\): expected a positive number of seconds"),
    ],
)
def test_a_command_that_makes_no_sense_is_an_error(arguments, message):
    with pytest.raises(ConfigError, match=message):
        tpk.SendStat(*arguments)
