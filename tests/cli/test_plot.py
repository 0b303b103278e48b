from __future__ import annotations

import itertools
import json
import re
import sys
import xml.dom.minidom
from pathlib import Path

import numpy as np
import pytest

from tpk.cli.main import main
from tpk.cli.runs.curves import smoothed
from tpk.cli.runs.page import ticks


def write_run(directory, **statistics):
    """Write what a run leaves, with a row for each value."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    count = max(map(len, statistics.values()))
    with (directory / "stats.jsonl").open("w") as file:
        for epoch in range(1, count + 1):
            row = {"epoch_num": epoch, "global_step": 10 * epoch, "time": 0.0}
            row |= {name: values[epoch - 1] for name, values in statistics.items() if epoch <= len(values)}
            file.write(f"{json.dumps(row)}\n")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a<1>", cost=[4.0, 2.0, 1.0], error=[0.5, 0.25], speed=[100.0])
    write_run(tmp_path / "runs" / "b", cost=[3.0, "NaN", 2.0, 1.5])
    return tmp_path


def page(*options):
    assert main(["plot", "runs", "-o", "curves.html", *options]) == 0
    text = Path("curves.html").read_text(encoding="utf-8")
    plots = [xml.dom.minidom.parseString(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    titles = [plot.getElementsByTagName("text")[0].firstChild.data for plot in plots]
    return text, dict(zip(titles, plots, strict=True))


def points(plot, run):
    """The values that a plot shows of a run when they are pointed at."""
    shown = [title.firstChild.data for title in plot.getElementsByTagName("title")]
    return [each.partition(": ")[2] for each in shown if each.startswith(f"{run}: ")]


def test_the_page_has_a_plot_for_each_statistic_and_a_curve_for_each_run(runs, capsys):
    text, plots = page()
    assert capsys.readouterr().out == "curves.html: cost, error, speed of 2 runs\n"
    assert list(plots) == ["cost", "error", "speed"]
    assert points(plots["cost"], "a<1>") == ["4 at 10", "2 at 20", "1 at 30"]
    # A value that is none interrupts the line.
    assert points(plots["cost"], "b") == ["3 at 10", "2 at 30", "1.5 at 40"]
    assert [len(group.getElementsByTagName("polyline")) for group in plots["cost"].getElementsByTagName("g")] == [1, 2]
    assert points(plots["error"], "b") == []
    # It needs no network.
    assert "http" not in text and "src=" not in text
    assert 'value="a&lt;1&gt;"' in text and "<1>" not in text


def test_a_curve_lies_where_its_values_are(runs):
    _, plots = page("--stat", "cost")
    (circles,) = [
        [
            (float(each.getAttribute("cx")), float(each.getAttribute("cy")))
            for each in group.getElementsByTagName("circle")
        ]
        for group in plots["cost"].getElementsByTagName("g")[:1]
    ]
    (x1, y1), (x2, y2), (x3, y3) = circles
    assert x1 < x2 < x3 and x3 - x2 == pytest.approx(x2 - x1, abs=0.2)
    # Greater values lie higher, where y is less; 4 to 2 is twice as far as 2 to 1.
    assert y2 - y1 == pytest.approx(2 * (y3 - y2), abs=0.2) and y1 < y2


def test_statistics_are_chosen_by_patterns_and_shown_by_epochs(runs):
    _, plots = page("--stat", "*o*", "--x", "epoch")
    assert list(plots) == ["cost", "error"]
    assert points(plots["cost"], "a<1>") == ["4 at 1", "2 at 2", "1 at 3"]


def test_smoothing_keeps_what_was_reported_behind(runs):
    _, plots = page("--smooth", "0.5", "--stat", "cost")
    kinds = [line.getAttribute("class") for line in plots["cost"].getElementsByTagName("polyline")]
    assert kinds.count("raw") == 3 and kinds.count("") == 3
    assert points(plots["cost"], "a<1>")[:2] == ["4 at 10", "2.66667 at 20"]


def test_the_moving_average_is_that_of_weights_that_sum_up_to_one():
    values = np.random.default_rng(1).normal(size=20)
    weights = 0.9 ** np.arange(20)[::-1]
    expected = [np.average(values[:count], weights=weights[-count:]) for count in range(1, 21)]
    np.testing.assert_allclose(smoothed(values, 0.9), expected)
    np.testing.assert_allclose(smoothed(np.full(5, 3.0), 0.99), 3.0)


def test_what_is_no_number_is_left_out_of_the_moving_average():
    values = np.array([1.0, np.nan, 3.0, np.inf])
    np.testing.assert_allclose(smoothed(values, 0.5), [1, np.nan, 7 / 3, np.inf])
    assert smoothed(values, 0.0) is values


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.5, 12), (1e-9, 3e-9), (1e6, 5e6), (0.99, 1.01)])
def test_ticks_are_few_and_round(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 7 and low <= found[0] and found[-1] <= high
    # Whole multiples of a distance whose first digit is 1, 2 or 5.
    (step,) = {float(f"{after - before:.3g}") for before, after in itertools.pairwise(found)}
    assert f"{step:e}"[0] in "125" and f"{step:.0e}" == f"{step:.3e}".replace(".000", "")
    np.testing.assert_allclose(np.array(found) / step, np.round(np.array(found) / step), atol=1e-6)


@pytest.mark.parametrize("values", [[2.0], [5.0, 5.0], [0.0, 0.0], ["NaN", "NaN"], [-1e308, 0.0, 1.7e308]])
def test_curves_of_one_value_or_none_are_drawn(tmp_path, monkeypatch, values):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", cost=values)
    _, plots = page()
    assert list(plots) == ["cost"] and not {"nan", "inf"} & set(re.findall(r"\b(?:nan|inf)\b", plots["cost"].toxml()))


@pytest.mark.parametrize(("name", "begin"), [("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.pdf", b"%PDF")])
def test_other_formats_are_drawn_by_matplotlib(runs, name, begin):
    assert main(["plot", "runs", "-o", name, "--smooth", "0.6"]) == 0
    assert (runs / name).read_bytes().startswith(begin)


def test_without_matplotlib_the_error_says_what_to_install_and_what_needs_none(runs, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["plot", "runs", "-o", "x.png"]) == 1
    error = capsys.readouterr().err
    assert "pip install matplotlib. Or name a file that ends in .html." in error and error.count("\n") == 1


def test_of_a_run_without_statistics_there_is_nothing_to_plot(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "log.txt").write_text("")
    assert main(["plot", str(tmp_path), "-o", str(tmp_path / "x.html")]) == 1
    assert "nothing was reported in" in capsys.readouterr().err


def test_smoothing_by_nan_is_an_error(runs, capsys):
    assert main(["plot", "runs", "-o", "x.html", "--smooth", "nan"]) == 1
    assert "--smooth nan: expected a number from 0 to less than 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["runs"], "Missing option '-o'"),
        (["-o", "x.html"], "Missing argument 'RUN...'"),
        (["runs", "-o", "x.html", "--smooth", "1"], "1.0 is not in the range 0<=x<1."),
    ],
)
def test_wrong_usage_has_status_2(runs, capsys, arguments, told):
    assert main(["plot", *arguments]) == 2
    assert told in capsys.readouterr().err
