"""``tpk checkpoint``, and ``tpk checkpoint ls``, which needs no TensorFlow."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import attrs
import click

from tpk.cli.framework import LazyGroup, examples, json_option, quiet_tensorflow
from tpk.cli.table import print_table
from tpk.errors import CheckpointError
from tpk.text import human_size

_FILE = re.compile(r"(.+)\.(?:index|data-\d{5}-of-\d{5})")
_STEP = re.compile(r".*-(\d+)")
_STATE = re.compile(r"state-(\d+)\.json")
_POINTER = re.compile(r'\s*model_checkpoint_path:\s*"(?:.*[/\\])?([^"/\\]+)"')


@click.group(
    cls=LazyGroup,
    targets={
        "ls": "tpk.cli.checkpoint_command:ls",
        "show": "tpk.cli.checkpoint_values:show",
        "diff": "tpk.cli.checkpoint_values:diff",
        "to-npz": "tpk.cli.checkpoint_values:to_npz",
    },
    epilog=examples(
        "tpk checkpoint ls runs/digits --verify",
        "tpk checkpoint show runs/digits",
        "tpk checkpoint diff runs/digits/900 runs/digits/1800",
        "tpk checkpoint to-npz runs/digits/min-val_error weights.npz",
    ),
)
def checkpoint() -> None:
    """List, show, compare and convert checkpoints.

    A CHECKPOINT is the prefix or a file of one; a directory, for its newest complete one; DIRECTORY/STEP;
    DIRECTORY/NAME of a saver of the best, such as min-val_error; or an .npz file.
    """


@attrs.frozen
class ListedCheckpoint:
    """A row of the list.

    Attributes:
        name: the name of the checkpoint, such as ``model-900``.
        step: the global step; None if the name has none.
        time: when the last of its files was written.
        size: the size of all of its files, in bytes.
        state: whether it has a training state, so that a run can be resumed.
        problem: why it is not complete; None if no problem was found.
        verified: whether every byte was read, or only names and sizes.
        latest: whether the file ``checkpoint`` names it.
    """

    name: str
    step: int | None
    time: datetime
    size: int
    state: bool
    problem: str | None
    verified: bool
    latest: bool


@click.command(epilog=examples("tpk checkpoint ls runs/digits", "tpk checkpoint ls runs/digits --verify --json"))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--verify",
    is_flag=True,
    help="Read every byte and compare checksums. Without a training state, TensorFlow does that.",
)
@json_option
def ls(directory: Path, verify: bool, as_json: bool) -> int:
    """List the checkpoints of a run's directory."""
    quiet_tensorflow()
    with errors_of_files():
        found = find_checkpoints(directory, verify=verify)
    if not found:
        below = sorted(path.parent for path in directory.glob("*/checkpoint"))
        hint = f" There are some in the directories below it: name one, such as {str(below[-1])!r}." if below else ""
        raise CheckpointError(f"the directory {str(directory)!r} has no checkpoint.{hint}")
    if as_json:
        print(json.dumps([{**attrs.asdict(each), "time": each.time.isoformat()} for each in found], indent=2))
        return 0
    rows = [
        (
            "-" if each.step is None else str(each.step),
            each.name + (" *" if each.latest else ""),
            each.time.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            human_size(each.size),
            "yes" if each.state else "no",
            f"no: {each.problem}" if each.problem else "yes" if each.verified else "by names and sizes",
        )
        for each in found
    ]
    print_table(("step", "name (* latest)", "time", "size", "state", "complete"), rows)
    if not verify:
        print("The contents were not read; --verify reads them.")
    return 0


@contextmanager
def errors_of_files() -> Iterator[None]:
    """Turn the errors of the operating system about files into errors that are shown in one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CheckpointError(str(error)) from error


def find_checkpoints(directory: Path, *, verify: bool) -> list[ListedCheckpoint]:
    """Return the checkpoints of a directory by step, complete or not.

    Args:
        directory: the directory.
        verify: read every byte and compare checksums.

    Raises:
        CheckpointError: if the directory does not exist.
    """
    if not directory.is_dir():
        raise CheckpointError(f"the directory {str(directory)!r} does not exist. Give the directory of a run.")
    files: dict[str, dict[str, os.stat_result]] = {}
    steps: dict[str, int] = {}
    for entry in os.scandir(directory):
        if match := _FILE.fullmatch(entry.name):
            name = match[1]
        elif match := _STATE.fullmatch(entry.name):
            name = _name_in_state(directory, int(match[1]))
            steps[name] = int(match[1])
        else:
            continue
        files.setdefault(name, {})[entry.name] = entry.stat()
    latest = _latest_name(directory)
    found = []
    for name, stats in files.items():
        match = _STEP.fullmatch(name)
        found.append(
            ListedCheckpoint(
                name=name,
                step=steps.get(name, int(match[1]) if match else None),
                time=datetime.fromtimestamp(max(stat.st_mtime for stat in stats.values()), timezone.utc),
                size=sum(stat.st_size for stat in stats.values()),
                state=name in steps,
                problem=_problem(directory, name, stats, steps.get(name), verify),
                verified=verify,
                latest=name == latest,
            )
        )
    return sorted(found, key=lambda each: (each.step is not None, each.step or 0, each.name))


def _name_in_state(directory: Path, step: int) -> str:
    """Return the name of the checkpoint that a training state belongs to."""
    from tpk.checkpoint.files import read_state

    try:
        return read_state(directory, step).name
    except CheckpointError:
        return f"model-{step}"


def _latest_name(directory: Path) -> str | None:
    """Return the name of the latest checkpoint in the pointer file, without the directory where it was written."""
    try:
        lines = (directory / "checkpoint").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((match[1] for match in map(_POINTER.match, lines) if match), None)


def _problem(
    directory: Path, name: str, stats: Mapping[str, os.stat_result], step: int | None, verify: bool
) -> str | None:
    """Return why a checkpoint is not complete; None if no problem was found.

    Args:
        directory: where it is.
        name: its name.
        stats: its files.
        step: the step of its training state, if it has one.
        verify: read every byte and compare checksums.
    """
    from tpk.checkpoint.files import read_checkpoint, read_state

    shards = [file for file in stats if file.startswith(f"{name}.data-")]
    if not shards:
        return f"{name}.{'data-*' if f'{name}.index' in stats else 'index'} is missing"
    count = int(shards[0][-5:])
    for file in (f"{name}.index", *(f"{name}.data-{number:05}-of-{count:05}" for number in range(count))):
        if file not in stats:
            return f"{file} is missing"
    try:
        if step is None and verify:
            from tpk.checkpoint.reader import CheckpointReader

            for _ in CheckpointReader(str(directory / name)).values():
                pass
        elif verify and step is not None:
            read_checkpoint(directory, step)
        elif step is not None:
            for file, expected in read_state(directory, step).files.items():
                if file not in stats:
                    return f"{file} is missing"
                if stats[file].st_size != expected["size"]:
                    return f"{file} has {stats[file].st_size} bytes, but should have {expected['size']}"
    except CheckpointError as error:
        return str(error).replace(f"{directory}{os.sep}", "")
    return None
