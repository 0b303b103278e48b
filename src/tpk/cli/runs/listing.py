"""``tpk runs``: runs in a table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tpk.cli.runs.differences import differences
from tpk.cli.runs.run import Run, find_runs
from tpk.cli.table import print_table, printable
from tpk.errors import ConfigError
from tpk.monitors.values import json_number
from tpk.text import human_duration

_MOST_STATISTICS = 2
_MOST_DIFFERENCES = 8
_LONGEST_VALUE = 40
_IN_COLUMNS = ("strategy", "num_replicas", "world_size", "max_epoch")
"""What the table says anyway."""
_STATES = ("running", "failed", "killed", "interrupted", "unknown", "finished")


def list_runs(
    paths: Sequence[Path], statistics: Sequence[str], *, sort: str, reverse: bool, as_json: bool, now: float
) -> int:
    """Write the runs in `paths` to stdout, in a table.

    Args:
        paths: directories of runs, or with runs below.
        statistics: which to show; by default those of which it is known what is better.
        sort: ``"began"``, ``"name"``, ``"state"``, ``"duration"``, ``"step"``, or a statistic, whose best come first.
        reverse: in the other order.
        as_json: write a JSON list in place of the table.
        now: seconds since 1970.

    Returns:
        The exit status: 1 if the files of a run cannot be read.

    Raises:
        ConfigError: if there is none, or no such order.
    """
    found = find_runs(paths)
    broken = {run.name: problem for run in found if (problem := run.problem()) is not None}
    runs = _sorted([run for run in found if run.name not in broken], sort, reverse, now)
    rows = [_as_data(run, now) for run in runs]
    for row, differing in zip(rows, differences(runs), strict=True):
        row["differs"] = differing
    if as_json:
        rows += [{"run": name, "state": "unreadable", "reason": problem} for name, problem in broken.items()]
        print(json.dumps(rows, indent=2))
    else:
        if rows:
            _print(runs, rows, list(statistics) or _main_statistics(runs), now)
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
    """The best runs come first; those that have no value, last."""
    best = run.best(name)
    value = best[0] if best else run.history.latest(name) if name in run.history else math.nan
    if math.isnan(value):
        return math.inf
    return -value if run.directions.get(name) == "max" else value


def _main_statistics(runs: Sequence[Run]) -> list[str]:
    """Return what callbacks follow, and costs, the most important first."""
    ranked = [list(run.directions) for run in runs]
    most = max(map(len, ranked), default=0)
    names = dict.fromkeys(names[place] for place in range(most) for names in ranked if place < len(names))
    return [name for name in names if any(name in run.history for run in runs)][:_MOST_STATISTICS]


def _as_data(run: Run, now: float) -> dict[str, Any]:
    history, last = run.history, run.attempts[-1] if run.attempts else None
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
        "last": {name: json_number(history.latest(name)) for name in history},
        "best": {
            name: {"value": json_number(value), "epoch": epoch, "step": step}
            for name, (value, epoch, step) in best.items()
        },
    }


def _print(runs: Sequence[Run], rows: Sequence[dict[str, Any]], statistics: Sequence[str], now: float) -> None:
    header = ["run", "state", "strategy", "epoch", "step", "began", "duration"]
    header += [title for name in statistics for title in (name, "best (epoch)")]
    lines = []
    for run, row in zip(runs, rows, strict=True):
        line = [
            row["run"],
            state_text(run),
            row["strategy"],
            "-" if row["epoch"] is None else f"{row['epoch']}/{row['max_epoch'] or '-'}",
            "-" if row["step"] is None else f"{row['step']:,}",
            began_text(run),
            human_duration(row["seconds"]),
        ]
        for name in statistics:
            best = run.best(name)
            line.append(f"{run.history.latest(name):.5g}" if name in run.history else "-")
            line.append("-" if best is None else f"{best[0]:.5g} ({best[1]})")
        lines.append(line)
    print_table(header, lines)
    # In a table of its own, as wide as a terminal is: runs of several scripts differ in much.
    if texts := [[row["run"], text] for row in rows if (text := _differences_text(row["differs"]))]:
        print()
        print_table(["run", "differs in"], texts)


def _differences_text(differing: dict[str, Any]) -> str:
    """Return in what a run differs, in few words: all of it is what ``--json`` and ``tpk show`` are for."""
    values = {name: str(value) for name, value in differing.items() if name not in _IN_COLUMNS}
    texts = [
        f"{name}={value if len(value) <= _LONGEST_VALUE else f'{value[: _LONGEST_VALUE - 1]}…'}"
        for name, value in values.items()
    ]
    if len(texts) > _MOST_DIFFERENCES:
        texts[_MOST_DIFFERENCES:] = [f"… {len(texts) - _MOST_DIFFERENCES} more (--json)"]
    return ", ".join(texts)


def state_text(run: Run) -> str:
    """Return the state of a run in a few words, and where it can go on."""
    can_go_on = run.state not in ("running", "finished") and run.checkpoint is not None
    return f"{run.state}, resumable at {run.checkpoint.step:,}" if can_go_on and run.checkpoint else run.state


def began_text(run: Run) -> str:
    """Return when a run began, in local time."""
    if not run.attempts:
        return "-"
    return datetime.fromtimestamp(run.attempts[0].began).strftime("%Y-%m-%d %H:%M")
