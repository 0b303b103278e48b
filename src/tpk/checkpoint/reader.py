"""Checkpoints of TensorFlow: find the one that a path means, and read its arrays one by one."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.checkpoint.checkpoint_directory import file_name
from tpk.checkpoint.files import newest_complete, training_states
from tpk.checkpoint.stored_values import StoredValues, ValueSpec
from tpk.errors import CheckpointError
from tpk.text import nearest
from tpk.tf_internals import TrackableObjectGraph

OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The entry of an object-based checkpoint that lists its objects, and is not a variable."""

_POINTER = "checkpoint"
_LISTED = 8


def find_checkpoint(path: str | os.PathLike[str]) -> str:
    """Return the prefix of the checkpoint that `path` means.

    Args:
        path: one of

            - the directory of a run, for its newest complete checkpoint;
            - another directory with a ``checkpoint`` file, or that file, for the latest checkpoint that it names;
            - the prefix of a checkpoint, or one of its files;
            - ``<directory>/<step>``;
            - ``<directory>/<name of a saver>``, such as ``runs/mnist/min-validation_cost``, for the best checkpoint of
              a `MinSaver` or `MaxSaver`.

    Raises:
        CheckpointError: if the checkpoint does not exist; the message lists those that do.

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
    return prefix if _exists(prefix) else _by_step_or_saver(prefix)


def _by_step_or_saver(path: str) -> str:
    """Return the checkpoint with this step, or the best one of the `MinSaver` or `MaxSaver` with this name."""
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
    # Each MinSaver or MaxSaver has its own pointer file.
    pointers = glob.glob(os.path.join(glob.escape(directory), f"{_POINTER}-*"))
    savers = sorted(os.path.basename(path).removeprefix(f"{_POINTER}-") for path in pointers)
    known = [*_names_in(directory), *savers]
    raise CheckpointError(
        f"there is no checkpoint {path!r}: no file {path + '.index'!r}. Give the prefix of a checkpoint "
        "(model-<step>), its directory, or <directory>/<step or name of a MinSaver or MaxSaver>."
        + nearest(name, known)
        + (f" The latest in {directory or '.'!r}: {', '.join(known[-_LISTED:])}." if known else "")
    )


def _names_in(directory: str) -> list[str]:
    """Return the names of the checkpoints in a directory, the latest last."""
    found = glob.glob(os.path.join(glob.escape(directory), "*.index"))
    names = [os.path.basename(path).removesuffix(".index") for path in found]
    return sorted(names, key=lambda name: (int(re.findall(r"-(\d+)$|$", name)[0] or -1), name))


def _exists(prefix: str) -> bool:
    return tf.io.gfile.exists(prefix + ".index") or _is_in_the_first_format(prefix)


def _is_in_the_first_format(prefix: str) -> bool:
    """Return whether `prefix` is a checkpoint of ``Saver(write_version=1)``: a file without a suffix, or its shards."""
    return os.path.isfile(prefix) or bool(glob.glob(glob.escape(prefix) + "-?????-of-?????"))


def _prefix_of(name: str) -> str:
    directory, base = os.path.split(name)
    for suffix in (".index", ".meta"):
        base = base.removesuffix(suffix)
    return os.path.join(directory, base.rpartition(".data-")[0] or base)


def latest_in(directory: str, pointer: str = _POINTER) -> str | None:
    """Return the prefix of the checkpoint that a pointer file names; None if there is no such file.

    Args:
        directory: the directory of the pointer file and of the checkpoint.
        pointer: the name of the pointer file.

    Raises:
        CheckpointError: if it is damaged, or the checkpoint is not in the directory. (It may name any path, for
            example if the directory was moved.)
    """
    path = os.path.join(directory, pointer)
    try:
        state = tf.train.get_checkpoint_state(directory, pointer)
    # TensorFlow logs a damaged text proto, and raises this error for binary data or a missing path.
    except ValueError as error:
        raise CheckpointError(f"The file {path!r} is damaged.") from error
    if state is None:
        return None
    folder, name = os.path.split(state.model_checkpoint_path)
    prefix = os.path.join(directory, name)
    if os.path.realpath(folder) != os.path.realpath(directory) or not _exists(prefix):
        raise CheckpointError(
            f"The file {path!r} names {state.model_checkpoint_path!r}, which is not a checkpoint in that directory."
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
    present = [os.path.join(directory, name) for name in _names_in(directory)]
    if present:
        message += f" Give the path of one of these: {', '.join(present[-_LISTED:])}."
    else:
        message += " The callback 'ModelSaver' saves checkpoints."
    raise CheckpointError(message)


class CheckpointReader(StoredValues):
    """The arrays of one checkpoint by name. A partitioned variable is one array, under the name of the whole.

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
        # TensorFlow raises an OpError, IndexError, RuntimeError or others.
        except Exception as error:
            index = prefix + ".index"
            raise _damage(index if os.path.exists(index) else prefix, error) from error
        self._specs = {
            name: ValueSpec(tuple(shapes[name]), np.dtype(dtypes[name].as_numpy_dtype)) for name in sorted(shapes)
        }

    @property
    def is_object_based(self) -> bool:
        """Whether `tf.train.Checkpoint` wrote it, which names values by paths of Python objects."""
        return OBJECT_GRAPH_KEY in self._specs

    def keys_by_variable_name(self) -> dict[str, str]:
        """Return the keys of an object-based checkpoint by the names of the variables; ambiguous names are left out."""
        graph = TrackableObjectGraph()
        graph.ParseFromString(self[OBJECT_GRAPH_KEY].item())
        keys: dict[str, set[str]] = {}
        for node in graph.nodes:
            for attribute in node.attributes:
                if attribute.checkpoint_key in self._specs:
                    keys.setdefault(attribute.full_name, set()).add(attribute.checkpoint_key)
        return {name: found.pop() for name, found in keys.items() if len(found) == 1}

    def spec(self, name: str) -> ValueSpec:
        """Return the shape and dtype of an array, from the index."""
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
        f"Use an earlier checkpoint (`tpk checkpoint ls {os.path.dirname(files) or '.'}` lists them)."
    )
