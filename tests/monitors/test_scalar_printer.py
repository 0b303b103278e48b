from __future__ import annotations

import logging

import pytest

from tpk.errors import ConfigError
from tpk.monitors import ScalarPrinter


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "tpk.monitors.scalar_printer")
    # Each summary begins with a line of its own.
    return lambda: [line.strip() for record in caplog.records for line in record.getMessage().split("\n")[1:]]


def test_the_latest_values_are_logged_sorted_and_aligned(trainer, lines):
    printer = ScalarPrinter()
    for name, value in {"val-error": 0.25, "cost": 0.123456789, "queue": 50, "nan": float("nan")}.items():
        printer.process_scalar(name, 9)
        printer.process_scalar(name, value)
    printer.trigger_epoch(trainer)
    assert lines() == ["cost       0.12346", "nan        nan", "queue      50", "val-error  0.25"]


def test_a_summary_says_when(trainer, caplog):
    caplog.set_level(logging.INFO, "tpk.monitors.scalar_printer")
    printer = ScalarPrinter()
    printer.process_scalar("cost", 1)
    trainer.epoch_num, trainer.global_step = 3, 70
    printer.trigger_epoch(trainer)
    assert caplog.messages == ["epoch 3, step 70:\n  cost  1"]


def test_each_epoch_logs_what_is_new(trainer, lines):
    printer = ScalarPrinter()
    printer.process_scalar("a", 1)
    printer.trigger_epoch(trainer)
    printer.process_scalar("b", 2)
    printer.trigger_epoch(trainer)
    printer.trigger_epoch(trainer)
    assert lines() == ["a  1", "b  2"]


def test_what_comes_after_the_last_epoch_is_logged_at_the_end(trainer, lines):
    printer = ScalarPrinter()
    printer.process_scalar("a", 1)
    printer.after_train(trainer)
    assert lines() == ["a  1"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["cost", "train-error", "val-error"]),
        ({"whitelist": [".*-error"]}, ["train-error", "val-error"]),
        ({"blacklist": ["val-.*", "error"]}, ["cost", "train-error"]),
        ({"whitelist": [".*-error"], "blacklist": ["val-.*"]}, ["train-error"]),
        ({"whitelist": []}, []),
    ],
)
def test_lists_of_names(trainer, lines, options, expected):
    printer = ScalarPrinter(**options)
    for name in ("cost", "train-error", "val-error"):
        printer.process_scalar(name, 1)
    printer.trigger_epoch(trainer)
    assert [line.split()[0] for line in lines()] == expected


def test_steps_are_logged_if_asked_for(trainer, lines):
    printer = ScalarPrinter(enable_step=True)
    for trainer.local_step in (9, 10):
        printer.process_scalar("step", trainer.local_step)
        printer.trigger_step(trainer)
    assert lines() == ["step  9"], "the last step of an epoch comes with the epoch"
    printer.trigger_epoch(trainer)
    assert lines() == ["step  9", "step  10"]


def test_without_epochs_the_last_step_is_logged_as_a_step(trainer, lines):
    printer = ScalarPrinter(enable_step=True, enable_epoch=False)
    trainer.local_step = trainer.steps_per_epoch
    printer.process_scalar("step", 10)
    printer.trigger_step(trainer)
    assert lines() == ["step  10"]


def test_steps_cost_nothing_unless_asked_for():
    assert set(ScalarPrinter().hook_implementations()) == {"trigger_epoch", "after_train"}
    assert set(ScalarPrinter(enable_step=True, enable_epoch=False).hook_implementations()) == {
        "trigger_step",
        "after_train",
    }


def test_a_wrong_expression_is_an_error():
    with pytest.raises(ConfigError, match=r"blacklist: '\(' is no regular expression"):
        ScalarPrinter(blacklist=["("])
    with pytest.raises(ConfigError, match=r"write whitelist=\['cost'\]"):
        ScalarPrinter(whitelist="cost")
