"""``tpk checkpoint ls``: the checkpoints of a directory, told from its files alone. Needs no TensorFlow."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

import attrs

from tpk.checkpoint.files import Checkpoint, read_checkpoint, read_state
from tpk.cli.table import print_table
from tpk.errors import CheckpointError
from tpk.text import human_size

_FILE = re.compile(r"(?P<name>.+)\.(?:index|data-(?P<shard>\d{5})-of-(?P<shards>\d{5}))")
_STEP = re.compile(r".*-(\d+)")
_STATE = re.compile(r"state-(\d+)\.json")
_POINTER_LINE = re.compile(r'\s*model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"')

# The last bytes of each index file, which is a table of LevelDB.
_TABLE_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")


@attrs.frozen
class ListedCheckpoint:
    """What the files of a checkpoint tell.

    Attributes:
        name: what its files begin with, such as ``model-900``.
        step: the global step, from the name; None if it has none.
        time: when the last of its files was written.
        size: the size of all of them, in bytes.
        state: whether the training state is there, so that a run can be resumed.
        problem: why it is not complete; None if nothing was found.
        verified: whether every byte was looked at, or names and sizes only.
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

    @property
    def verdict(self) -> str:
        """What to say of it in a word or two."""
        if self.problem is not None:
            return f"no: {self.problem}"
        return "yes" if self.verified else "by names and sizes"


def list_checkpoints(directory: Path, *, verify: bool, as_json: bool) -> int:
    """Write the checkpoints of `directory` to stdout, the latest last.

    Args:
        directory: the directory of a run.
        verify: compare checksums too; that reads all files, and imports TensorFlow for a checkpoint that has no
            training state.
        as_json: write a JSON list in place of a table.

    Returns:
        The exit status, 0.

    Raises:
        CheckpointError: if there is no such directory, or no checkpoint in it.
    """
    found = find_checkpoints(directory, verify=verify)
    if not found:
        below = sorted(path.parent for path in directory.glob("*/checkpoint"))
        hint = f" There are some in the directories below: name one, such as {str(below[-1])!r}." if below else ""
        raise CheckpointError(f"there is no checkpoint in the directory {str(directory)!r}.{hint}")
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
            each.verdict,
        )
        for each in found
    ]
    print_table(("step", "name (* latest)", "time", "size", "state", "complete"), rows)
    if not verify:
        print("The contents were not looked at; --verify does that.")
    return 0


def find_checkpoints(directory: Path, *, verify: bool) -> list[ListedCheckpoint]:
    """Return the checkpoints of `directory` by step, whole or not; see `list_checkpoints`."""
    if not directory.is_dir():
        raise CheckpointError(f"there is no directory {str(directory)!r}. Give the directory of a run.")
    files: dict[str, dict[str, os.stat_result]] = {}
    states: dict[str, _State] = {}
    for entry in os.scandir(directory):
        if match := _FILE.fullmatch(entry.name):
            files.setdefault(match["name"], {})[entry.name] = entry.stat()
        elif match := _STATE.fullmatch(entry.name):
            step = int(match[1])
            state = _State(step, entry.stat(), _read_state(directory, step))
            states[state.name] = state
    for name in states:
        files.setdefault(name, {})
    latest = _latest_name(directory)
    found = [_describe(directory, name, parts, states.get(name), latest, verify) for name, parts in files.items()]
    return sorted(found, key=lambda each: (each.step is not None, each.step or 0, each.name))


@attrs.frozen
class _State:
    """A file of a training state: what it says, or why it says nothing."""

    step: int
    stat: os.stat_result
    said: Checkpoint | CheckpointError

    @property
    def name(self) -> str:
        """The name of the checkpoint that it belongs to."""
        return self.said.name if isinstance(self.said, Checkpoint) else f"model-{self.step}"


def _read_state(directory: Path, step: int) -> Checkpoint | CheckpointError:
    try:
        return read_state(directory, step)
    except CheckpointError as error:
        return error


def _describe(
    directory: Path,
    name: str,
    parts: Mapping[str, os.stat_result],
    state: _State | None,
    latest: str | None,
    verify: bool,
) -> ListedCheckpoint:
    match = _STEP.fullmatch(name)
    step = state.step if state is not None else int(match[1]) if match else None
    stats = [*parts.values(), *([state.stat] if state is not None else [])]
    problem = _problem_of_files(directory, name, parts)
    if problem is None and state is not None:
        problem = _problem_of_state(directory, state, parts, verify)
    elif problem is None and verify:
        problem = _problem_of_values(directory, name)
    time = datetime.fromtimestamp(max(stat.st_mtime for stat in stats), timezone.utc)
    size = sum(stat.st_size for stat in stats)
    return ListedCheckpoint(name, step, time, size, state is not None, problem, verify, name == latest)


def _problem_of_files(directory: Path, name: str, parts: Iterable[str]) -> str | None:
    if f"{name}.index" not in parts:
        return f"{name}.index is missing"
    if not _ends_as_table(directory / f"{name}.index"):
        return f"{name}.index is torn or damaged"
    shards = [match for match in map(_FILE.fullmatch, parts) if match and match["shards"]]
    if not shards:
        return f"{name}.data-* is missing"
    count = int(shards[0]["shards"])
    missing = sorted(set(range(count)) - {int(match["shard"]) for match in shards})
    return f"{name}.data-{missing[0]:05}-of-{count:05} is missing" if missing else None


def _ends_as_table(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(-min(len(_TABLE_MAGIC), file.tell()), os.SEEK_END)
        return file.read() == _TABLE_MAGIC


def _problem_of_state(directory: Path, state: _State, parts: Mapping[str, os.stat_result], verify: bool) -> str | None:
    if isinstance(state.said, CheckpointError):
        return _within(directory, state.said)
    if verify:
        try:
            read_checkpoint(directory, state.step)
        except CheckpointError as error:
            return _within(directory, error)
        return None
    for name, expected in state.said.files.items():
        if name not in parts:
            return f"{name} is missing"
        if parts[name].st_size != expected["size"]:
            return f"{name} has {parts[name].st_size} bytes, but should have {expected['size']}"
    return None


def _problem_of_values(directory: Path, name: str) -> str | None:
    """Return what TensorFlow, which knows the checksums of the values, has against a checkpoint without a state."""
    from tpk.checkpoint.reader import CheckpointReader

    try:
        for _ in CheckpointReader(str(directory / name)).values():
            pass
    except CheckpointError as error:
        return _within(directory, error)
    return None


def _within(directory: Path, error: CheckpointError) -> str:
    return str(error).replace(f"{directory}{os.sep}", "")


def _latest_name(directory: Path) -> str | None:
    """Return the name that the pointer file has for the latest checkpoint, wherever that was written."""
    try:
        lines = (directory / "checkpoint").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = next((match[1] for match in map(_POINTER_LINE.match, lines) if match), None)
    return None if found is None else re.split(r"[/\\]", found)[-1]
