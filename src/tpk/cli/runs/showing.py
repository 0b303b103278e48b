"""``tpk show``: what a run was, how it ended, and how to resume it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from tpk.cli.framework import examples, json_option
from tpk.cli.runs.run_table import state_text
from tpk.cli.table import print_table, printable
from tpk.text import human_duration

if TYPE_CHECKING:
    from tpk.cli.runs.run import Run


@click.command(
    epilog=examples("tpk show                    # the newest run below ./runs", "tpk show runs/digits --json")
)
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False), metavar="[RUN]")
@json_option
def show(directory: Path | None, as_json: bool) -> int:
    """Show what a run was, how it ended, and how to resume it.

    RUN is the directory of a run; by default the newest run below "runs".
    """
    from tpk.cli.runs.run import find_run, newest_run

    run, now = newest_run() if directory is None else find_run(directory), time.time()
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
        print_table(("statistic", "values", "last", "best", "epoch", "step"), _statistic_rows(run))
    print("\n" + printable(f"To resume: {how_to_resume_run(run)}"))
    if run.run_file:
        print(printable(f"To repeat: tpk train {shlex.quote(str(run.run_file))}"))
    return 0


def _as_data(run: Run, now: float) -> dict[str, Any]:
    from tpk.monitors.values import json_number

    return {
        "run": run.name,
        "state": run.state,
        "seconds": run.seconds(now),
        "attempts": [attrs.asdict(each) for each in run.attempts],
        "checkpoint": None if run.checkpoint is None else run.checkpoint.prefix,
        "go_on": how_to_resume_run(run),
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
    from tpk.checkpoint.files import checkpoint_steps

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
    options = ", ".join(f"{name}={value}" for name, value in (described.get("options") or {}).items())
    return f"{described.get('name')}({options})" if options else str(described.get("name"))


def _attempt_rows(run: Run, now: float) -> list[list[str]]:
    rows = []
    for number, each in enumerate(run.attempts, 1):
        seconds = None if each.ended is None else each.ended - each.began
        state = run.state if number == len(run.attempts) else "killed"
        rows.append(
            [
                str(number),
                datetime.fromtimestamp(each.began).strftime("%Y-%m-%d %H:%M:%S"),
                human_duration(run.seconds(now) if len(run.attempts) == 1 else seconds),
                "-" if each.from_step is None else f"{each.from_step:,}",
                "-" if each.step is None else f"{each.step:,}",
                f"{each.end}: {each.reason}" if each.end else state,
            ]
        )
    return rows


def _statistic_rows(run: Run) -> list[list[str]]:
    rows = []
    for name, values in run.history.items():
        best = run.best(name)
        cells = ["-"] * 3 if best is None else [f"{best[0]:.6g}", str(best[1]), f"{best[2]:,}"]
        rows.append([name, str(len(values)), f"{values[-1]:.6g}", *cells])
    return rows


def how_to_resume_run(run: Run) -> str:
    """Return a command, or a sentence, that says how to resume a run from its newest checkpoint."""
    if run.state == "running":
        return "it is running."
    if run.checkpoint is None:
        return "no checkpoint is complete; start it again, in another directory, with callbacks=['ModelSaver']."
    processes = run.config.get("world_size") or 1
    before = f"in {processes} processes, as before: " if processes > 1 else ""
    return before + _command(run) + (", with a greater max_epoch" if run.state == "finished" else "")


def _command(run: Run) -> str:
    from tpk.train.run.names import how_to_resume

    if run.run_file:
        return f"tpk train {shlex.quote(str(run.run_file))} --resume"
    last = run.attempts[-1] if run.attempts else None
    argv = last.argv if last and last.argv else []
    options = how_to_resume(run.directory.resolve(), argv)
    if last is None or not argv:
        return f"the same training, with {options}"
    if options.startswith("tpk train"):
        return options
    # Of an option that is given twice, the last one counts.
    separator = " " if options.startswith("--") else ", with "
    return f"cd {shlex.quote(last.cwd)} && {shlex.join(['python', *argv])}{separator}{options}"
