"""Checks of plugins (``tpk plugins --check``), in another process, which may crash, hang or print as it likes.

One process works through the list, since TensorFlow takes seconds to import; after a crash another one goes
on with the rest.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from tpk.errors import PluginError, TpkError
from tpk.plugin.callback import HOOK_NAMES
from tpk.plugin.catalog import Catalog, CatalogEntry
from tpk.plugin.creation import create
from tpk.plugin.hook_names import check_names
from tpk.plugin.implementations import check_class
from tpk.plugin.manager import HookManager


def check_imports(entries: Sequence[CatalogEntry], timeout: float = 60.0) -> list[str | None]:
    """Import each of `entries`, but not in this process.

    Args:
        entries: what to import.
        timeout: the seconds that one of them may take.

    Returns:
        For each of them, what is wrong with it, or None.
    """
    problems: list[str | None] = []
    while len(problems) < len(entries):
        problems += _check_until_crash(entries[len(problems) :], timeout)
    return problems


def _check_until_crash(entries: Sequence[CatalogEntry], timeout: float) -> Iterator[str | None]:
    """Yield the problems of `entries`, ending after the first one that took the process with it."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tpk.cli.plugins.check"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
        ) as process,
    ):
        assert process.stdin is not None
        json.dump({"path": sys.path, "entries": [attrs.asdict(entry) for entry in entries]}, process.stdin)
        process.stdin.close()
        for _ in entries:
            started = time.monotonic()
            outcome = _read_line(process, timeout)
            if outcome:
                yield json.loads(outcome)
                continue
            if time.monotonic() - started >= timeout:
                yield f"importing it takes more than {timeout:g} s"
                return
            errors.seek(0)
            lines = errors.read().split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            yield f"importing it ended the process with exit status {process.wait()}: {last}"
            return
        # Threads that a plugin has started may keep the process alive.
        process.kill()


def _read_line(process: subprocess.Popen[str], timeout: float) -> str:
    """Return the next line that `process` writes; an empty string if it ends before, or is killed for taking long."""
    assert process.stdout is not None
    timer = threading.Timer(timeout, process.kill)
    timer.start()
    try:
        return process.stdout.readline()
    finally:
        timer.cancel()


def _import_each() -> None:
    """Do the importing: what to import comes as JSON on stdin, each outcome leaves as a line of JSON on stdout."""
    task = json.load(sys.stdin)
    # What plugins print goes to stderr, even if they do it by file descriptor.
    outcomes = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path[:] = task["path"]
    for entry in task["entries"]:
        print(json.dumps(_problem_of(CatalogEntry(**entry))), file=outcomes)


def _problem_of(entry: CatalogEntry) -> str | None:
    try:
        check_target(entry, Catalog(path=()).load(entry))
    except TpkError as error:
        return str(error)
    return None


def check_target(entry: CatalogEntry, target: Any) -> None:
    """Find what would be an error in a training, as far as that shows without one.

    Raises:
        PluginError: if the target is no plugin of its kind, or something in it looks like a hook and is none.
    """
    if entry.kind == "plugin":
        HookManager().register(create(target, {}, str(entry)))
        return
    base = pkgutil.resolve_name(_BASES[entry.kind])
    if not callable(target):
        raise PluginError(f"{entry} is {target!r}: an entry point of tpk.{entry.kind}s leads to a class or a factory")
    if not inspect.isclass(target):  # A factory tells what it makes when it is called.
        return
    if not issubclass(target, base) and (entry.kind != "callback" or not set(HOOK_NAMES) & set(dir(target))):
        raise PluginError(f"{entry} is no {entry.kind}: it does not derive from {_BASES[entry.kind].replace(':', '.')}")
    if entry.kind == "trainer":
        check_names(target)
    else:
        check_class(target)


_BASES = {
    "callback": "tpk:Callback",
    "monitor": "tpk:Monitor",
    "strategy": "tpk:Strategy",
    "trainer": "tpk:Trainer",
}


if __name__ == "__main__":
    _import_each()
