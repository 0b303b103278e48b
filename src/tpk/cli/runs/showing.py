"""``tpk show``: what a run was, how it ended, and how to go on."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from tpk.checkpoint.files import checkpoint_steps
from tpk.cli.runs.listing import state_text
from tpk.cli.runs.run import Run, find_run
from tpk.cli.table import print_table, printable
from tpk.monitors.values import json_number
from tpk.text import human_duration
from tpk.train.run.attempts import Attempt
from tpk.train.run.names import how_to_resume


def show_run(directory: Path, *, as_json: bool, now: float) -> int:
    """Write what the files of a run tell to stdout.

    Args:
        directory: of the run.
        as_json: write JSON in place of text.
        now: seconds since 1970.

    Returns:
        The exit status, 0.

    Raises:
        ConfigError: if there is no run, or its files cannot be read.
    """
    run = find_run(directory)
    if as_json:
        print(json.dumps(_as_data(run, now), indent=2))
        return 0
    print(printable(f"{run.name}: {state_text(run)}{_reason(run)}") + "\n")
    for title, text in _facts(run):
        print(printable(f"{title + ':':12} {text}"))
    if run.attempts:
        print()
        print_table(("attempt", "began", "duration", "from step", "to step", "end"), _attempt_rows(run, now))
    if run.history:
        print()
        print_table(
            ("statistic", "values", "last", "best", "epoch", "step"), list(map(_statistic_row(run), run.history))
        )
    print("\n" + printable(f"To go on: {how_to_go_on(run)}"))
    if run.run_file:
        print(printable(f"To repeat: tpk train {shlex.quote(str(run.run_file))}"))
    return 0


def _as_data(run: Run, now: float) -> dict[str, Any]:
    return {
        "run": run.name,
        "state": run.state,
        "seconds": run.seconds(now),
        "attempts": [attrs.asdict(each) for each in run.attempts],
        "checkpoint": None if run.checkpoint is None else run.checkpoint.prefix,
        "go_on": how_to_go_on(run),
        "run_file": None if run.run_file is None else str(run.run_file),
        "statistics": {
            name: {
                "last": json_number(run.history.latest(name)),
                "best": None if (best := run.best(name)) is None else json_number(best[0]),
            }
            for name in run.history
        },
        "config": run.config,
    }


def _reason(run: Run) -> str:
    if run.owner is not None:
        return f", by process {run.owner['pid']} on {run.owner['host']}"
    reason = run.attempts[-1].reason if run.attempts else ""
    return f": {reason}" if reason else ""


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    config = run.config
    if isinstance(config.get("model"), Mapping):
        yield "model", _plugin_text(config["model"])
    yield "trainer", _plugin_text(config.get("trainer"))
    yield "strategy", run.strategy
    if config.get("input"):
        yield "input", str(config["input"].get("name") if isinstance(config["input"], Mapping) else config["input"])
    epochs = "any number of epochs" if config.get("max_epoch") is None else f"{config['max_epoch']} epochs"
    yield "epochs", f"{epochs} of {config.get('steps_per_epoch')} steps"
    for kind in ("callbacks", "monitors"):
        yield kind, ", ".join(str(each.get("name")) for each in config.get(kind) or () if isinstance(each, Mapping))
    yield "script", shlex.join(map(str, config.get("argv") or ()))
    versions = config.get("versions") or {}
    git = config.get("git")
    commit = f"; git {git['commit'][:12]}{', with changes' if git.get('is_dirty') else ''}" if git else ""
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items()) + commit
    steps = checkpoint_steps(run.directory)
    newest = "none is complete" if run.checkpoint is None else f"the newest complete one is {run.checkpoint.name}"
    yield "checkpoints", f"{len(steps)}; {newest}" if steps else "none"


def _plugin_text(described: Any) -> str:
    if not isinstance(described, Mapping):
        return str(described)
    options = described.get("options") or {}
    text = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{described.get('name')}({text})" if text else str(described.get("name"))


def _attempt_rows(run: Run, now: float) -> list[list[str]]:
    rows = []
    for number, each in enumerate(run.attempts, 1):
        is_last = number == len(run.attempts)
        seconds = (
            run.seconds(now) if len(run.attempts) == 1 else None if each.ended is None else each.ended - each.began
        )
        rows.append(
            [
                str(number),
                datetime.fromtimestamp(each.began).strftime("%Y-%m-%d %H:%M:%S"),
                human_duration(seconds),
                "-" if each.from_step is None else f"{each.from_step:,}",
                f"{each.step:,}" if each.step is not None else "-",
                _end(each, run.state if is_last else "killed"),
            ]
        )
    return rows


def _end(attempt: Attempt, otherwise: str) -> str:
    return f"{attempt.end}: {attempt.reason}" if attempt.end else otherwise


def _statistic_row(run: Run) -> Any:
    def row(name: str) -> list[str]:
        best = run.best(name)
        found = ["-"] * 3 if best is None else [f"{best[0]:.6g}", str(best[1]), f"{best[2]:,}"]
        return [name, str(len(run.history[name])), f"{run.history.latest(name):.6g}", *found]

    return row


def how_to_go_on(run: Run) -> str:
    """Return what to do for a run to go on from its newest checkpoint."""
    if run.state == "running":
        return "it is running."
    if run.checkpoint is None:
        return "there is no complete checkpoint; start it again, in another directory, with callbacks=['ModelSaver']."
    more = ", with a greater max_epoch" if run.state == "finished" else ""
    processes = run.config.get("world_size") or 1
    return f"{f'in {processes} processes, as before: ' if processes > 1 else ''}{_way_on(run)}{more}"


def _way_on(run: Run) -> str:
    last = run.attempts[-1] if run.attempts else None
    by_run_file = f"tpk train {shlex.quote(str(run.run_file))} --resume"
    if last is None or last.argv is None:
        return by_run_file if run.run_file else f"the same training, with {how_to_resume(run.directory.resolve(), ())}"
    options = how_to_resume(_directory_from(run, last.cwd), last.argv)
    command = f"cd {shlex.quote(last.cwd)} && {shlex.join(['python', *_without_run(last.argv)])}"
    if options.startswith("tpk train"):
        return by_run_file if run.run_file else f"cd {shlex.quote(last.cwd)} && {options}"
    if options.startswith("--"):
        return f"{command} {options}"
    own_run_dir = os.path.realpath(os.path.join(last.cwd, str(run.config.get("run_dir"))))
    if run.config.get("resume") in ("auto", "must") and own_run_dir == str(run.directory.resolve()):
        return command
    return by_run_file if run.run_file else f"{command}, in which the training gets {options}"


def _directory_from(run: Run, cwd: str) -> Path:
    """Return where a run is, as a command names it in another directory."""
    there, here = run.directory.resolve(), Path(cwd).resolve()
    return there.relative_to(here) if there.is_relative_to(here) else there


def _without_run(argv: list[str]) -> list[str]:
    """Return a command without ``--run-dir`` and ``--resume``, which are given anew."""
    kept, words = list[str](), iter(argv)
    for word in words:
        if word in ("--run-dir", "--resume"):
            next(words, None)
        elif not word.startswith(("--run-dir=", "--resume=")):
            kept.append(word)
    return kept
