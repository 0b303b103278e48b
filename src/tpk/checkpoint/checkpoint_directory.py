"""A directory of checkpoints, each written atomically: a reader, also after a crash, sees all of one or nothing.

Needs no TensorFlow.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tpk import __version__
from tpk.checkpoint.files import (
    FORMAT,
    Checkpoint,
    describe_file,
    read_checkpoint,
    read_state,
    state_bytes,
    state_path,
)
from tpk.durable_files import replace_file, sync_directory, sync_file
from tpk.errors import CheckpointError

logger = logging.getLogger(__name__)

_TEMPORARY = ".writing-"

_WILDCARDS = frozenset("[]*?\\")


class CheckpointDirectory:
    """Writes and removes the checkpoints of one series in a directory.

    Args:
        directory: the directory.
        prefix: the start of the file names: the checkpoint of step 20 is called ``<prefix>-20``.
        pointer: the name of TensorFlow's pointer file, see `tf.train.latest_checkpoint`.

    Attributes:
        path: the directory.
    """

    def __init__(self, directory: str | os.PathLike[str], prefix: str = "model", pointer: str = "checkpoint") -> None:
        self.path = Path(directory)
        self._prefix = file_name(prefix)
        self._pointer = file_name(pointer)

    def prepare(self) -> None:
        """Create the directory, and remove files that a killed process left half written or half removed.

        Raises:
            CheckpointError: if the directory is not writable, or TensorFlow could not read from it.
        """
        if set(str(self.path)) & _WILDCARDS:
            raise CheckpointError(
                f"checkpoints in {str(self.path)!r} could not be restored: TensorFlow treats "
                f"{' '.join(sorted(_WILDCARDS))} in a path as wildcards. Use another directory."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for path in [*self.path.glob(f"{_TEMPORARY}{self._prefix}-*"), *self._data_without_index()]:
                logger.info("removing %s, whose checkpoint was not finished", path)
                path.unlink()
        except OSError as error:
            raise CheckpointError(f"checkpoints cannot be written to {self.path}: {error}") from error

    def write(
        self, step: int, write_variables: Callable[[str], None], state: Mapping[str, Any] | None, tensorflow: str = ""
    ) -> str:
        """Write a checkpoint: variables first, then the training state, which makes it complete.

        Args:
            step: the global step.
            write_variables: takes the prefix of a path, and writes the variables to ``<prefix>.index`` and
                ``<prefix>.data-…``.
            state: the training state, encoded; None for variables only.
            tensorflow: the version of TensorFlow, for the record.

        Returns:
            The name of the checkpoint, ``<prefix>-<step>``. A complete checkpoint is never overwritten in place: if the
            step already has one with other variables, the new one gets a suffix, and the state then refers to it. A
            damaged one is replaced; every byte of its files is read to find that out.

        Raises:
            CheckpointError: if it could not be written. Its files are removed, and older checkpoints are unchanged.
        """
        temporary = self.path / f"{_TEMPORARY}{self._prefix}-{step}"
        if not self.path.is_dir():  # TensorFlow would create it, which would hide the loss of the earlier files.
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written, because {self.path} no longer exists. Do not "
                "remove or move the directory while the training runs."
            )
        _unlink(self.path.glob(f"{temporary.name}.*"))
        try:
            return self._write(step, temporary, write_variables, state, tensorflow)
        except BaseException as error:
            _unlink(self.path.glob(f"{temporary.name}.*"))
            if isinstance(error, CheckpointError) or not isinstance(error, Exception):
                raise
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.path}: {_reason(error)}. "
                f"{_free_space(self.path)}. Earlier checkpoints are unchanged."
            ) from error

    def point_to(self, names: Sequence[str], gone: Sequence[str] = ()) -> None:
        """Write TensorFlow's pointer file, and then remove old checkpoints.

        Args:
            names: the checkpoints to list; `tf.train.latest_checkpoint` returns the last. If empty, the pointer file is
                removed.
            gone: the checkpoints to remove.

        Raises:
            CheckpointError: if the pointer could not be written.
        """
        try:
            self._write_pointer(names)
        except CheckpointError:
            # On a full disk, removing old checkpoints may free enough space.
            for name in gone:
                self.remove(name)
            self._write_pointer(names)
        for name in gone:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a checkpoint: its state first, so that the remaining files are never taken for a complete one."""
        step = self.step_of(name)
        with suppress(CheckpointError, OSError):
            if read_state(self.path, step).name == name:
                state_path(self.path, step).unlink()
        _unlink(self._files_of(name))

    def names(self) -> list[str]:
        """Return the names of the checkpoints whose variables exist, the oldest first."""
        pattern = re.compile(re.escape(self._prefix) + r"-\d+(\.\d+)?\.index")
        found = [name for name in os.listdir(self.path) if pattern.fullmatch(name)]
        return sorted((name.removesuffix(".index") for name in found), key=lambda name: (self.step_of(name), name))

    def name_of(self, step: int) -> str:
        """Return the name for the checkpoint of a step, unless another one of that step exists already."""
        return f"{self._prefix}-{step}"

    def step_of(self, name: str) -> int:
        """Return the global step of the checkpoint of this name."""
        return int(name.removeprefix(f"{self._prefix}-").partition(".")[0])

    def _write_pointer(self, names: Sequence[str]) -> None:
        path = self.path / self._pointer
        if not names:
            path.unlink(missing_ok=True)
            return
        lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
        temporary = self.path / f"{_TEMPORARY}{self._prefix}-pointer"
        try:
            replace_file(path, ("\n".join(lines) + "\n").encode(), temporary)
            sync_directory(self.path)
        except OSError as error:
            raise CheckpointError(f"{path} could not be written: {error}. {_free_space(self.path)}.") from error

    def _write(
        self,
        step: int,
        temporary: Path,
        write_variables: Callable[[str], None],
        state: Mapping[str, Any] | None,
        tensorflow: str,
    ) -> str:
        write_variables(str(temporary))
        # The index comes last: without it, the other files are not a checkpoint.
        written = self._files_of(temporary.name)[::-1]
        if not written or written[-1].suffix != ".index":
            raise FileNotFoundError(f"no variables were written to {temporary}")
        for path in written:
            sync_file(path)
        name = self.name_of(step)
        if state is None:
            self._rename(written, temporary, name)
            return name

        files = {path.name.removeprefix(temporary.name): describe_file(path) for path in written}
        existing = self._complete(step)
        if existing is not None and existing.files == {f"{existing.name}{each}": files[each] for each in files}:
            name = existing.name
        else:
            name = name if existing is None else self._free_name(name)
            self._rename(written, temporary, name)
        content = {
            "format": FORMAT,
            "tpk": __version__,
            "tensorflow": tensorflow,
            "step": step,
            "name": name,
            "files": {f"{name}{suffix}": description for suffix, description in files.items()},
            "state": state,
        }
        try:
            replace_file(
                state_path(self.path, step), state_bytes(content), temporary.with_name(f"{temporary.name}.state")
            )
        except BaseException:
            if existing is None or existing.name != name:
                _unlink(self._files_of(name))
            raise
        sync_directory(self.path)
        _unlink(written)  # They remain if the existing checkpoint has the same files.
        for other in self.names():
            if other != name and self.step_of(other) == step:
                _unlink(self._files_of(other))
        return name

    def _complete(self, step: int) -> Checkpoint | None:
        """Return the complete checkpoint of this step, if there is one.

        Its files are read. Reading only its state is not enough: a run that resumes from before a damaged checkpoint
        writes the same files again.
        """
        try:
            return read_checkpoint(self.path, step)
        except CheckpointError:
            return None

    def _free_name(self, name: str) -> str:
        candidate, number = name, 1
        while self._files_of(candidate):
            number += 1
            candidate = f"{name}.{number}"
        return candidate

    def _rename(self, written: Sequence[Path], temporary: Path, name: str) -> None:
        for path in written:
            os.replace(path, path.with_name(name + path.name.removeprefix(temporary.name)))
        sync_directory(self.path)

    def _data_without_index(self) -> list[Path]:
        """Return the files of incomplete checkpoints: the index is written last, and removed first."""
        pattern = re.compile(rf"({re.escape(self._prefix)}-\d+(\.\d+)?)\.data-\d+-of-\d+")
        present = set(os.listdir(self.path))
        matches = (pattern.fullmatch(name) for name in sorted(present))
        return [self.path / match.group() for match in matches if match and f"{match.group(1)}.index" not in present]

    def _files_of(self, name: str) -> list[Path]:
        """Return the files that hold the variables of a checkpoint, the index first."""
        pattern = re.compile(re.escape(name) + r"\.(index|data-\d+-of-\d+)")
        found = [self.path / each for each in os.listdir(self.path) if pattern.fullmatch(each)]
        return sorted(found, key=lambda path: path.suffix != ".index")


def file_name(name: str) -> str:
    """Return `name` as a file name; it may be the name of a statistic, such as ``min-tower0/cost``."""
    return re.sub(r"[^\w.+-]", "_", name)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _reason(error: Exception) -> str:
    # TensorFlow appends the failed node to the message.
    return str(getattr(error, "message", "") or error).partition("\n")[0].strip().rstrip(".")


def _free_space(directory: Path) -> str:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return "The free disk space is unknown"
    return f"Free disk space: {usage.free / 1e6:.1f} MB of {usage.total / 1e6:.1f} MB"
