from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from tpk.errors import ConfigError
from tpk.monitors import JSONWriter


@pytest.fixture
def writer(trainer):
    writer = JSONWriter(clock=lambda: 1700000000.12345)
    writer.trainer = trainer
    yield writer
    writer.close()


def rows(trainer):
    lines = (trainer.run_dir / "stats.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def test_the_scalars_of_a_step_are_one_line(trainer, writer):
    trainer.epoch_num, trainer.global_step = 2, 20
    writer.process_scalar("cost", 0.5)
    writer.process_scalar("größe, %", 3)
    writer.flush()
    trainer.epoch_num, trainer.global_step = 3, 30
    writer.process_scalar("cost", 0.25)
    writer.flush()
    assert rows(trainer) == [
        {"epoch_num": 2, "global_step": 20, "time": 1700000000.123, "cost": 0.5, "größe, %": 3},
        {"epoch_num": 3, "global_step": 30, "time": 1700000000.123, "cost": 0.25},
    ]


def test_a_line_is_written_once_a_later_step_reports(trainer, writer):
    for step in (1, 2):
        trainer.global_step = step
        writer.process_scalar("cost", step)
    assert [row["cost"] for row in rows(trainer)] == [1]


def test_no_value_is_lost_if_a_scalar_is_reported_twice_in_a_step(trainer, writer):
    for value in (1, 2):
        writer.process_scalar("cost", value)
    writer.flush()
    assert [row["cost"] for row in rows(trainer)] == [1, 2]


def test_nan_and_infinities_are_strings(trainer, writer):
    for name in ("nan", "inf", "-inf"):
        writer.process_scalar(name, float(name))
    writer.flush()
    (row,) = rows(trainer)
    assert (row["nan"], row["inf"], row["-inf"]) == ("NaN", "Infinity", "-Infinity")


def test_a_scalar_named_like_a_column_does_not_replace_it(trainer, writer):
    trainer.global_step = 7
    writer.process_scalar("global_step", 1)
    writer.process_scalar("time", 2)
    writer.flush()
    (row,) = rows(trainer)
    assert (row["global_step"], row["scalar/global_step"], row["scalar/time"]) == (7, 1, 2)


def test_without_reports_there_is_no_line(trainer, writer):
    writer.flush()
    writer.after_train(trainer)
    assert not (trainer.run_dir / "stats.jsonl").exists()


def test_remaining_rows_are_written_at_the_end(trainer, writer):
    writer.process_scalar("cost", 1)
    writer.after_train(trainer)
    assert len(rows(trainer)) == 1


def test_a_second_run_appends(trainer, writer):
    writer.process_scalar("cost", 1)
    writer.after_train(trainer)
    second = JSONWriter()
    second.trainer = trainer
    second.process_scalar("cost", 2)
    second.after_train(trainer)
    assert [row["cost"] for row in rows(trainer)] == [1, 2]


@pytest.mark.parametrize(
    ("tail", "costs"), [('{"epoch_num": 1, "co', [1, 2]), ('{"cost": 9}', [1, 9, 2]), ("\0\0", [1, 2])]
)
def test_a_torn_last_line_does_not_spoil_the_next(trainer, writer, tail, costs, caplog):
    path = trainer.run_dir / "stats.jsonl"
    path.write_text('{"cost": 1}\n' + tail)
    writer.process_scalar("cost", 2)
    writer.flush()
    assert [row["cost"] for row in rows(trainer)] == costs
    assert ("removed an incomplete last line" in caplog.text) == (len(costs) == 2)


def test_a_failed_write_is_tried_again(trainer, writer):
    blocked = trainer.run_dir / "stats.jsonl"
    blocked.mkdir()
    writer.process_scalar("cost", 1)
    with pytest.raises(IsADirectoryError):
        writer.flush()
    trainer.global_step = 1
    with pytest.raises(IsADirectoryError):
        writer.process_scalar("cost", 2)
    blocked.rmdir()
    writer.flush()
    assert [row["cost"] for row in rows(trainer)] == [1, 2]


def test_a_partially_written_line_is_removed(trainer, writer):
    writer.process_scalar("cost", 1)
    writer.flush()
    writer.process_scalar("cost", 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Like a full disk, it takes only the first bytes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.path.stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match="only part of a line"):
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.flush()
    assert [row["cost"] for row in rows(trainer)] == [1, 2]


def test_without_a_run_dir_the_error_says_what_to_do(trainer_without_run_dir):
    writer = JSONWriter()
    writer.trainer = trainer_without_run_dir
    with pytest.raises(ConfigError, match=r"JSONWriter needs the directory of the run.*Give the trainer a run_dir"):
        writer.setup_graph(trainer_without_run_dir)


def test_an_absolute_path_needs_no_run_dir(trainer_without_run_dir, tmp_path):
    writer = JSONWriter(tmp_path / "deep" / "stats.jsonl")
    writer.trainer = trainer_without_run_dir
    writer.setup_graph(trainer_without_run_dir)
    writer.process_scalar("cost", 1)
    writer.after_train(trainer_without_run_dir)
    assert json.loads((tmp_path / "deep" / "stats.jsonl").read_text())["cost"] == 1


def test_the_writers_of_text_need_no_tensorflow():
    code = (
        "import sys, tpk.monitors; from tpk.monitors import JSONWriter, CSVWriter, ScalarPrinter, Monitor;"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
