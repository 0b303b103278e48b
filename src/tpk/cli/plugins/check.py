"""Checks of plugins in another process, which may crash, hang or print.

One process works through the list, because TensorFlow takes seconds to import. After a crash, another process
continues with the rest.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import attrs

from tpk.cli.framework import check_command
from tpk.errors import PluginError, TpkError
from tpk.plugin.callback import HOOK_NAMES
from tpk.plugin.catalog import Catalog, CatalogEntry
from tpk.plugin.creation import create
from tpk.plugin.hook_names import check_names
from tpk.plugin.implementations import check_class
from tpk.plugin.manager import HookManager


def check_imports(entries: Sequence[CatalogEntry], timeout: float = 60.0) -> list[str | None]:
    """Import and check each of `entries` in another process.

    Args:
        entries: the plugins.
        timeout: how many seconds one process may take, after it has imported tpk and TensorFlow.

    Returns:
        The problem of each plugin, or None.
    """
    problems: list[str | None] = []
    while len(problems) < len(entries):
        problems += _check_in_process(entries[len(problems) :], timeout)
    return problems


def _check_in_process(entries: Sequence[CatalogEntry], timeout: float) -> list[str | None]:
    """Return the problems of `entries`, up to the first one that ended the process."""
    task = json.dumps({"path": sys.path, "entries": [attrs.asdict(entry) for entry in entries]})
    command, env = [sys.executable, "-m", "tpk.cli.plugins.check"], {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()  # TensorFlow is imported; on a busy machine, that alone takes a minute.
        try:
            output, said = process.communicate(task.encode(), timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, end = process.communicate()[0], f"takes more than {timeout:g} s"
        else:
            errors = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
            end = f"ended the process with exit status {process.returncode}: {errors[-1] if errors else ''}"
    problems: list[str | None] = [json.loads(line) for line in output.splitlines()]
    return problems if len(problems) == len(entries) else [*problems, f"importing it {end}"]


def main() -> None:
    """Read the plugins from stdin, and write the problem of each as a line of JSON."""
    # The output of plugins goes to stderr, even if they write to the file descriptor.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with contextlib.suppress(ImportError):  # It is the error of the first plugin that needs TensorFlow.
        pkgutil.resolve_name("tpk:Trainer")
    print(file=out)
    task = json.load(sys.stdin)
    sys.path[:] = task["path"]
    for entry in task["entries"]:
        print(json.dumps(_problem_of(CatalogEntry(**entry))), file=out)
    # Threads that a plugin has started would keep the process alive.
    os._exit(0)


def _problem_of(entry: CatalogEntry) -> str | None:
    try:
        check_target(entry, Catalog(path=()).load(entry))
    except TpkError as error:
        return str(error)
    return None


def check_target(entry: CatalogEntry, target: Any) -> None:
    """Find mistakes in a plugin without a training.

    Raises:
        PluginError: if the target is not a plugin of its kind, or a name in it is nearly the name of a hook.
    """
    if entry.kind == "plugin":
        HookManager().register(create(target, {}, str(entry)))
        return
    if entry.kind == "command":
        check_command(entry, target)
        return
    base_name = entry.kind.capitalize()
    if not callable(target):
        raise PluginError(f"{entry} is {target!r}: an entry point of tpk.{entry.kind}s leads to a class or a factory")
    if not inspect.isclass(target):  # A factory has to be called first.
        return
    is_derived = issubclass(target, pkgutil.resolve_name(f"tpk:{base_name}"))
    if not is_derived and (entry.kind != "callback" or not set(HOOK_NAMES) & set(dir(target))):
        raise PluginError(f"{entry} is not a {entry.kind}: it does not derive from tpk.{base_name}")
    if entry.kind == "trainer":
        check_names(target)
    else:
        check_class(target)


if __name__ == "__main__":
    main()
