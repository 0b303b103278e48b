from __future__ import annotations

import json
import re
import sys
import textwrap

import pytest

from tpk.cli.main import main


@pytest.fixture
def data_module(tmp_path, monkeypatch):
    (tmp_path / "data_of_speed_test.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from tpk.dataflow import BatchData, DataFromList

            def train_flow():
                return BatchData(DataFromList([[np.zeros(1000, np.uint8)]] * 40), 4)

            fixed = [[1], [2]]
            nothing = []
            number = 3
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("data_of_speed_test", None)


def test_rates_and_stages_are_shown(data_module, capsys):
    assert main(["data-speed", "data_of_speed_test:train_flow", "--size", "30"]) == 0
    shown = capsys.readouterr().out
    assert "30 batches in" in shown
    assert "MB/s" in shown
    assert "BatchData" in shown
    assert "DataFromList" in shown


def test_json_has_the_same_numbers(data_module, capsys):
    assert main(["data-speed", "data_of_speed_test:train_flow", "--size", "25", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["datapoints"], report["unit"]) == (25, "batches")
    assert report["megabytes"] == pytest.approx(25 * 4000 / 1e6)
    assert report["datapoints_per_second"] == pytest.approx(25 / report["seconds"])
    assert [stage["name"] for stage in report["stages"]] == ["BatchData", "DataFromList"]


def test_the_flow_can_be_an_iterable(data_module, capsys):
    assert main(["data-speed", "data_of_speed_test:fixed", "--size", "5", "--warmup", "1"]) == 0
    assert "5 datapoints" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("data_of_speed_test", "expected module:attribute"),
        ("data_of_speed_test:flow", "'data_of_speed_test:flow' does not exist: .*Nearest: 'train_flow'"),
        ("no_such_module:flow", "No module named 'no_such_module'"),
        ("data_of_speed_test:number", "iterable of datapoints, not 3"),
        ("data_of_speed_test:nothing", "no datapoint"),
    ],
)
def test_an_invalid_flow_is_an_error_of_one_line(data_module, capsys, target, message):
    assert main(["data-speed", target]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error
