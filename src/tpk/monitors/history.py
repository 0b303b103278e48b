"""The values of each scalar during a training run."""

from __future__ import annotations

import base64
import html
import importlib.util
import io
import json
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpk.argument_checks import check_mode
from tpk.errors import ConfigError, UnknownScalarError
from tpk.plugin.creation import import_optional
from tpk.text import nearest

POSITION_COLUMNS = ("epoch_num", "global_step", "time")
"""The first columns of ``stats.jsonl`` and ``stats.csv``."""

_DIRECTIONS = {"cost": "min", "loss": "min", "error": "min", "accuracy": "max"}
_COLUMNS_OF_PLOTS = 3
_PLOTS_IN_NOTEBOOK = 12


def direction_by_name(name: str) -> str | None:
    """Return ``"min"`` or ``"max"``, whichever is better for a statistic, if the end of its name says so."""
    return next((mode for ending, mode in _DIRECTIONS.items() if name.endswith(ending)), None)


class History(Mapping[str, np.ndarray]):
    """The statistics of a training run: every value of each scalar, with the epoch and global step of its report.

    A mapping of names to NumPy arrays. `trainer.history` is available during and after the run; a resumed run
    continues it. Notebooks show it as a table, with plots if Matplotlib is installed.

    Example:
        ```python
        trainer = tpk.launch_train_with_config(config)
        trainer.history["validation_error"].min()
        trainer.history.plot("cost", "validation_error")
        frame = pandas.DataFrame(trainer.history.columns())
        ```
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    # The comparison of a `Mapping` would ask for the truth of an array.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the values of `name`, oldest first (``float64``).

        Raises:
            UnknownScalarError: if it was never reported. This is a `KeyError`.
        """
        return np.array(self._of(name).values, np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return f"History({', '.join(f'{name}: {len(series.values)} values' for name, series in self._series.items())})"

    def steps(self, name: str) -> np.ndarray:
        """Return the global steps at which `name` was reported, oldest first (``int64``).

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return np.array(self._of(name).steps, np.int64)

    def epochs(self, name: str) -> np.ndarray:
        """Return the epochs in which `name` was reported, oldest first (``int64``).

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return np.array(self._of(name).epochs, np.int64)

    def columns(self, *names: str) -> dict[str, np.ndarray]:
        """Return a table with a row for each global step at which a scalar was reported.

        Args:
            names: the scalars; all by default.

        Returns:
            The columns ``epoch_num`` and ``global_step`` (``int64``), and one for each scalar (``float64``): NaN where
            it was not reported, its last value where it was reported more than once in a step. `pandas.DataFrame`
            accepts this dictionary. A scalar named like one of the first two columns is under ``scalar/<name>``, as in
            ``stats.jsonl``.

        Raises:
            UnknownScalarError: if one of `names` was never reported.
        """
        chosen = names or tuple(self)
        epoch_of: dict[int, int] = {}
        for name in chosen:
            epoch_of.update(zip(self._of(name).steps, self._of(name).epochs, strict=True))
        steps = np.array(sorted(epoch_of), np.int64)
        table = {"epoch_num": np.array([epoch_of[step] for step in steps.tolist()], np.int64), "global_step": steps}
        for name in chosen:
            column = np.full(len(steps), np.nan)
            column[np.searchsorted(steps, self.steps(name))] = self[name]
            table[f"scalar/{name}" if name in ("epoch_num", "global_step") else name] = column
        return table

    def plot(self, *names: str, figure: Any = None) -> np.ndarray:
        """Plot scalars over the global step, each in its own plot.

        Args:
            names: the scalars; all by default.
            figure: the `matplotlib.figure.Figure` to draw on; by default a new one from `matplotlib.pyplot`.

        Returns:
            The `matplotlib.axes.Axes` of the plots, as an array.

        Raises:
            UnknownScalarError: if one of `names`, or any scalar at all, was never reported.
            PluginImportError: if Matplotlib is not installed.

        Example:
            ```python
            trainer.history.plot("cost", "validation_error")
            matplotlib.pyplot.savefig("curves.png")
            ```
        """
        chosen = names or tuple(self)
        series = [self._of(name) for name in chosen or ("",)]
        if figure is None:
            instead = "The values are in history.columns()."
            figure = import_optional("matplotlib.pyplot", "history.plot()", "matplotlib", instead).figure()
        plots = grid_of_plots(figure, chosen)
        for each, plot in zip(series, plots, strict=True):
            plot.plot(each.steps, each.values, marker="." if len(each.steps) < 30 else "")
        figure.tight_layout()
        return plots

    def best(self, name: str, mode: str = "min") -> tuple[float, int, int] | None:
        """Return the best value of `name`, and the epoch and global step at which it was first reported.

        Args:
            name: the scalar.
            mode: ``"min"`` for the smallest value, ``"max"`` for the largest.

        Returns:
            The value, epoch and global step; None if all values are NaN.

        Raises:
            ConfigError: if `mode` is invalid.
            UnknownScalarError: if `name` was never reported.
        """
        check_mode(self, mode)
        values = -self[name] if mode == "max" else self[name]
        if np.isnan(values).all():
            return None
        position, series = int(np.nanargmin(values)), self._of(name)
        return series.values[position], series.epochs[position], series.steps[position]

    # Adding, saving and restoring values.

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> History:
        """Read the statistics that `JSONWriter` has written.

        Args:
            path: the ``stats.jsonl`` of a run, or the directory of the run. An incomplete last line, such as a killed
                run may leave, is ignored.

        Raises:
            ConfigError: if the file is missing, or was not written by `JSONWriter`.

        Example:
            ```python
            tpk.History.read("runs/digits").plot("cost")
            ```
        """
        file = Path(path, "stats.jsonl") if Path(path).is_dir() else Path(path)
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError as error:
            raise ConfigError(
                f"{str(file)!r} cannot be read: {error.strerror}. Name the directory of a run that has statistics."
            ) from error
        history = cls()
        for number, line in enumerate(lines, 1):
            try:
                if line:
                    history._add_row(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                if number < len(lines):
                    raise ConfigError(
                        f"line {number} of {str(file)!r} is not what JSONWriter writes: {error}."
                    ) from error
        return history

    def _add_row(self, row: dict[str, Any]) -> None:
        epoch, step = row.pop("epoch_num"), row.pop("global_step")
        row.pop("time", None)
        for name, value in row.items():
            original = name.removeprefix("scalar/")
            self.add(original if original in POSITION_COLUMNS else name, epoch, step, float(value))

    def add(self, name: str, epoch: int, step: int, value: int | float) -> None:
        """Add a value."""
        series = self._series.setdefault(name, _Series())
        series.epochs.append(epoch)
        series.steps.append(step)
        series.values.append(value)

    def latest(self, name: str) -> float:
        """Return the last value of `name`.

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return self._of(name).values[-1]

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the global steps and values of `name`, oldest first.

        Raises:
            UnknownScalarError: if it was never reported.
        """
        return list(zip(self._of(name).steps, self._of(name).values, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the epochs and steps (``int64``) and the values (``float64``) of each scalar."""
        return {name: {"epochs": self.epochs(name), "steps": self.steps(name), "values": self[name]} for name in self}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the values that `state_dict` returned."""
        self._series = {name: _Series(**kept) for name, kept in state.items()}

    def nearest(self, name: str) -> str:
        """Return a hint for a `name` that was never reported: the nearest name, and a list of all names."""
        return f"{nearest(name, self, n=1)} Reported so far: {', '.join(sorted(self)) or 'none'}.".lstrip()

    def _of(self, name: str) -> _Series:
        try:
            return self._series[name]
        except KeyError:
            raise UnknownScalarError(f"no scalar {name!r} was reported so far. {self.nearest(name)}") from None

    # The table that a notebook shows.

    def _repr_html_(self) -> str:
        titles = ("", "values", "last", "least", "in epoch", "greatest", "in epoch")
        header = "".join(f"<th>{title}</th>" for title in titles)
        return f"<table><tr>{header}</tr>{''.join(map(self._html_row, self))}</table>{self._html_image()}"

    def _html_row(self, name: str) -> str:
        values = self[name]
        cells = [html.escape(name), str(len(values)), f"{values[-1]:.6g}"]
        for mode in ("min", "max"):
            best = self.best(name, mode)
            cells += ["", ""] if best is None else [f"{best[0]:.6g}", str(best[1])]
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

    def _html_image(self) -> str:
        names = list(self)[:_PLOTS_IN_NOTEBOOK]
        if not names or importlib.util.find_spec("matplotlib") is None:
            return ""
        # pyplot would keep the figure, and show it a second time.
        from matplotlib.figure import Figure

        figure, image = Figure(), io.BytesIO()
        self.plot(*names, figure=figure)
        figure.savefig(image, format="png")
        return f'<img src="data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}">'


class _Series:
    """The values of one scalar, each with the epoch and global step of its report."""

    def __init__(self, epochs: Iterable[int] = (), steps: Iterable[int] = (), values: Iterable[float] = ()) -> None:
        self.epochs, self.steps, self.values = array("q", epochs), array("q", steps), array("d", values)


def column_name(name: str) -> str:
    """Return the column of a scalar in a file: ``scalar/<name>`` if it is named like one of the first columns."""
    return f"scalar/{name}" if name in POSITION_COLUMNS else name


def grid_of_plots(figure: Any, names: Sequence[str], label: str = "global_step") -> np.ndarray:
    """Divide a Matplotlib figure into a grid of empty plots, and resize it to fit them.

    Args:
        figure: the figure.
        names: the titles of the plots.
        label: the label of the x axes.

    Returns:
        The `matplotlib.axes.Axes` of the plots, as an array.
    """
    columns = min(len(names), _COLUMNS_OF_PLOTS)
    rows = math.ceil(len(names) / columns)
    figure.set_size_inches(4 * columns, 2.6 * rows)
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False).ravel()
    plots, unused = np.split(axes, [len(names)])
    for name, plot in zip(names, plots, strict=True):
        plot.set_title(name)
        plot.set_xlabel(label)
    for plot in unused:
        plot.remove()
    return plots
