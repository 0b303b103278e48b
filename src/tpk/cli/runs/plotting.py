"""``tpk plot``: curves of statistics of one or several runs."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpk.cli.framework import examples
from tpk.errors import ConfigError, UnknownScalarError
from tpk.plugin.creation import import_optional

if TYPE_CHECKING:
    import numpy as np

    from tpk.cli.runs.run import Run

FORMATS = (".png", ".svg", ".pdf")
_PALE = 0.3


@click.command(
    epilog=examples(
        "tpk plot -o curves.png                        # the newest run below ./runs",
        "tpk plot runs/a runs/b --stat cost --stat 'validation_*' --smooth 0.8 -o curves.svg",
    )
)
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path, file_okay=False), metavar="[RUN]...")
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The file to write: {', '.join(FORMATS)}.",
)
@click.option(
    "--stat",
    "patterns",
    metavar="NAME",
    multiple=True,
    help="A statistic, or a pattern such as 'validation_*'. May be repeated.  [default: all]",
)
@click.option(
    "--smooth",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="The weight of earlier values in a moving average. The reported values stay visible behind it.",
)
@click.option("--x", type=click.Choice(["step", "epoch"]), default="step", show_default=True, help="The x axis.")
def plot(directories: tuple[Path, ...], out: Path, patterns: tuple[str, ...], smooth: float, x: str) -> int:
    """Plot statistics of runs over their steps. Needs Matplotlib.

    Each statistic has its own plot with one curve a run. RUN is the directory of a run, or a directory with runs below
    it; by default the newest run below "runs".
    """
    from tpk.cli.runs.run import find_runs, newest_run, short_names
    from tpk.monitors.history import grid_of_plots

    if out.suffix not in FORMATS:
        raise ConfigError(f"{str(out)!r}: expected a file name that ends in one of {', '.join(FORMATS)}.")
    found = find_runs(directories) if directories else [newest_run()]
    names = _choose(found, patterns)
    figures = import_optional("matplotlib.figure", "tpk plot", "matplotlib", "The values are in stats.jsonl.")
    figure = figures.Figure(layout="constrained")
    plots = grid_of_plots(figure, names, "epoch" if x == "epoch" else "global_step")
    lines: dict[str, Any] = {}
    for name, axes in zip(names, plots, strict=True):
        axes.grid(alpha=_PALE)
        for number, (run, short) in enumerate(zip(found, short_names(found), strict=True)):
            if name in run.history:
                positions = run.history.epochs(name) if x == "epoch" else run.history.steps(name)
                lines[short] = _draw(axes, f"C{number}", positions, run.history[name], smooth)
    # A picture of one run has a legend too: it is passed on without the command that made it.
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=min(len(lines), 4), frameon=False)
    try:
        figure.savefig(out, dpi=120)
    except OSError as error:
        raise ConfigError(f"{str(out)!r} cannot be written: {error.strerror}.") from error
    print(f"{out}: {', '.join(names)} of {len(found)} run{'s' if len(found) > 1 else ''}")
    return 0


def _choose(runs: Sequence[Run], patterns: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(name for run in runs for name in run.history))
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            hint = next((run.history.nearest(pattern) for run in runs if run.history), "Nothing was reported.")
            raise UnknownScalarError(f"no run has a statistic {pattern!r}. {hint}")
    if not known:
        raise UnknownScalarError(f"{', '.join(run.name for run in runs)} reported no statistics so far.")
    return list(dict.fromkeys(name for pattern in patterns or ["*"] for name in fnmatch.filter(known, pattern)))


def _draw(axes: Any, color: str, positions: np.ndarray, values: np.ndarray, smooth: float) -> Any:
    if smooth:
        axes.plot(positions, values, color=color, alpha=_PALE, linewidth=1)
        values = smoothed(values, smooth)
    (line,) = axes.plot(positions, values, color=color, marker="." if len(positions) < 30 else "")
    return line


def smoothed(values: np.ndarray, weight: float) -> np.ndarray:
    """Return the moving average of `values`, in which each value counts `weight` times as much as the next.

    The weights add up to 1 from the first value on, so the average is not biased towards 0 (the correction of Kingma
    and Ba, "Adam", 2014, section 3). Values that are not finite are left out of the average and returned as they are.

    Args:
        values: the values.
        weight: from 0, which returns the values themselves, to less than 1.
    """
    import numpy as np

    result, average, total = values.copy(), 0.0, 0.0
    for position in np.flatnonzero(np.isfinite(values)):
        average = weight * average + (1 - weight) * values[position]
        total = weight * total + (1 - weight)
        result[position] = average / total
    return result
