"""The values that each scalar had over a training."""

from __future__ import annotations

import base64
import difflib
import html
import importlib.util
import io
import json
import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpk.errors import ConfigError, UnknownScalarError
from tpk.plugin.optional import import_optional

_COLUMNS_OF_PLOTS = 3
_RENAMED = ("scalar/epoch_num", "scalar/global_step", "scalar/time")
_PLOTS_IN_NOTEBOOK = 12


class History(Mapping[str, np.ndarray]):
    """The statistics of a training: each value of each scalar, with the epoch and the global step of its report.

    A mapping of names to NumPy arrays; `trainer.history` is one, during the training and after it, and it goes on where
    it was when a training is resumed. A notebook shows it as a table, with plots where Matplotlib is installed.

    Example:
        ```python
        trainer = tpk.launch_train_with_config(config)
        trainer.history["validation_error"].min()
        trainer.history.plot("cost", "validation_error")
        frame = pandas.DataFrame(trainer.history.columns())
        ```
    """

    def __init__(self) -> None:
        self._epochs: dict[str, array[int]] = {}
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}

    # A comparison of arrays is no truth.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the values of `name`, oldest first (``float64``).

        Raises:
            UnknownScalarError: if there are none; it is a `KeyError`, and says what was reported.
        """
        self._check(name)
        return np.array(self._values[name], np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        return f"History({', '.join(f'{name}: {len(values)} values' for name, values in self._values.items())})"

    def steps(self, name: str) -> np.ndarray:
        """Return the global steps at which `name` was reported, oldest first (``int64``).

        Raises:
            UnknownScalarError: if it was not.
        """
        self._check(name)
        return np.array(self._steps[name], np.int64)

    def epochs(self, name: str) -> np.ndarray:
        """Return the epochs in which `name` was reported, oldest first (``int64``).

        Raises:
            UnknownScalarError: if it was not.
        """
        self._check(name)
        return np.array(self._epochs[name], np.int64)

    def columns(self, *names: str) -> dict[str, np.ndarray]:
        """Return a table as columns of one length: a row for each global step at which something was reported.

        Args:
            names: the scalars; by default all.

        Returns:
            ``epoch_num`` and ``global_step`` (``int64``), and the values of each scalar (``float64``), NaN where it has
            none; of several in one step the last. `pandas.DataFrame` takes it as it is. A scalar that is called like
            one of the first two is under ``scalar/<name>``, as in ``stats.jsonl``.

        Raises:
            UnknownScalarError: if one of `names` was not reported.
        """
        chosen = names or tuple(self)
        epoch_of: dict[int, int] = {}
        for name in chosen:
            self._check(name)
            epoch_of.update(zip(self._steps[name], self._epochs[name], strict=True))
        steps = np.array(sorted(epoch_of), np.int64)
        table = {"epoch_num": np.array([epoch_of[step] for step in steps.tolist()], np.int64), "global_step": steps}
        for name in chosen:
            column = np.full(len(steps), np.nan)
            column[np.searchsorted(steps, self.steps(name))] = self[name]
            table[f"scalar/{name}" if name in ("epoch_num", "global_step") else name] = column
        return table

    def plot(self, *names: str) -> Any:
        """Plot scalars over the global step, each in a plot of its own, as a figure of `matplotlib.pyplot`.

        Args:
            names: the scalars; by default all.

        Returns:
            The `matplotlib.axes.Axes`, as an array.

        Raises:
            UnknownScalarError: if one of `names` was not reported, or none at all.
            PluginImportError: if Matplotlib is not installed.

        Example:
            ```python
            trainer.history.plot("cost", "validation_error")
            matplotlib.pyplot.savefig("curves.png")
            ```
        """
        chosen = names or tuple(self)
        for name in chosen or ("",):
            self._check(name)
        instead = "The values are in history.columns()."
        pyplot = import_optional("matplotlib.pyplot", "history.plot()", "matplotlib", instead)
        return self._draw(pyplot.figure(), chosen)

    def best(self, name: str, reverse: bool = False) -> tuple[float, int, int] | None:
        """Return the best value of `name`, and the epoch and the global step of its report.

        Args:
            name: the scalar.
            reverse: the greatest value is the best, not the least.

        Returns:
            Of equal ones the first; None if no value is a number.

        Raises:
            UnknownScalarError: if it was not reported.
        """
        values = -self[name] if reverse else self[name]
        if np.isnan(values).all():
            return None
        position = int(np.nanargmin(values))
        return self._values[name][position], self._epochs[name][position], self._steps[name][position]

    # How values come in, and survive a restart.

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> History:
        """Return what `JSONWriter` has written.

        Args:
            path: the ``stats.jsonl`` of a run, or the directory of the run. A last line that is torn, as a run that was
                killed may leave it, is left out.

        Raises:
            ConfigError: if there is no such file, or it is something else.

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
            self.add(name.removeprefix("scalar/") if name in _RENAMED else name, epoch, step, float(value))

    @property
    def names(self) -> list[str]:
        """The scalars reported so far, in the order of their first reports."""
        return list(self._steps)

    def add(self, name: str, epoch: int, step: int, value: int | float) -> None:
        """Add a value."""
        if name not in self._steps:
            self._epochs[name] = array("q")
            self._steps[name] = array("q")
            self._values[name] = array("d")
        self._values[name].append(value)
        self._steps[name].append(step)
        self._epochs[name].append(epoch)

    def latest(self, name: str) -> float:
        """Return the last value of `name`.

        Raises:
            UnknownScalarError: if there is none.
        """
        self._check(name)
        return self._values[name][-1]

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the steps and values of `name`, oldest first.

        Raises:
            UnknownScalarError: if there are none.
        """
        self._check(name)
        return list(zip(self._steps[name], self._values[name], strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return everything: for each scalar arrays of its epochs and steps (``int64``) and values (``float64``)."""
        return {
            name: {"epochs": self.epochs(name), "steps": self.steps(name), "values": self[name]} for name in self._steps
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._epochs = {name: array("q", kept["epochs"].tolist()) for name, kept in state.items()}
        self._steps = {name: array("q", kept["steps"].tolist()) for name, kept in state.items()}
        self._values = {name: array("d", kept["values"].tolist()) for name, kept in state.items()}

    def nearest(self, name: str) -> str:
        """Return a hint for whoever asks for a `name` that was not reported: what may have been meant, and what was."""
        nearest = difflib.get_close_matches(name, self._steps, n=1)
        hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
        return f"{hint}Reported so far: {', '.join(sorted(self._steps)) or 'none'}."

    def _check(self, name: str) -> None:
        if name not in self._steps:
            raise UnknownScalarError(f"no scalar {name!r} was reported so far. {self.nearest(name)}")

    # How it looks.

    def _draw(self, figure: Any, names: Sequence[str]) -> np.ndarray:
        columns = min(len(names), _COLUMNS_OF_PLOTS)
        rows = math.ceil(len(names) / columns)
        figure.set_size_inches(4 * columns, 2.6 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for name, plot in zip(names, axes, strict=False):
            plot.plot(self._steps[name], self._values[name], marker="." if len(self._steps[name]) < 30 else "")
            plot.set_title(name)
            plot.set_xlabel("global_step")
        for unused in axes[len(names) :]:
            unused.remove()
        figure.tight_layout()
        drawn: np.ndarray = axes[: len(names)]
        return drawn

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        titles = ("", "values", "last", "least", "in epoch", "greatest", "in epoch")
        header = "".join(f"<th>{title}</th>" for title in titles)
        return f"<table><tr>{header}</tr>{''.join(map(self._html_row, self))}</table>{self._html_image()}"

    def _html_row(self, name: str) -> str:
        values = self[name]
        cells = [html.escape(name), str(len(values)), f"{values[-1]:.6g}"]
        for reverse in (False, True):
            best = self.best(name, reverse)
            cells += ["", ""] if best is None else [f"{best[0]:.6g}", str(best[1])]
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

    def _html_image(self) -> str:
        names = self.names[:_PLOTS_IN_NOTEBOOK]
        if not names or importlib.util.find_spec("matplotlib") is None:
            return ""
        # Not by pyplot, which would keep the figure, and show it once more.
        from matplotlib.figure import Figure

        figure, image = Figure(), io.BytesIO()
        self._draw(figure, names)
        figure.savefig(image, format="png")
        return f'<img src="data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}">'
