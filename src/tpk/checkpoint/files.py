"""Checkpoints on disk: their files, and the newest complete one. Needs no TensorFlow.

A checkpoint of step 20 in a directory:

- ``model-20.index``, ``model-20.data-00000-of-00001``: the variables, as `tf.compat.v1.train.Saver` writes them;
- ``state-20.json``: the training state, with a checksum of itself and the sizes and checksums of the other files;
- ``checkpoint``: TensorFlow's pointer to the latest one.

They are written in that order, each atomically. So a checkpoint is complete exactly if its state exists and is intact,
and the other files have the sizes and checksums that the state lists.
"""

from __future__ import annotations

import json
import logging
import os
import re
import reprlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from tpk.checkpoint.encoding import decode
from tpk.errors import CheckpointError

logger = logging.getLogger(__name__)

FORMAT = 1
"""The version of the format of ``state-<step>.json``."""

_HEADER = re.compile(rb'\{"checksum": "(crc32:[0-9a-f]{8})",\n')
_STATE_NAME = re.compile(r"state-([0-9]+)\.json")
_INDEX_NAME = re.compile(r"model-([0-9]+)\.index")
_SUFFIX = re.compile(r"\.(index|data-[0-9]{5}-of-[0-9]{5})")
_CHUNK = 1 << 20


def _is_name(checkpoint: Checkpoint, attribute: Any, name: Any) -> None:
    # The name becomes a path of files that are read and removed, so a damaged state must not name others.
    if not isinstance(name, str) or not re.fullmatch(rf"[\w.+-]+-{checkpoint.step}(\.[0-9]+)?", name):
        raise ValueError(f"{reprlib.repr(name)} is not a name for a checkpoint of step {checkpoint.step}")


def _is_content(checkpoint: Checkpoint, attribute: Any, content: Any) -> None:
    files = content["files"]
    if not isinstance(files, dict) or not isinstance(content["state"], dict):
        raise TypeError("files and state must be objects")
    if f"{checkpoint.name}.index" not in files:
        raise ValueError(f"the files do not include {checkpoint.name}.index")
    for name, known in files.items():
        if not name.startswith(checkpoint.name) or not _SUFFIX.fullmatch(name.removeprefix(checkpoint.name)):
            raise ValueError(f"{reprlib.repr(name)} is not a file of {checkpoint.name}")
        if type(known["size"]) is not int or not isinstance(known["checksum"], str):
            raise ValueError(f"size and checksum of {name} are {reprlib.repr(known)}")


@attrs.frozen(slots=False)
class Checkpoint:
    """A checkpoint as its ``state-<step>.json`` describes it; `read_checkpoint` checks that this is true.

    Attributes:
        directory: the directory of its files.
        name: the start of its file names, such as ``"model-20"``; never a path.
        step: the global step at which it was taken.
        content: the content of ``state-<step>.json``: ``format``, ``tpk`` and ``tensorflow`` (versions), ``files``
            (sizes in bytes and checksums), ``state`` (encoded).

    Raises:
        ValueError, KeyError, TypeError: if the name or the content is invalid.
    """

    directory: Path = attrs.field(converter=Path)
    name: str = attrs.field(validator=_is_name)
    step: int
    content: Mapping[str, Any] = attrs.field(repr=False, validator=_is_content)

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """The sizes in bytes and the checksums of the files with the variables, by file name."""
        files: Mapping[str, Mapping[str, Any]] = self.content["files"]
        return files

    @property
    def prefix(self) -> str:
        """The path prefix that `tf.compat.v1.train.Saver.restore` takes."""
        return str(self.directory / self.name)

    @property
    def state_path(self) -> Path:
        """The file of the training state."""
        return state_path(self.directory, self.step)

    @cached_property
    def state(self) -> Any:
        """The training state, decoded.

        Raises:
            CheckpointError: if it cannot be decoded.
        """
        try:
            return decode(self.content["state"])
        except CheckpointError as error:
            raise CheckpointError(f"{self.state_path}: {error}") from error


def state_path(directory: Path, step: int) -> Path:
    """Return the file of the training state of a step."""
    return directory / f"state-{step}.json"


def newest_complete(directory: str | os.PathLike[str]) -> Checkpoint | None:
    """Return the newest complete checkpoint in `directory`, or None.

    Newer ones that are incomplete or damaged are skipped with a warning that names the file and the reason.
    """
    for step in checkpoint_steps(directory):
        try:
            return read_checkpoint(directory, step)
        except CheckpointError as error:
            logger.warning("skipping the checkpoint of step %d: %s", step, error)
    return None


def newest_present(directory: str | os.PathLike[str]) -> Checkpoint | None:
    """Return the newest checkpoint whose files exist and have the right sizes, or None; only its state is read."""
    for step in checkpoint_steps(directory):
        try:
            found = read_state(directory, step)
            if all((found.directory / name).stat().st_size == known["size"] for name, known in found.files.items()):
                return found
        except (CheckpointError, OSError):
            pass
    return None


def training_states(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the files of training states in `directory`; only runs of tpk have them."""
    return list(Path(directory).glob("state-*.json"))


def checkpoint_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Return the steps of all checkpoints in `directory`, complete or not, the latest first."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (pattern.fullmatch(name) for name in names for pattern in (_STATE_NAME, _INDEX_NAME))
    return sorted({int(match.group(1)) for match in found if match}, reverse=True)


def read_checkpoint(directory: str | os.PathLike[str], step: int) -> Checkpoint:
    """Return the checkpoint of a step after checking that it is complete. Every byte of its files is read.

    Raises:
        CheckpointError: if it is not complete; the message names the file and the reason.
    """
    checkpoint = read_state(directory, step)
    for name, expected in checkpoint.files.items():
        _check_file(checkpoint.directory / name, expected)
    _ = checkpoint.state
    return checkpoint


def read_state(directory: str | os.PathLike[str], step: int) -> Checkpoint:
    """Return the checkpoint that ``state-<step>.json`` in `directory` describes, without checking its other files.

    Raises:
        CheckpointError: if the file is missing, damaged, or of another format.
    """
    path = state_path(Path(directory), step)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, so the checkpoint was not finished, or has variables only") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    header = _HEADER.match(data)
    if header is None:
        raise CheckpointError(f"{path} does not begin as a training state does; it is damaged or torn")
    body = data[header.end() :]
    if header.group(1).decode() != checksum([body]):
        raise CheckpointError(f"{path} does not match its checksum; it is damaged or torn")
    # A checksum finds accidents, not forgeries, so the content is checked as well.
    try:
        content = json.loads(b"{" + body)
        if content["format"] == FORMAT:
            return Checkpoint(path.parent, content["name"], step, content)
        written_by = content["tpk"]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not what tpk writes as a training state: {error!r}") from error
    raise CheckpointError(
        f"{path} has format {content['format']}, written by tpk {written_by}; this tpk reads format {FORMAT}"
    )


def state_bytes(content: Mapping[str, Any]) -> bytes:
    """Return `content`, plain data, as the bytes of a ``state-<step>.json``."""
    body = json.dumps(content, allow_nan=False).encode()[1:] + b"\n"
    return b'{"checksum": "%s",\n' % checksum([body]).encode() + body


def describe_file(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the checksum of a file."""
    return {"size": path.stat().st_size, "checksum": checksum(_chunks(path))}


def checksum(chunks: Iterable[bytes]) -> str:
    """Return the checksum of bytes; it finds accidents, not forgeries."""
    value = 0
    for chunk in chunks:
        value = zlib.crc32(chunk, value)
    return f"crc32:{value:08x}"


def _check_file(path: Path, expected: Mapping[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != expected["size"]:
            raise CheckpointError(f"{path} has {size} bytes, but should have {expected['size']}; it is damaged or torn")
        if checksum(_chunks(path)) != expected["checksum"]:
            raise CheckpointError(f"{path} does not match its checksum; it is damaged")
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
