"""Checkpoints of TensorFlow: which one a path means, and the arrays in it, each read when it is asked for."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.checkpoint.directory import file_name
from tpk.checkpoint.files import newest_complete, training_states
from tpk.checkpoint.stored_values import StoredValues, ValueSpec
from tpk.errors import CheckpointError
from tpk.tf_internals import TrackableObjectGraph

OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The entry of an object-based checkpoint that is no variable, but tells which objects there are."""

_POINTER = "checkpoint"
_LISTED = 8


def find_checkpoint(path: str | os.PathLike[str]) -> str:
    """Return the prefix of the checkpoint that `path` means.

    Args:
        path: the directory of a run, whose newest complete checkpoint is taken; another directory with a ``checkpoint``
            file, or that file, which names the latest; the prefix of a checkpoint, or one of its files; or
            ``<directory>/<name>``, where the name is a step, or that of a saver of the best, such as
            ``min-validation_cost``, for its best.

    Raises:
        CheckpointError: if there is none; it says which there are.

    Example:
        ```python
        values = CheckpointReader(find_checkpoint("runs/mnist/min-validation_cost"))
        ```
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        newest = newest_complete(name) if training_states(name) else None
        return _latest(name) if newest is None else newest.prefix
    if os.path.basename(name) == _POINTER and os.path.isfile(name):
        return _latest(os.path.dirname(name) or ".")
    prefix = _prefix_of(name)
    return prefix if _exists(prefix) else _named(prefix)


def _named(path: str) -> str:
    """Return the checkpoint in a directory that is named by its step, or by the saver of the best that wrote it."""
    directory = os.path.dirname(path)
    while directory and not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    name = file_name(os.path.relpath(path, directory or "."))
    if name.isdigit():
        name = f"model-{name}"
    prefix = os.path.join(directory, name)
    if _exists(prefix):
        return prefix
    best = latest_in(directory, f"{_POINTER}-{name}")
    if best is not None:
        return best
    known = [*_names_in(directory), *_savers_in(directory)]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    raise CheckpointError(
        f"there is no checkpoint {path!r}: no file {path + '.index'!r}. Give the prefix of a checkpoint "
        "(model-<step>), the directory that holds it, or <directory>/<step or name of a saver of the best>."
        + (f" Nearest: {', '.join(near)}." if near else "")
        + (f" The latest in {directory or '.'!r}: {', '.join(known[-_LISTED:])}." if known else "")
    )


def _names_in(directory: str) -> list[str]:
    """Return the names of the checkpoints in a directory, the latest last."""
    found = glob.glob(os.path.join(glob.escape(directory), "*.index"))
    names = [os.path.basename(path).removesuffix(".index") for path in found]
    return sorted(names, key=lambda name: (int(re.findall(r"-(\d+)$|$", name)[0] or -1), name))


def _savers_in(directory: str) -> list[str]:
    """Return the names of the savers of the best in a directory: they have pointer files of their own."""
    found = glob.glob(os.path.join(glob.escape(directory), f"{_POINTER}-*"))
    return sorted(os.path.basename(path).removeprefix(f"{_POINTER}-") for path in found)


def _exists(prefix: str) -> bool:
    return tf.io.gfile.exists(prefix + ".index") or _is_in_the_first_format(prefix)


def _is_in_the_first_format(prefix: str) -> bool:
    """Whether `prefix` is a checkpoint of ``Saver(write_version=1)``: a file without a suffix, or shards of one."""
    return os.path.isfile(prefix) or bool(glob.glob(glob.escape(prefix) + "-?????-of-?????"))


def _prefix_of(name: str) -> str:
    directory, base = os.path.split(name)
    for suffix in (".index", ".meta"):
        base = base.removesuffix(suffix)
    return os.path.join(directory, base.rpartition(".data-")[0] or base)


def latest_in(directory: str, pointer: str = _POINTER) -> str | None:
    """Return the prefix of the checkpoint that a pointer file names, if there is such a file.

    Args:
        directory: where the pointer is, and the checkpoint.
        pointer: the name of the file.

    Raises:
        CheckpointError: if it is damaged, or names what is not in the directory: it may name any path, and other
            directories are none of its business, be it that the directory was moved.
    """
    path = os.path.join(directory, pointer)
    try:
        state = tf.train.get_checkpoint_state(directory, pointer)
    # Of damage, TensorFlow logs what is no text proto, and raises this for what is no text, or names nothing.
    except ValueError as error:
        raise CheckpointError(f"The file {path!r} is damaged.") from error
    if state is None:
        return None
    folder, name = os.path.split(state.model_checkpoint_path)
    prefix = os.path.join(directory, name)
    if os.path.realpath(folder) != os.path.realpath(directory) or not _exists(prefix):
        raise CheckpointError(
            f"The file {path!r} names {state.model_checkpoint_path!r}, which is no checkpoint in that directory."
        )
    return prefix


def _latest(directory: str) -> str:
    message = f"there is no checkpoint in the directory {directory!r}."
    try:
        latest = latest_in(directory)
        if latest is not None:
            return latest
    except CheckpointError as error:
        message += f" {error}"
    present = sorted(
        found.removesuffix(".index") for found in glob.glob(os.path.join(glob.escape(directory), "*.index"))
    )
    if present:
        message += f" Name one of those that are: {', '.join(present[-5:])}."
    else:
        message += " A training saves some with 'ModelSaver' among its callbacks."
    raise CheckpointError(message)


class CheckpointReader(StoredValues):
    """The arrays of one checkpoint by name. Partitioned variables are whole, under the name without the part.

    Args:
        prefix: the prefix of a checkpoint of `tf.compat.v1.train.Saver` (either of its formats) or of
            `tf.train.Checkpoint`; see `find_checkpoint`.

    Raises:
        CheckpointError: if it is damaged; the message names the file.

    Example:
        ```python
        values = CheckpointReader(find_checkpoint("runs/mnist/20260101-120000"))
        print(values["conv0/W"].mean())
        ```
    """

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            shapes = self._reader.get_variable_to_shape_map()
            dtypes = self._reader.get_variable_to_dtype_map()
        # TensorFlow raises whatever fits its own bindings: OpError, IndexError, RuntimeError, …
        except Exception as error:
            index = prefix + ".index"
            raise _damage(index if os.path.exists(index) else prefix, error) from error
        self._specs = {
            name: ValueSpec(tuple(shapes[name]), np.dtype(dtypes[name].as_numpy_dtype)) for name in sorted(shapes)
        }

    @property
    def is_object_based(self) -> bool:
        """Whether `tf.train.Checkpoint` wrote it, which names values by the path of Python objects."""
        return OBJECT_GRAPH_KEY in self._specs

    def keys_by_variable_name(self) -> dict[str, str]:
        """Return the keys of an object-based checkpoint by the names that the variables had; unique ones only."""
        graph = TrackableObjectGraph()
        graph.ParseFromString(self[OBJECT_GRAPH_KEY].item())
        keys: dict[str, set[str]] = {}
        for node in graph.nodes:
            for attribute in node.attributes:
                if attribute.checkpoint_key in self._specs:
                    keys.setdefault(attribute.full_name, set()).add(attribute.checkpoint_key)
        return {name: found.pop() for name, found in keys.items() if len(found) == 1}

    def spec(self, name: str) -> ValueSpec:
        """Return shape and dtype of the array called `name`, as the index has them."""
        return self._specs[name]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._specs:
            raise KeyError(name)
        try:
            return np.asarray(self._reader.get_tensor(name))
        except Exception as error:
            files = sorted(glob.glob(glob.escape(self.source) + ".data-*")) or [self.source]
            raise _damage(", ".join(files), error, f", read for {name!r},") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


def _damage(files: str, error: Exception, purpose: str = "") -> CheckpointError:
    return CheckpointError(
        f"the checkpoint file {files}{purpose} is torn or damaged: {' '.join(str(error).split())}. "
        f"Give an earlier checkpoint (`tpk checkpoint ls {os.path.dirname(files) or '.'}` lists them)."
    )
