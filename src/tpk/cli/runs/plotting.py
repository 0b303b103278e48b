"""``tpk plot``: curves of statistics, of several runs side by side."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from pathlib import Path

from tpk.cli.runs.curves import Curve, smoothed
from tpk.cli.runs.run import Run, find_runs, short_names
from tpk.errors import ConfigError, UnknownScalarError
from tpk.plugin.creation import import_optional

FORMATS = (".html", ".png", ".svg", ".pdf")
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
_COLUMNS = 3
_PALE = 0.3


def plot_runs(paths: Sequence[Path], out: Path, patterns: Sequence[str], *, smooth: float, by_epoch: bool) -> int:
    """Write a picture of statistics.

    Args:
        paths: directories of runs, or with runs below.
        out: the file, whose ending says what it is.
        patterns: names of statistics, or patterns for such; all if there are none.
        smooth: the weight of former values in the moving average.
        by_epoch: over the epochs, in place of the steps.

    Returns:
        The exit status, 0.

    Raises:
        ConfigError: if there is no such run, or no such format.
        UnknownScalarError: if no run has such a statistic.
        PluginImportError: if Matplotlib is needed, and not installed.
    """
    if out.suffix not in FORMATS:
        raise ConfigError(f"{str(out)!r}: expected a file that ends in one of {', '.join(FORMATS)}.")
    if not 0 <= smooth < 1:
        raise ConfigError(f"--smooth {smooth}: expected a number from 0 to less than 1.")
    runs = find_runs(paths)
    names = _chosen(runs, patterns)
    plots = {name: _curves(runs, name, smooth, by_epoch) for name in names}
    label = "epoch" if by_epoch else "global_step"
    try:
        if out.suffix == ".html":
            from tpk.cli.runs.page import page_of

            out.write_text(page_of(plots, label), encoding="utf-8")
        else:
            _draw(plots, label, out)
    except OSError as error:
        raise ConfigError(f"{str(out)!r} cannot be written: {error.strerror}.") from error
    print(f"{out}: {', '.join(names)} of {len(runs)} run{'s' if len(runs) > 1 else ''}")
    return 0


def _chosen(runs: Sequence[Run], patterns: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(name for run in runs for name in run.history))
    chosen = dict.fromkeys(name for each in patterns or ["*"] for name in fnmatch.filter(known, each))
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            near = next((run.history.nearest(pattern) for run in runs if run.history), "Nothing was reported.")
            raise UnknownScalarError(f"no run has a statistic {pattern!r}. {near}")
    if not chosen:
        raise UnknownScalarError(f"nothing was reported in {', '.join(run.name for run in runs)}, so far.")
    return list(chosen)


def _curves(runs: Sequence[Run], name: str, smooth: float, by_epoch: bool) -> list[Curve]:
    curves = []
    for number, (run, short) in enumerate(zip(runs, short_names(runs), strict=True)):
        if name in run.history:
            x = run.history.epochs(name) if by_epoch else run.history.steps(name)
            values = run.history[name]
            curves.append(Curve(short, COLORS[number % len(COLORS)], x, values, smoothed(values, smooth)))
    return curves


def _draw(plots: dict[str, list[Curve]], label: str, out: Path) -> None:
    instead = "Or name a file that ends in .html."
    figures = import_optional("matplotlib.figure", str(out), "matplotlib", instead)
    columns = min(len(plots), _COLUMNS)
    rows = math.ceil(len(plots) / columns)
    figure = figures.Figure(figsize=(4.5 * columns, 3 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    lines = {}
    for (name, curves), plot in zip(plots.items(), axes, strict=False):
        for curve in curves:
            marker = "." if len(curve.x) < 30 else ""
            if curve.smooth is not curve.values:
                plot.plot(curve.x, curve.values, color=curve.color, alpha=_PALE, linewidth=1)
            (lines[curve.run],) = plot.plot(curve.x, curve.smooth, color=curve.color, marker=marker)
        plot.set_title(name)
        plot.set_xlabel(label)
        plot.grid(alpha=_PALE)
    for unused in axes[len(plots) :]:
        unused.remove()
    # Also of one run: a picture is passed on without the command that made it.
    figure.legend(
        list(lines.values()), list(lines), loc="outside lower center", ncols=min(len(lines), 4), frameon=False
    )
    figure.savefig(out, dpi=120)
