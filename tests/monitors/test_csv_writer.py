from __future__ import annotations

import csv
import math

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tpk.errors import ConfigError
from tpk.monitors import CSVWriter


def start(trainer, **options):
    writer = CSVWriter(clock=lambda: 5.0, **options)
    writer.trainer = trainer
    writer.setup_graph(trainer)
    return writer


def report(writer, step, **scalars):
    writer.trainer.global_step = step
    for name, value in scalars.items():
        writer.process_scalar(name, value)


def table(trainer):
    with (trainer.run_dir / "stats.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_a_row_for_each_step_and_a_column_for_each_scalar(trainer):
    writer = start(trainer)
    report(writer, 1, cost=0.5, error=1)
    report(writer, 2, error=0, cost=0.25)
    writer.after_train(trainer)
    assert table(trainer) == [
        ["epoch_num", "global_step", "time", "cost", "error"],
        ["1", "1", "5.0", "0.5", "1"],
        ["1", "2", "5.0", "0.25", "0"],
    ]


def test_a_scalar_that_comes_up_later_gets_a_column(trainer):
    writer = start(trainer)
    report(writer, 1, cost=1)
    writer.flush()
    report(writer, 2, cost=2, error=3)
    report(writer, 3, error=4)
    writer.after_train(trainer)
    assert [row[3:] for row in table(trainer)] == [["cost", "error"], ["1", ""], ["2", "3"], ["", "4"]]
    assert [path.name for path in trainer.run_dir.iterdir()] == ["stats.csv"], "no temporary file is left"


def test_a_resumed_run_goes_on_in_the_same_table(trainer):
    writer = start(trainer)
    report(writer, 1, cost=1)
    writer.after_train(trainer)
    resumed = start(trainer)
    report(resumed, 2, error=9, cost=2)
    resumed.after_train(trainer)
    assert [row[3:] for row in table(trainer)] == [["cost", "error"], ["1", ""], ["2", "9"]]


def test_a_torn_last_row_is_cut_off(trainer):
    (trainer.run_dir / "stats.csv").write_text("epoch_num,global_step,time,cost\n1,1,5.0,1\n1,2,5.")
    writer = start(trainer)
    report(writer, 2, cost=7)
    writer.after_train(trainer)
    assert [row[3:] for row in table(trainer)] == [["cost"], ["1"], ["7"]]


def test_the_table_of_somebody_else_is_left_alone(trainer):
    (trainer.run_dir / "stats.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"stats\.csv is there already .*'a', 'b'"):
        start(trainer)
    assert (trainer.run_dir / "stats.csv").read_text() == "a,b\n1,2\n"


def test_a_failed_rewrite_loses_nothing(trainer, monkeypatch):
    writer = start(trainer)
    report(writer, 1, cost=1)
    writer.flush()

    def no_space(*arguments):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", no_space)
        report(writer, 2, error=2)
        with pytest.raises(OSError, match="no space"):
            writer.flush()
        assert [row[3:] for row in table(trainer)] == [["cost"], ["1"]]
    writer.after_train(trainer)
    assert [row[3:] for row in table(trainer)] == [["cost", "error"], ["1", ""], ["", "2"]]


def test_without_a_run_dir_it_says_what_to_do(trainer_without_run_dir):
    with pytest.raises(ConfigError, match=r"CSVWriter.*run_dir"):
        start(trainer_without_run_dir)


numbers = st.integers(-(2**60), 2**60) | st.floats()
names = st.text(min_size=1, max_size=5).filter(lambda name: "\0" not in name and name != "time")


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.dictionaries(names, numbers, min_size=1, max_size=4), min_size=1, max_size=6))
def test_every_value_can_be_read_back(trainer, rows):
    (trainer.run_dir / "stats.csv").unlink(missing_ok=True)
    writer = start(trainer)
    for step, row in enumerate(rows):
        trainer.global_step = step
        for name, value in row.items():
            writer.process_scalar(name, value)
    writer.after_train(trainer)
    with (trainer.run_dir / "stats.csv").open(newline="", encoding="utf-8") as file:
        back = list(csv.DictReader(file))
    assert len(back) == len(rows)
    for expected, row in zip(rows, back, strict=True):
        reported = {name: value for name, value in list(row.items())[3:] if value != ""}
        assert set(reported) == set(expected)
        for name, value in expected.items():
            got = float(reported[name])
            assert got == value or (math.isnan(value) and math.isnan(got)) or got == float(value)
