from __future__ import annotations

import logging
import os

import pytest

from tpk.errors import ConfigError
from tpk.monitors import Monitors, ScalarPrinter


@pytest.fixture(autouse=True)
def columns_of_terminal(monkeypatch):
    """Return a function that sets the width of the terminal; 0 means no terminal."""

    def set_width(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("os.get_terminal_size", lambda file: os.terminal_size((0, 0)))

    set_width(0)
    return set_width


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "tpk.monitors.scalar_printer")
    return lambda: [line for message in caplog.messages for line in message.split("\n")]


@pytest.fixture
def columns(lines):
    """Return the parts of each line after the title."""
    return lambda: [[part.strip() for part in line.split("|")[1:]] for line in lines()]


def test_an_epoch_is_one_line_with_the_latest_values_sorted(trainer, lines):
    printer = ScalarPrinter()
    scalars = {
        "steps_per_second": 37.4961,
        "examples_per_second": 123456.7,
        "learning_rate": 0.001,
        "val-err": 0.25,
        "cost": 0.123456789,
        "queue": 50,
        "cost/EMA": 0.5,
    }
    for name, value in scalars.items():
        printer.process_scalar(name, 9)
        printer.process_scalar(name, value)
    trainer.epoch_num, trainer.global_step, trainer.announcements = 3, 70, ["model-70", "min-val-err-70"]
    printer.trigger_epoch(trainer)
    assert lines() == [
        "epoch  3/20, step 70 | cost 0.1235 | queue 50 | val-err 0.25 | lr 0.001 | 37.5 steps/s | 123,457 examples/s | "
        "saving model-70, min-val-err-70",
    ]


def report_an_epoch(trainer):
    trainer.monitors = Monitors(trainer, followed={"validation_error": "min"})
    trainer.epoch_num, trainer.global_step, trainer.announcements = 3, 135, ["model-135", "min-validation_error-135"]
    printer = ScalarPrinter()
    names = ("cost", "train_error", "validation_cost", "validation_error", "learning_rate", "steps_per_second")
    for name in names:
        printer.process_scalar(name, 0.12345)
    printer.trigger_epoch(trainer)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            120,
            [
                "epoch  3/20, step 135 | validation_error 0.1235 | cost 0.1235 | train_error 0.1235 | "
                "validation_cost 0.1235"
            ],
        ),
        (100, ["epoch  3/20, step 135 | validation_error 0.1235 | cost 0.1235 | train_error 0.1235"]),
        (
            80,
            [
                "epoch  3/20, step 135 | validation_error 0.1235 | cost 0.1235",
                "                      | train_error 0.1235 | validation_cost 0.1235",
            ],
        ),
    ],
)
def test_an_epoch_fits_the_terminal_with_followed_statistics_first(
    trainer, lines, columns_of_terminal, columns, expected
):
    columns_of_terminal(columns)
    report_an_epoch(trainer)
    assert lines() == expected
    assert all(len("12:00:00 " + line) <= columns for line in lines())


def test_values_that_do_not_fit_are_logged_at_debug_level(trainer, caplog, columns_of_terminal):
    caplog.set_level(logging.DEBUG, "tpk.monitors.scalar_printer")
    columns_of_terminal(80)
    report_an_epoch(trainer)
    assert [(record.levelname, record.getMessage()) for record in caplog.records[1:]] == [
        (
            "DEBUG",
            "epoch  3/20, step 135 | lr 0.1235 | 0.1235 steps/s | saving model-135, min-validation_error-135",
        )
    ]


def test_columns_are_aligned_from_epoch_to_epoch(trainer, lines):
    printer = ScalarPrinter()
    for trainer.epoch_num, trainer.global_step, cost in ((9, 90, 10.25), (10, 100, 9.5), (11, 110, 10.75)):
        printer.process_scalar("cost", cost)
        printer.process_scalar("error", cost)
        printer.trigger_epoch(trainer)
    assert lines() == [
        "epoch  9/20, step 90 | cost 10.25 | error 10.25",
        "epoch 10/20, step 100 | cost 9.5   | error 9.5",
        "epoch 11/20, step 110 | cost 10.75 | error 10.75",
    ]


def test_without_a_last_epoch_only_the_epoch_is_shown(trainer, lines):
    printer, trainer.loop.max_epoch = ScalarPrinter(), 2**63 - 1
    printer.process_scalar("a", 1)
    printer.trigger_epoch(trainer)
    assert lines() == ["epoch 1, step 0 | a 1"]


def test_the_learning_rate_of_an_objective_keeps_its_name(trainer, columns):
    printer = ScalarPrinter()
    printer.process_scalar("generator/learning_rate", 0.1)
    printer.trigger_epoch(trainer)
    assert columns() == [["generator/lr 0.1"]]


def test_moving_averages_are_logged_at_debug_level(trainer, caplog):
    caplog.set_level(logging.DEBUG, "tpk.monitors.scalar_printer")
    printer = ScalarPrinter()
    for name in ("cost", "cost/EMA", "error/EMA"):
        printer.process_scalar(name, 1)
    resumed = ScalarPrinter()
    resumed.load_state_dict(printer.state_dict())
    resumed.trigger_epoch(trainer)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "epoch  1/20, step 0 | cost 1"),
        ("DEBUG", "epoch  1/20, step 0 | cost/EMA 1 | error/EMA 1"),
    ]


def test_each_epoch_logs_only_new_values(trainer, columns):
    printer = ScalarPrinter()
    printer.process_scalar("a", 1)
    printer.trigger_epoch(trainer)
    printer.process_scalar("b", 2)
    printer.trigger_epoch(trainer)
    printer.trigger_epoch(trainer)
    assert columns() == [["a 1"], ["b 2"]]


def test_values_after_the_last_epoch_are_logged_at_the_end(trainer, columns):
    printer = ScalarPrinter()
    printer.process_scalar("a", 1)
    printer.after_train(trainer)
    assert columns() == [["a 1"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["cost 1", "train-error 1", "val-error 1"]),
        ({"whitelist": [".*-error"]}, ["train-error 1", "val-error 1"]),
        ({"whitelist": [".*"], "blacklist": [".*error"]}, ["cost 1", "cost/EMA 1"]),
        ({"blacklist": ["val-.*", "error"]}, ["cost 1", "train-error 1"]),
        ({"whitelist": [".*-error"], "blacklist": ["val-.*"]}, ["train-error 1"]),
        ({"whitelist": []}, []),
    ],
)
def test_whitelist_and_blacklist_select_scalars(trainer, columns, options, expected):
    printer = ScalarPrinter(**options)
    for name in ("cost", "cost/EMA", "train-error", "val-error"):
        printer.process_scalar(name, 1)
    printer.trigger_epoch(trainer)
    assert [part for line in columns() for part in line] == expected


def test_steps_are_logged_with_enable_step(trainer, columns):
    printer = ScalarPrinter(enable_step=True)
    for trainer.local_step in (8, 9):
        printer.process_scalar("x", trainer.local_step)
        printer.trigger_step(trainer)
    assert columns() == [["x 8"]], "the last step of an epoch comes with the epoch"
    printer.trigger_epoch(trainer)
    assert columns() == [["x 8"], ["x 9"]]


def test_without_epochs_the_last_step_is_logged_as_a_step(trainer, columns):
    printer = ScalarPrinter(enable_step=True, enable_epoch=False)
    trainer.local_step = trainer.loop.steps_per_epoch - 1
    printer.process_scalar("x", 10)
    printer.trigger_step(trainer)
    assert columns() == [["x 10"]]


def test_steps_cost_nothing_by_default():
    assert "trigger_step" not in ScalarPrinter().hook_implementations()
    assert "trigger_step" in ScalarPrinter(enable_step=True).hook_implementations()


def test_without_epochs_their_end_logs_nothing(trainer, lines):
    printer = ScalarPrinter(enable_epoch=False)
    printer.process_scalar("x", 10)
    printer.hook_implementations()["trigger_epoch"]()
    assert lines() == []


def test_an_invalid_expression_is_an_error():
    with pytest.raises(ConfigError, match=r"blacklist: '\(' is not a regular expression"):
        ScalarPrinter(blacklist=["("])
    with pytest.raises(ConfigError, match=r"write whitelist=\['cost'\]"):
        ScalarPrinter(whitelist="cost")
