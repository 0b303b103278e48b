"""Writing files of datapoints, which appear at their path when they are complete."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tpk.dataflow.base import check_iterable, flow_length, reset_state
from tpk.dataflow.position import close_iterator
from tpk.durable_files import sync_directory, sync_file
from tpk.errors import ConfigError


@contextmanager
def written_atomically(path: str, owner: str) -> Generator[str, None, None]:
    """Give a path beside `path` to write to; afterwards the file is synced to the disk and renamed.

    Raises:
        ConfigError: `path` exists already, or its directory does not.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{owner}: {path} exists already; remove it, or save to another path")
    directory, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise ConfigError(f"{owner} cannot write {path}: there is no directory {directory}; make it first")
    partial = os.path.join(directory, f".{name}.{os.getpid()}.partial")
    try:
        yield partial
        sync_file(Path(partial))
        os.rename(partial, path)
        sync_directory(Path(directory))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)


def datapoints_with_progress(flow: Iterable[Any], path: str, owner: str) -> Iterator[Any]:
    """Reset a flow and iterate it once, with a progress bar if its length is known."""
    check_iterable(flow, owner)
    reset_state(flow)
    total = flow_length(flow)
    iterator = iter(flow)
    try:
        # With None, tqdm is silent unless it writes to a terminal.
        yield from tqdm(iterator, desc=os.path.basename(path), total=total, disable=None if total else True)
    finally:
        close_iterator(iterator, flow)
