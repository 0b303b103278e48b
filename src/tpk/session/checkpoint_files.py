"""Checkpoints on disk: their files, which of them are complete, and the newest of those. Needs no TensorFlow.

A checkpoint of step 20 in a directory:

- ``model-20.index``, ``model-20.data-00000-of-00001``: the variables, as `tf.compat.v1.train.Saver` writes them;
- ``state-20.json``: the training state, with a checksum of itself and the sizes and checksums of the other files;
- ``checkpoint``: TensorFlow's pointer to the latest one.

They are written in that order, each atomically. So a checkpoint is complete exactly if its state is there and intact,
and the files are what the state says.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from tpk.errors import CheckpointError
from tpk.session.checkpoint_encoding import decode

logger = logging.getLogger(__name__)

FORMAT = 1
"""The version of the format of ``state-<step>.json``."""

_HEADER = re.compile(rb'\{"checksum": "(crc32:[0-9a-f]{8})",\n')
_STATE_NAME = re.compile(r"state-(\d+)\.json")
_INDEX_NAME = re.compile(r"model-(\d+)\.index")
_CHUNK = 1 << 20


@attrs.frozen(slots=False)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        directory: where it is.
        name: what its files begin with, such as ``"model-20"``.
        step: the global step at which it was taken.
        content: what ``state-<step>.json`` holds: ``format``, ``tpk`` and ``tensorflow`` (versions), ``files`` (sizes
            in bytes and checksums), ``state`` (encoded).
    """

    directory: Path
    name: str
    step: int
    content: Mapping[str, Any] = attrs.field(repr=False)

    @property
    def prefix(self) -> str:
        """The path that `tf.compat.v1.train.Saver.restore` takes."""
        return str(self.directory / self.name)

    @property
    def state_path(self) -> Path:
        """The file of the training state."""
        return state_path(self.directory, self.step)

    @cached_property
    def state(self) -> Any:
        """The training state, decoded."""
        return decode(self.content["state"])


def state_path(directory: Path, step: int) -> Path:
    """Return the file of the training state of a step."""
    return directory / f"state-{step}.json"


def newest_complete(directory: str | os.PathLike[str]) -> Checkpoint | None:
    """Return the newest complete checkpoint in `directory`, or None if there is none.

    Newer ones that are torn, or whose files are missing, are skipped with a warning that names file and reason.
    """
    for step in checkpoint_steps(directory):
        try:
            return read_checkpoint(directory, step)
        except CheckpointError as error:
            logger.warning("skipping the checkpoint of step %d: %s", step, error)
    return None


def checkpoint_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Return the steps of which `directory` has anything of a checkpoint, complete or not, the latest first."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (pattern.fullmatch(name) for name in names for pattern in (_STATE_NAME, _INDEX_NAME))
    return sorted({int(match.group(1)) for match in found if match}, reverse=True)


def read_checkpoint(directory: str | os.PathLike[str], step: int) -> Checkpoint:
    """Return the checkpoint of a step, once it has turned out to be complete: every byte of it is read.

    Raises:
        CheckpointError: if it is not; it names the file, and says what is wrong with it.
    """
    folder = Path(directory)
    content = read_state(state_path(folder, step))
    for name, expected in content["files"].items():
        _check_file(folder / name, expected)
    return Checkpoint(folder, content["name"], step, content)


def read_state(path: Path) -> dict[str, Any]:
    """Return what a ``state-<step>.json`` holds, without looking at the other files.

    Raises:
        CheckpointError: if it is missing, damaged, or of another format.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing, so the checkpoint was never finished, or holds variables only"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    header = _HEADER.match(data)
    if header is None:
        raise CheckpointError(f"{path} does not begin as a training state does; it is damaged or torn")
    body = data[header.end() :]
    if header.group(1).decode() != checksum([body]):
        raise CheckpointError(f"{path} does not have the content that its checksum stands for; it is damaged or torn")
    content: dict[str, Any] = json.loads(b"{" + body)
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {content['format']}, written by tpk {content['tpk']}; this tpk reads format {FORMAT}"
        )
    return content


def state_bytes(content: Mapping[str, Any]) -> bytes:
    """Return `content`, plain data, as the bytes of a ``state-<step>.json``."""
    body = json.dumps(content, allow_nan=False).encode()[1:] + b"\n"
    return b'{"checksum": "%s",\n' % checksum([body]).encode() + body


def describe_file(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the checksum of a file."""
    return {"size": path.stat().st_size, "checksum": checksum(_chunks(path))}


def checksum(chunks: Iterable[bytes]) -> str:
    """Return the checksum of bytes; it is meant to find accidents, not forgeries."""
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
            raise CheckpointError(f"{path} does not have the content that its checksum stands for; it is damaged")
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
