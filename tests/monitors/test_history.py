from __future__ import annotations

import json
import math
import re
import sys

import numpy as np
import pytest

import tpk
from tpk.checkpoint.encoding import decode, encode
from tpk.errors import ConfigError, TpkError, UnknownScalarError
from tpk.monitors.history import History


@pytest.fixture
def history():
    history = History()
    history.add("cost", 1, 10, 0.5)
    history.add("error", 1, 10, 1)
    history.add("cost", 2, 20, math.inf)
    return history


def test_every_value_is_kept_with_its_step(history):
    assert list(history) == ["cost", "error"]
    assert history.of("cost") == [(10, 0.5), (20, math.inf)]
    assert history.latest("cost") == math.inf
    assert history.latest("error") == 1.0


def test_a_history_maps_names_to_arrays(history):
    assert list(history) == ["cost", "error"] and len(history) == 2 and "cost" in history and "loss" not in history
    assert history["cost"].tolist() == [0.5, math.inf] and history["cost"].dtype == np.float64
    assert history.steps("cost").tolist() == [10, 20]
    assert history.epochs("cost").tolist() == [1, 2]
    assert {name: values.tolist() for name, values in history.items()} == {"cost": [0.5, math.inf], "error": [1.0]}
    assert history.get("loss") is None
    assert history == history != History()
    assert repr(history) == "History(cost: 2 values, error: 1 values)"


def test_returned_arrays_belong_to_the_caller(history):
    history["cost"][:] = 0
    assert history["cost"].tolist() == [0.5, math.inf]


def test_columns_have_a_row_for_each_step(history):
    history.add("global_step", 2, 15, 7)
    columns = history.columns()
    assert list(columns) == ["epoch_num", "global_step", "cost", "error", "scalar/global_step"]
    assert columns["epoch_num"].tolist() == [1, 2, 2]
    assert columns["global_step"].tolist() == [10, 15, 20]
    np.testing.assert_array_equal(columns["cost"], [0.5, np.nan, np.inf])
    np.testing.assert_array_equal(columns["error"], [1, np.nan, np.nan])
    assert history.columns("error")["global_step"].tolist() == [10]
    assert [column.size for column in History().columns().values()] == [0, 0]


def test_a_column_has_the_last_of_several_values_in_one_step(history):
    history.add("error", 1, 10, 2)
    assert history.columns("error")["error"].tolist() == [2.0]


def test_the_best_is_the_first_smallest_or_largest_value(history):
    history.add("cost", 3, 30, math.nan)
    history.add("cost", 4, 40, 0.5)
    assert history.best("cost") == (0.5, 1, 10)
    assert history.best("cost", mode="max") == (math.inf, 2, 20)
    with pytest.raises(ConfigError, match="mode must be one of 'min', 'max', not 'most'"):
        history.best("cost", mode="most")
    history.add("nothing", 1, 10, math.nan)
    assert history.best("nothing") is None


def test_an_unknown_name_is_a_key_error_that_lists_the_known_ones(history):
    with pytest.raises(UnknownScalarError) as caught:
        history.latest("eror")
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, TpkError)
    message = "no scalar 'eror' was reported so far. Nearest: 'error'. Reported so far: cost, error."
    assert str(caught.value) == message
    for ask in (history.__getitem__, history.steps, history.epochs, history.columns, history.plot, history.best):
        with pytest.raises(UnknownScalarError, match=r"'eror'.*'error'"):
            ask("eror")
    with pytest.raises(UnknownScalarError, match="Reported so far: none"):
        History().of("cost")


def test_a_history_survives_a_restart_through_json(history):
    history.add("cost", 3, 30, 0.1)
    resumed = History()
    resumed.load_state_dict(decode(json.loads(json.dumps(encode(history.state_dict()), allow_nan=False))))
    resumed.add("cost", 4, 40, 0.05)
    assert resumed.of("cost") == [(10, 0.5), (20, math.inf), (30, 0.1), (40, 0.05)]
    assert resumed.epochs("cost").tolist() == [1, 2, 3, 4]
    assert resumed.of("error") == [(10, 1.0)]


def test_a_notebook_shows_a_table(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    history.add("<b>", 2, 20, math.nan)
    shown = history._repr_html_()
    rows = re.findall(r"<tr>(.*?)</tr>", shown)
    assert re.findall(r"<td>(.*?)</td>", rows[1]) == ["cost", "2", "inf", "0.5", "1", "inf", "2"]
    assert re.findall(r"<td>(.*?)</td>", rows[3]) == ["&lt;b&gt;", "1", "nan", "", "", "", ""]
    assert "<img" not in shown


def test_plots_without_matplotlib_are_an_error_that_says_what_to_install(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(tpk.PluginImportError, match="pip install matplotlib"):
        history.plot()


def test_each_scalar_is_plotted(history):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = history.plot()
    assert [plot.get_title() for plot in axes] == ["cost", "error"]
    assert axes[0].lines[0].get_xydata().tolist() == [[10, 0.5], [20, math.inf]]
    matplotlib.pyplot.close(axes[0].figure)
    assert "data:image/png;base64," in history._repr_html_()
    assert not matplotlib.pyplot.get_fignums()


def test_plots_are_drawn_on_a_given_figure(history):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    (plot,) = history.plot("error", figure=figure)
    assert figure.axes == [plot] and plot.get_title() == "error"
    assert plot.lines[0].get_xydata().tolist() == [[10, 1.0]]


def test_a_history_is_read_from_the_files_of_a_run(tmp_path):
    rows = [
        {"epoch_num": 1, "global_step": 10, "time": 1.5, "cost": 2.0, "scalar/time": 3},
        {"epoch_num": 2, "global_step": 20, "time": 2.5, "cost": "NaN", "error": "-Infinity"},
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "stats.jsonl").write_text(lines + '{"epoch_num": 3, "glob')
    for path in (tmp_path, tmp_path / "stats.jsonl"):
        read = tpk.History.read(path)
        assert list(read) == ["cost", "time", "error"]
        np.testing.assert_array_equal(read["cost"], [2, np.nan])
        assert read.steps("cost").tolist() == [10, 20] and read.epochs("error").tolist() == [2]
        assert read["error"].tolist() == [-np.inf] and read["time"].tolist() == [3]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"epoch_num": 1, "global_step": 1, "cost": "high"}'])
def test_an_invalid_file_is_an_error_that_names_the_line(tmp_path, line):
    (tmp_path / "stats.jsonl").write_text(f'{{"epoch_num": 1, "global_step": 1, "cost": 1}}\n{line}\n')
    with pytest.raises(tpk.ConfigError, match=r"line 2 of '.*stats.jsonl' is not what JSONWriter writes"):
        tpk.History.read(tmp_path)


def test_a_run_without_statistics_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(tpk.ConfigError, match=r"stats.jsonl' cannot be read: No such file"):
        tpk.History.read(tmp_path)
