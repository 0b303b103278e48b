"""``tpk runs``: a table of runs."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpk.cli.framework import examples, json_option
from tpk.cli.table import print_table, printable
from tpk.errors import ConfigError
from tpk.plugin.recorded_options import leaves_of
from tpk.text import human_duration, shorten

if TYPE_CHECKING:
    from tpk.cli.runs.run import Run

_MAX_STATISTICS = 2
_MAX_DIFFERENCES = 8
_MAX_VALUE_LENGTH = 40
_IN_COLUMNS = ("strategy", "num_replicas", "world_size", "max_epoch")
"""Options that the table shows in columns; the name of the strategy is an option of the trainer, too."""
_NOT_COMPARED = ("argv", "run_dir", "resume", "devices")
"""Options about where a run is and how it was started, not about what was trained."""
_STATES = ("running", "failed", "killed", "interrupted", "unknown", "finished")
_MISSING = "-"


@click.command(
    epilog=examples(
        "tpk runs                                     # the runs below ./runs",
        "tpk runs runs/digits --sort validation_error --stat validation_error",
        "tpk runs runs --json | jq '.[] | select(.state == \"killed\") | .run'",
    )
)
@click.argument(
    "directories", nargs=-1, type=click.Path(path_type=Path, file_okay=False), default=("runs",), metavar="[DIR]..."
)
@click.option(
    "--stat",
    "statistics",
    metavar="NAME",
    multiple=True,
    help="A statistic to show. May be repeated.  [default: those that callbacks follow, or costs]",
)
@click.option(
    "--sort",
    metavar="KEY",
    default="began",
    show_default=True,
    help="began, name, state, duration, step, or a statistic, best first.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@json_option
def runs(directories: tuple[Path, ...], statistics: tuple[str, ...], sort: str, reverse: bool, as_json: bool) -> int:
    """List runs: how far they are and how they ended.

    A second table shows in which options their configurations differ. A run is running while its directory is locked;
    finished, interrupted or failed if it recorded that; otherwise killed. DIR is the directory of a run, or one with
    runs below it; by default "runs".
    """
    from tpk.cli.runs.run import find_runs

    now = time.time()
    found = find_runs(directories)
    broken = {run.name: problem for run in found if (problem := run.problem()) is not None}
    readable = _sorted([run for run in found if run.name not in broken], sort, reverse, now)
    differing = differences(readable)
    if as_json:
        rows = [{**_as_data(run, now), "differs": each} for run, each in zip(readable, differing, strict=True)]
        rows += [{"run": name, "state": "unreadable", "reason": problem} for name, problem in broken.items()]
        print(json.dumps(rows, indent=2))
        return int(bool(broken))
    if readable:
        _print(readable, list(statistics) or _main_statistics(readable), now)
    texts = [(run.name, _differences_text(each)) for run, each in zip(readable, differing, strict=True)]
    if any(text for _, text in texts):
        print()
        print_table(["run", "differs in"], [row for row in texts if row[1]])
    for name, problem in broken.items():
        print(printable(f"{name}: {problem}"))
    return int(bool(broken))


def _sorted(runs: list[Run], sort: str, reverse: bool, now: float) -> list[Run]:
    keys: dict[str, Any] = {
        "began": lambda run: run.attempts[0].began if run.attempts else 0,
        "name": lambda run: run.name,
        "state": lambda run: _STATES.index(run.state),
        "duration": lambda run: run.seconds(now) or 0,
        "step": lambda run: run.step or 0,
    }
    known = {name for run in runs for name in run.history}
    if sort not in keys and sort not in known:
        raise ConfigError(
            f"--sort {sort}: expected one of {', '.join(keys)}, or a statistic: {', '.join(sorted(known))}."
        )
    return sorted(runs, key=keys.get(sort) or (lambda run: _rank(run, sort)), reverse=reverse)


def _rank(run: Run, name: str) -> float:
    """Return a number that is less for better runs, and infinite for runs without a value."""
    best = run.best(name)
    value = best[0] if best else run.history.latest(name) if name in run.history else math.nan
    if math.isnan(value):
        return math.inf
    return -value if run.directions.get(name) == "max" else value


def _main_statistics(runs: Sequence[Run]) -> list[str]:
    """Return the statistics that callbacks follow, and costs, the most important of each run first."""
    ranked = itertools.zip_longest(*(run.directions for run in runs))
    reported = {name for run in runs for name in run.history}
    return [name for name in dict.fromkeys(itertools.chain(*ranked)) if name in reported][:_MAX_STATISTICS]


def _as_data(run: Run, now: float) -> dict[str, Any]:
    from tpk.monitors.values import json_number

    last = run.attempts[-1] if run.attempts else None
    best = {name: found for name in run.directions if (found := run.best(name)) is not None}
    return {
        "run": run.name,
        "state": run.state,
        "resumable": run.state != "running" and run.checkpoint is not None,
        "reason": last.reason if last and run.state != "running" else "",
        "checkpoint": None if run.checkpoint is None else run.checkpoint.prefix,
        "strategy": run.strategy,
        "epoch": run.epoch,
        "max_epoch": run.config.get("max_epoch"),
        "step": run.step,
        "began": None if last is None else datetime.fromtimestamp(run.attempts[0].began, timezone.utc).isoformat(),
        "seconds": run.seconds(now),
        "attempts": len(run.attempts),
        "last": {name: json_number(run.history.latest(name)) for name in run.history},
        "best": {
            name: {"value": json_number(value), "epoch": epoch, "step": step}
            for name, (value, epoch, step) in best.items()
        },
    }


def _print(runs: Sequence[Run], statistics: Sequence[str], now: float) -> None:
    # The most important ones first: a narrow terminal has no room for the last ones.
    header = ["run", "state", "epoch", "step"]
    header += [title for name in statistics for title in (name, "best (epoch)")]
    header += ["duration", "began", "strategy"]
    rows = []
    for run in runs:
        began = datetime.fromtimestamp(run.attempts[0].began) if run.attempts else None
        row = [
            run.name,
            state_text(run),
            _MISSING if run.epoch is None else f"{run.epoch}/{run.config.get('max_epoch') or '-'}",
            _MISSING if run.step is None else f"{run.step:,}",
        ]
        for name in statistics:
            best = run.best(name)
            row.append(f"{run.history.latest(name):.5g}" if name in run.history else _MISSING)
            row.append(_MISSING if best is None else f"{best[0]:.5g} ({best[1]})")
        row += [
            human_duration(run.seconds(now)),
            _MISSING if began is None else began.strftime("%Y-%m-%d %H:%M"),
            run.strategy,
        ]
        rows.append(row)
    print_table(header, rows, kept=2)


def state_text(run: Run) -> str:
    """Return the state of a run, and the step at which it can be resumed."""
    is_over = run.state in ("running", "finished")
    return run.state if is_over or run.checkpoint is None else f"{run.state}, resumable at {run.checkpoint.step:,}"


def _differences_text(differing: dict[str, Any]) -> str:
    """Return the differences of a run in one cell, by the last names of their paths. ``--json`` has all of them."""
    shown = {path: value for path, value in differing.items() if path not in _IN_COLUMNS}
    texts = list(dict.fromkeys(_difference_text(path, value, shown) for path, value in shown.items()))
    if len(texts) > _MAX_DIFFERENCES:
        texts[_MAX_DIFFERENCES:] = [f"… {len(texts) - _MAX_DIFFERENCES} more (--json)"]
    return ", ".join(texts)


def _difference_text(path: str, value: Any, differing: dict[str, Any]) -> str:
    name = path.rpartition(".")[2]
    if any(other.rpartition(".")[2] == name and differing[other] != value for other in differing):
        name = ".".join(path.split(".")[-2:])
    if value == _MISSING:
        return f"no {name}"
    is_plugin = value == name.partition("#")[0]
    return name if is_plugin else f"{name}={shorten(str(value), _MAX_VALUE_LENGTH)}"


def differences(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return, for each run, the options in which the runs differ.

    Returns:
        Names such as ``callbacks.ModelSaver.max_to_keep`` with their values; ``"-"`` where a run lacks the option. If
        runs have different plugins, the options of a plugin are included only if the runs that have it differ in them.
        ``argv`` has the arguments of the script that the runs do not share, without those that say where the run is.
    """
    configs = [{name: value for name, value in run.config.items() if name not in _NOT_COMPARED} for run in runs]
    options = [leaves_of(config) for config in configs]
    names = dict.fromkeys(name for each in options for name in each)
    differing = [name for name in names if _differ([each.get(name, _MISSING) for each in options])]
    plugin_options = {name for name in differing if any(name.startswith(f"{other}.") for other in differing)}
    found = []
    for each in options:
        own = {}
        for name in differing:
            if name not in plugin_options:
                own[name] = each.get(name, _MISSING)
            elif name in each and _differ([other[name] for other in options if name in other]):
                own[name] = each[name]
        found.append(own)
    arguments = [_arguments(run) for run in runs]
    for own, words in zip(found, arguments, strict=True):
        if special := [word for word in words if not all(word in others for others in arguments)]:
            own["argv"] = " ".join(special)
    return found


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values)


def _arguments(run: Run) -> list[str]:
    """Return the arguments of the script, options joined with their values, except those that say where the run is."""
    given, found = [str(each) for each in run.config.get("argv") or ()][1:], list[str]()
    run_dir = os.path.normpath(str(run.config.get("run_dir") or run.directory))
    while given:
        words = [given.pop(0)]
        if words[0].startswith("-") and "=" not in words[0] and given and not given[0].startswith("--"):
            words.append(given.pop(0))
        option, _, value = words[0].partition("=")
        if option in ("--run-dir", "--resume") or run_dir in map(os.path.normpath, (*words, value)):
            continue
        found.append(" ".join(words))
    return found
