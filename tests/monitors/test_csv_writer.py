from __future__ import annotations

import csv
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from registered import RegisteredMonitors

from tpk.checkpoint.encoding import decode, encode
from tpk.errors import ConfigError
from tpk.monitors import CSVWriter


def start(trainer, state=None):
    """Return monitors with one writer, as they are when training begins."""
    monitors = RegisteredMonitors(trainer, CSVWriter(clock=lambda: 5.0))
    monitors.call("setup_graph")
    if state is not None:
        monitors.load_state_dict(decode(json.loads(json.dumps(state))))
    monitors.call("before_train")
    return monitors


def report(monitors, step, /, **scalars):
    monitors.trainer.global_step = step
    for name, value in scalars.items():
        monitors.put_scalar(name, value)


def table(trainer, name="stats.csv"):
    with (trainer.run_dir / name).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_row_for_each_step_and_a_column_for_each_scalar(trainer):
    monitors = start(trainer)
    report(monitors, 1, cost=0.5)
    monitors.call("trigger_epoch")
    assert table(trainer) == [["epoch_num", "global_step", "time", "cost"], ["1", "1", "5.0", "0.5"]]
    report(monitors, 2, error=0, cost=math.nan, time=7)
    report(monitors, 3, error=1, cost=0.25)
    report(monitors, 3, error=2)
    assert len(table(trainer)) == 2, "the table is written at the end of an epoch"
    monitors.call("after_train")
    assert table(trainer) == [
        ["epoch_num", "global_step", "time", "cost", "error", "scalar/time"],
        ["1", "1", "5.0", "0.5", "", ""],
        ["1", "2", "5.0", "nan", "0.0", "7.0"],
        ["1", "3", "5.0", "0.25", "2.0", ""],
    ]
    assert [path.name for path in trainer.run_dir.iterdir()] == ["stats.csv"], "no temporary file is left"


def test_without_reports_there_is_no_file(trainer):
    start(trainer).call("after_train")
    assert not list(trainer.run_dir.iterdir())


def test_a_resumed_run_has_the_same_table_as_an_uninterrupted_one(trainer):
    killed = start(trainer)
    report(killed, 1, cost=1)
    state = encode(killed.state_dict())
    report(killed, 2, cost=2, error=3)
    killed.call("after_train")
    expected = table(trainer)
    killed.put_scalar("other", 1)
    killed.call("trigger_epoch")
    assert table(trainer) != expected

    resumed = start(trainer, state)
    report(resumed, 2, cost=2, error=3)
    resumed.call("after_train")
    assert table(trainer) == expected
    assert len(list(trainer.run_dir.iterdir())) == 1


def test_the_table_of_another_run_is_renamed(trainer):
    (trainer.run_dir / "stats.csv").write_text("a,b\n1,2\n")
    monitors = start(trainer)
    report(monitors, 1, cost=1)
    monitors.call("after_train")
    assert table(trainer, "stats-1.csv") == [["a", "b"], ["1", "2"]]
    assert table(trainer)[1:] == [["1", "1", "5.0", "1.0"]]


def test_a_failed_write_leaves_the_table_as_it_was(trainer, monkeypatch, caplog):
    monitors = start(trainer)
    report(monitors, 1, cost=1)
    monitors.call("trigger_epoch")

    def no_space(*arguments):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", no_space)
        report(monitors, 2, error=2)
        monitors.call("trigger_epoch")
    assert "no space left" in caplog.text
    assert [row[3:] for row in table(trainer)] == [["cost"], ["1.0"]]
    monitors.call("after_train")
    assert [row[3:] for row in table(trainer)] == [["cost", "error"], ["1.0", ""], ["", "2.0"]]


def test_a_link_is_not_followed(trainer, tmp_path_factory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_text("private")
    link = trainer.run_dir / "stats.csv"
    link.symlink_to(victim)
    with pytest.raises(ConfigError, match="is a symbolic link"):
        start(trainer)
    link.unlink()
    monitors = start(trainer)
    link.symlink_to(victim)
    report(monitors, 1, cost=1)
    monitors.call("after_train")
    assert victim.read_text() == "private"


def test_without_a_run_dir_the_error_says_what_to_do(trainer_without_run_dir):
    with pytest.raises(ConfigError, match=r"CSVWriter.*run_dir"):
        start(trainer_without_run_dir)


numbers = st.integers(-(2**53), 2**53) | st.floats()
names = st.text(min_size=1, max_size=5).filter(lambda name: "\0" not in name and name != "time")


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.dictionaries(names, numbers, min_size=1, max_size=4), min_size=1, max_size=6))
def test_every_value_can_be_read_back(trainer, rows):
    (trainer.run_dir / "stats.csv").unlink(missing_ok=True)
    monitors = start(trainer)
    for step, row in enumerate(rows):
        report(monitors, step, **row)
    monitors.call("after_train")
    with (trainer.run_dir / "stats.csv").open(newline="", encoding="utf-8") as file:
        back = list(csv.DictReader(file))
    assert len(back) == len(rows)
    for expected, row in zip(rows, back, strict=True):
        reported = {name: float(value) for name, value in list(row.items())[3:] if value != ""}
        assert set(reported) == set(expected)
        for name, value in expected.items():
            assert reported[name] == value or (math.isnan(value) and math.isnan(reported[name]))
