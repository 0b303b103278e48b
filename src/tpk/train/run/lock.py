"""The lock of a run's directory, so that one process at a time trains there.

The package `filelock` would not do: on a shared disk without locks (``ENOLCK``, ``ENOTSUP``) it raises an error, where
the process ID decides here; and it cannot tell others who trains there.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from tpk.durable_files import open_no_link
from tpk.errors import ConfigError

try:
    import fcntl as _fcntl
except ImportError:  # on Windows
    _fcntl = None  # type: ignore[assignment]

fcntl: ModuleType | None = _fcntl

logger = logging.getLogger(__name__)

LOCK_NAME = ".lock"


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Within the context, no other process can train in this directory.

    The operating system releases the lock when the process ends, however it ends. If the file system has no locks, or a
    forked worker has outlived the process that trained, the process ID in the file decides. On Windows, nothing is
    locked.

    Args:
        directory: the `run_dir`.

    Raises:
        ConfigError: if another process trains there, the directory is not writable, or the file is a symbolic link.
    """
    if fcntl is None:
        logger.debug("%s is not locked: this system has no fcntl", directory)
        yield
        return
    path = directory / LOCK_NAME
    descriptor = _acquire(path)
    try:
        _write_owner(descriptor, path)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def owner_of(directory: Path) -> Mapping[str, Any] | None:
    """Return ``pid`` and ``host`` of the process that trains in a directory, or None. Nothing is changed.

    If the file system has no locks, the process ID in the file decides. On Windows, nothing is locked.

    Args:
        directory: the `run_dir`.
    """
    try:
        descriptor = open_no_link(directory / LOCK_NAME, os.O_RDONLY)
    except (OSError, ConfigError):
        return None
    try:
        owner = _read_owner(descriptor)
        # Check this first, because trying the lock means holding it for a moment.
        if owner is None or not _may_be_alive(owner) or fcntl is None:
            return None
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        return owner
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        try:
            descriptor = open_no_link(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _not_writable(path, error) from error
        try:
            is_current = _take(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if is_current:
            return descriptor
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> bool:
    """Lock the open file. Return False if the former owner has removed it from the directory meanwhile."""
    assert fcntl is not None
    owner = _read_owner(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if owner is None or _may_be_alive(owner):
            raise ConfigError(_used_by(path, owner)) from None
        logger.info("%s is stale: process %s is dead, but has left a worker behind", path, owner["pid"])
        with suppress(OSError):
            path.unlink()
        return False
    except OSError as error:
        logger.warning("%s: the file system has no locks (%s)", path, error)
        if owner is not None and _may_be_alive(owner):
            raise ConfigError(_used_by(path, owner)) from None
    if owner is not None:
        logger.info("%s is stale: process %s is dead", path, owner["pid"])
    return _is_current(descriptor, path)


def _write_owner(descriptor: int, path: Path) -> None:
    owner = {"pid": os.getpid(), "host": socket.gethostname()}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode() + b"\n", 0)
    except OSError as error:
        raise _not_writable(path, error) from error


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether the locked file is still in the directory under its name."""
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


def _read_owner(descriptor: int) -> Mapping[str, Any] | None:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
    except (ValueError, OSError):
        return None
    return owner if isinstance(owner, dict) and {"pid", "host"} <= owner.keys() else None


def _may_be_alive(owner: Mapping[str, Any]) -> bool:
    """Return whether the process may be running; on another host, it may."""
    if owner["host"] != socket.gethostname():
        return True
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:  # It belongs to another user.
        return True
    return True


def _used_by(path: Path, owner: Mapping[str, Any] | None) -> str:
    who = "another process" if owner is None else f"process {owner['pid']} on {owner['host']}"
    return (
        f"run_dir {str(path.parent)!r} is in use by {who}. Wait until that has ended, stop it, or name another "
        f"directory. If it is dead, and was on another host, remove {str(path)!r}."
    )


def _not_writable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"run_dir {str(path.parent)!r} cannot be written to: {error}. Name another directory.")
