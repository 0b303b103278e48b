from __future__ import annotations

import json
import sys
import xml.dom.minidom

import numpy as np
import pytest
from matplotlib.figure import Figure

from tpk.cli.main import main
from tpk.cli.runs.plotting import smoothed


def write_run(directory, **statistics):
    """Write the files of a run, with a row for each value."""
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


@pytest.fixture
def drawn(runs, monkeypatch):
    """A function that runs the command and returns the Matplotlib axes by title."""
    figures = []
    savefig = Figure.savefig

    def keep(figure, *arguments, **options):
        figures.append(figure)
        savefig(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)

    def draw(*options):
        assert main(["plot", "-o", "curves.svg", *options]) == 0
        return {axes.get_title(): axes for axes in figures[-1].axes}

    return draw


def points(axes):
    return [list(zip(*line.get_data(), strict=True)) for line in axes.lines]


def test_each_statistic_has_a_plot_and_each_run_a_curve(drawn, capsys):
    plots = drawn("runs")
    assert capsys.readouterr().out == "curves.svg: cost, error, speed of 2 runs\n"
    assert list(plots) == ["cost", "error", "speed"]
    first, second = points(plots["cost"])
    assert first == [(10, 4), (20, 2), (30, 1)]
    np.testing.assert_equal(second, [(10, 3), (20, np.nan), (30, 2), (40, 1.5)])
    assert points(plots["error"]) == [[(10, 0.5), (20, 0.25)]]
    (legend,) = plots["cost"].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a<1>", "b"]


def test_a_run_has_the_same_color_in_all_plots(drawn):
    plots = drawn("runs")
    assert plots["cost"].lines[0].get_color() == plots["error"].lines[0].get_color()
    assert plots["cost"].lines[0].get_color() != plots["cost"].lines[1].get_color()


def test_statistics_are_chosen_by_patterns_and_shown_by_epochs(drawn):
    plots = drawn("runs", "--stat", "*o*", "--x", "epoch")
    assert list(plots) == ["cost", "error"]
    assert points(plots["cost"])[0] == [(1, 4), (2, 2), (3, 1)]


def test_without_a_run_the_newest_is_plotted(drawn, runs, capsys):
    write_run(runs / "runs" / "c", loss=[1.0])
    assert list(drawn()) == ["loss"]
    assert capsys.readouterr().out == "curves.svg: loss of 1 run\n"


def test_smoothing_keeps_the_reported_values_in_the_background(drawn):
    reported, smooth, *_ = points(drawn("runs", "--smooth", "0.5", "--stat", "cost")["cost"])
    assert reported == [(10, 4), (20, 2), (30, 1)]
    np.testing.assert_allclose(smooth[:2], [(10, 4), (20, 8 / 3)])


def test_the_weights_of_the_moving_average_add_up_to_one():
    values = np.random.default_rng(1).normal(size=20)
    weights = 0.9 ** np.arange(20)[::-1]
    expected = [np.average(values[:count], weights=weights[-count:]) for count in range(1, 21)]
    np.testing.assert_allclose(smoothed(values, 0.9), expected)
    np.testing.assert_allclose(smoothed(np.full(5, 3.0), 0.99), 3.0)


def test_values_that_are_not_finite_are_left_out_of_the_moving_average():
    values = np.array([1.0, np.nan, 3.0, np.inf])
    np.testing.assert_allclose(smoothed(values, 0.5), [1, np.nan, 7 / 3, np.inf])


@pytest.mark.parametrize("values", [[2.0], [5.0, 5.0], ["NaN", "NaN"]])
def test_a_curve_of_one_value_or_of_none_is_drawn(tmp_path, monkeypatch, values):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", cost=values)
    assert main(["plot", "runs", "-o", "x.png"]) == 0


@pytest.mark.parametrize(("name", "begin"), [("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(runs, name, begin):
    assert main(["plot", "runs", "-o", name, "--smooth", "0.6"]) == 0
    assert (runs / name).read_bytes().startswith(begin)
    if name == "x.svg":
        xml.dom.minidom.parse(name)


def test_without_matplotlib_the_error_says_what_to_install(runs, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["plot", "runs", "-o", "x.png"]) == 1
    error = capsys.readouterr().err
    assert "pip install matplotlib" in error and error.count("\n") == 1


def test_a_run_without_statistics_is_an_error(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "log.txt").write_text("")
    assert main(["plot", str(tmp_path), "-o", str(tmp_path / "x.svg")]) == 1
    assert "reported no statistics so far" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs"], "Missing option '-o'"),
        (["runs", "-o", "x.svg", "--smooth", "1"], "1.0 is not in the range 0<=x<1."),
    ],
)
def test_wrong_usage_has_status_2(runs, capsys, arguments, message):
    assert main(["plot", *arguments]) == 2
    assert message in capsys.readouterr().err
