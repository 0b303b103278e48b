from __future__ import annotations

import os
from pathlib import Path

import pytest

import tpk
from tpk.errors import ConfigError


class Report(tpk.Callback):
    """Reports a statistic at the end of each epoch, from the second on; after those that stand before it."""

    def __init__(self, name="validation_error/mean", first_epoch=1):
        self.name, self.first_epoch = name, first_epoch

    def trigger_epoch(self, trainer):
        if self.epoch_num >= self.first_epoch:
            trainer.monitors.put_scalar(self.name, self.epoch_num / 8)


def records(caplog, level):
    return [each.getMessage() for each in caplog.records if each.levelname == level]


def test_the_command_has_the_values_of_each_epoch(run_steps, tmp_path):
    file = tmp_path / "sent"
    command = f"echo '{{{{{{epoch_num}}}}}} {{global_step}} {{validation_error/mean:.3f}}' >> {file}"
    run_steps([tpk.SendStat(command), Report()], 3, epochs=2)
    assert file.read_text() == "{1} 3 0.125\n{2} 6 0.250\n"


def test_it_can_be_triggered_at_other_times(run_steps, tmp_path):
    file = tmp_path / "sent"
    send = tpk.SendStat(f"echo {{validation_error/mean}} >> {file}", "validation_error/mean")
    run_steps([tpk.PeriodicTrigger(send, every_k_epochs=2), Report()], 1, epochs=4)
    assert file.read_text() == "0.25\n0.5\n"


def test_a_command_that_fails_is_logged(run_steps, caplog, capfd):
    trainer = run_steps([tpk.SendStat("echo no route >&2; exit 7 # {x}"), Report("x")], 1, epochs=2)
    assert trainer.global_step == 2
    assert records(caplog, "ERROR") == [
        f"SendStat: 'echo no route >&2; exit 7 # {value}' failed with exit code 7" for value in (0.125, 0.25)
    ]
    assert "no route" in capfd.readouterr().err


def test_a_command_that_hangs_is_killed(run_steps, caplog, monkeypatch):
    monkeypatch.setattr("tpk.callbacks.background._SECONDS_TO_RUN", 1)
    run_steps([tpk.SendStat("exec sleep 600 # {x}"), Report("x")], 1)
    (error,) = records(caplog, "ERROR")
    assert "took longer than 1 s, and was killed" in error


def test_a_command_in_the_background_is_not_waited_for(run_steps, tmp_path):
    pid = tmp_path / "pid"
    run_steps([tpk.SendStat(f"sleep 600 & echo $! > {pid} # {{x}}"), Report("x")], 1)
    os.kill(int(pid.read_text()), 9)


def test_nothing_is_sent_before_there_is_a_value_which_is_said_once(run_steps, tmp_path, caplog):
    file = tmp_path / "sent"
    run_steps([tpk.SendStat(f"echo {{x}} >> {file}"), Report("y"), Report("x", first_epoch=3)], 1, epochs=3)
    assert Path(file).read_text() == "0.375\n"
    assert records(caplog, "WARNING") == ["SendStat waits for x to be reported; known statistics: y"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("echo {x} {y}", ["x"]), r"cannot format 'echo {x} {y}' with the statistics \['x'\]: KeyError: 'y'"),
        (("echo",), "has no statistic.*in braces"),
        (("echo {epoch_num}",), "has no statistic"),
        (("echo {x",), "cannot format .*: expected '}' before end of string"),
        (("echo {x:y}",), "cannot format .*: Unknown format code 'y'"),
        (("echo {}",), "cannot format .*IndexError"),
        ((["echo", "{x}"],), "cannot format"),
    ],
)
def test_a_command_that_makes_no_sense_is_an_error(arguments, message):
    with pytest.raises(ConfigError, match=message):
        tpk.SendStat(*arguments)
