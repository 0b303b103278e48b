"""``tpk runs``, ``tpk show``, ``tpk plot`` and ``tpk board``: their arguments."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tpk.cli.framework import examples, json_option

_directory = click.Path(path_type=Path, file_okay=False)


@click.command(
    epilog=examples(
        "tpk runs                                     # those below ./runs",
        "tpk runs runs/digits --sort validation_error --stat validation_error",
        "tpk runs runs --json | jq '.[] | select(.state == \"killed\") | .run'",
    )
)
@click.argument("directories", nargs=-1, type=_directory, metavar="[DIR]...")
@click.option(
    "--stat",
    "statistics",
    metavar="NAME",
    multiple=True,
    help="A statistic to show; may be given several times.  [default: what callbacks follow, or costs]",
)
@click.option(
    "--sort",
    metavar="KEY",
    default="began",
    show_default=True,
    help="began, name, state, duration, step, or a statistic, whose best come first.",
)
@click.option("--reverse", is_flag=True, help="In the other order.")
@json_option
def runs(directories: tuple[Path, ...], statistics: tuple[str, ...], sort: str, reverse: bool, as_json: bool) -> int:
    """List runs: how far they are, and how they ended.

    The last column says in what their configurations differ. A run is running as long as its directory is locked;
    killed, if it is not, and nobody has written down how it ended; else finished, interrupted or failed. DIR is the
    directory of a run, or one with runs below; by default "runs".
    """
    from tpk.cli.runs.listing import list_runs

    return list_runs(
        directories or (Path("runs"),), statistics, sort=sort, reverse=reverse, as_json=as_json, now=time.time()
    )


@click.command(epilog=examples("tpk show runs/digits", "tpk show runs/digits --json"))
@click.argument("run", type=_directory)
@json_option
def show(run: Path, as_json: bool) -> int:
    """Show what a run was, how it ended, and how to go on."""
    from tpk.cli.runs.showing import show_run

    return show_run(run, as_json=as_json, now=time.time())


@click.command(
    epilog=examples(
        "tpk plot runs/digits -o curves.png",
        "tpk plot runs/a runs/b --stat cost --stat 'validation_*' --smooth 0.8 -o curves.html",
    )
)
@click.argument("directories", nargs=-1, required=True, type=_directory, metavar="RUN...")
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file: .html needs nothing else; .png, .svg or .pdf need Matplotlib.",
)
@click.option(
    "--stat",
    "patterns",
    metavar="NAME",
    multiple=True,
    help="A statistic, or a pattern such as 'validation_*'; may be given several times.  [default: all]",
)
@click.option(
    "--smooth",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="The weight of former values in a moving average; what was reported stays pale behind it.",
)
@click.option("--x", type=click.Choice(["step", "epoch"]), default="step", show_default=True, help="The abscissa.")
def plot(directories: tuple[Path, ...], out: Path, patterns: tuple[str, ...], smooth: float, x: str) -> int:
    """Plot statistics of runs over their steps.

    Each statistic has a plot of its own, with a curve for each run. RUN is the directory of a run, or one with runs
    below.
    """
    from tpk.cli.runs.plotting import plot_runs

    return plot_runs(directories, out, patterns, smooth=smooth, by_epoch=x == "epoch")


@click.command(epilog=examples("tpk board runs/digits", "tpk board runs/a runs/b --port 6007"))
@click.argument("directories", nargs=-1, required=True, type=_directory, metavar="RUN...")
@click.option("--port", type=click.IntRange(0, 65535), default=6006, show_default=True, help="0 for one that is free.")
@click.option("--host", default="localhost", show_default=True, help="The address to listen at; 0.0.0.0 for all.")
def board(directories: tuple[Path, ...], port: int, host: str) -> int:
    """Start TensorBoard with runs, under their names.

    RUN is the directory of a run, or one with runs below.
    """
    from tpk.cli.runs.board import start_board

    return start_board(directories, host, port)
