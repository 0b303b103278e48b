"""Limits of the system that trainings run into."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tpk.cli.doctor.finding import Finding
from tpk.text import human_size

FEWEST_FILES = 1024
LEAST_SHARED_MEMORY = 256 << 20
_VARIABLES = ("TPK_", "TF_", "CUDA_", "XLA_FLAGS", "NCCL_", "HOROVOD_")
_OF_OTHERS = ("TF_CLI_", "TF_VAR_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE", "TF_PLUGIN_CACHE_DIR")
"""What Terraform calls like that."""

_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def look_at_system(
    environment: Mapping[str, str] = os.environ, shared_memory: Path = Path("/dev/shm")
) -> Iterator[Finding]:
    """Look at open files, shared memory and directories.

    Args:
        environment: the environment variables.
        shared_memory: where the system has files in memory.
    """
    yield from _open_files()
    yield _memory_file()
    if shared_memory.is_dir():
        yield _shared_memory(shared_memory)
    yield _config_directory(environment)
    found = [
        f"{name}={'(not told)' if any(word in name for word in _SECRETS) else value}"
        for name, value in sorted(environment.items())
        if name.startswith(_VARIABLES) and not name.startswith(_OF_OTHERS)
    ]
    yield Finding("ok", "environment", ", ".join(found) or "no variable of TensorFlow, CUDA or tpk is set")


def _open_files() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield open_files(soft, hard)


def open_files(soft: int, hard: int) -> Finding:
    """Judge how many files a process may open, and up to how many it may ask for; -1 for any number."""
    found = f"a process may have {'any number' if soft < 0 else soft} open"
    if 0 <= soft < FEWEST_FILES:
        remedy = f"data in many processes and event files take more: ulimit -n {hard if hard > soft else FEWEST_FILES}"
        return Finding("warning", "files", found, remedy)
    return Finding("ok", "files", found)


def _memory_file() -> Finding:
    what = "memory files"
    if not hasattr(os, "memfd_create"):
        return Finding("ok", what, "none on this system: dataflows in processes use files in the temporary directory")
    try:
        descriptor = os.memfd_create("tpk-doctor")
        try:
            os.ftruncate(descriptor, mmap.PAGESIZE)
            with mmap.mmap(descriptor, mmap.PAGESIZE) as memory:
                memory[0] = 1
        finally:
            os.close(descriptor)
    except OSError as error:
        remedy = "dataflows in processes need memfd_create: does the container's seccomp profile forbid it?"
        return Finding("failed", what, str(error), remedy)
    return Finding("ok", what, "memfd_create works: dataflows in processes share memory")


def _shared_memory(directory: Path) -> Finding:
    total, _, free = shutil.disk_usage(directory)
    found = f"{human_size(free)} of {human_size(total)} are free"
    if free < LEAST_SHARED_MEMORY:
        remedy = "tpk needs none of it, but NCCL and data loaders of others do: docker run --shm-size=1g"
        return Finding("warning", str(directory), found, remedy)
    return Finding("ok", str(directory), found)


def _config_directory(environment: Mapping[str, str]) -> Finding:
    base = Path(environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    directory = base / "tpk"
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if os.access(there, os.W_OK | os.X_OK) and there.is_dir():
        return Finding("ok", "settings", f"{directory} can be written to")
    remedy = (
        "the key of `send_dataflow_zmq` is kept there: set XDG_CONFIG_HOME to a directory of your own, or give a key."
    )
    return Finding("warning", "settings", f"{directory} cannot be written to", remedy)
