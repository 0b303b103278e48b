"""Differences between the configurations of runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tpk.cli.runs.run import Run
from tpk.plugin.description import leaves_of

# What says where a run is, and how it was begun, tells nothing of what was trained.
_LEFT_OUT = ("argv", "run_dir", "resume", "devices")
_MISSING = "-"


def differences(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return for each run those options in which not all of `runs` are alike, by their names.

    Args:
        runs: those to compare.

    Returns:
        Names such as ``callbacks.ModelSaver.max_to_keep`` with their values; ``"-"`` where a run has no such option.
        Where runs have different plugins, or some have one that others lack, that is told, and the options of these
        plugins only where runs that have them differ: the others go without saying.
        ``argv`` are the arguments of its script that not all have, those apart that say where the run is.
    """
    flat = [leaves_of({name: value for name, value in run.config.items() if name not in _LEFT_OUT}) for run in runs]
    names = dict.fromkeys(name for each in flat for name in each)
    differing = [
        name for name in names if any(each.get(name, _MISSING) != flat[0].get(name, _MISSING) for each in flat)
    ]
    told = [name for name in differing if not _is_of_one_of(name, differing)]
    kept = [name for name in differing if name in told or _has_several_values(name, flat)]
    found = [{name: each.get(name, _MISSING) for name in kept if name in each or name in told} for each in flat]
    arguments = [_arguments(run) for run in runs]
    for each, own in zip(found, arguments, strict=True):
        if special := [words for words in own if not all(words in others for others in arguments)]:
            each["argv"] = " ".join(special)
    return found


def _is_of_one_of(name: str, plugins: Sequence[str]) -> bool:
    """Whether an option is that of one of the plugins."""
    return any(name.startswith(f"{plugin}.") for plugin in plugins)


def _has_several_values(name: str, flat: Sequence[dict[str, Any]]) -> bool:
    """Whether the runs that have an option differ in it."""
    values = [each[name] for each in flat if name in each]
    return any(value != values[0] for value in values)


def _arguments(run: Run) -> list[str]:
    """Return the arguments of the script, an option with its value as one; without where the run is."""
    given, found = [str(each) for each in run.config.get("argv") or ()][1:], list[str]()
    run_dir = os.path.normpath(str(run.config.get("run_dir") or run.directory))
    while given:
        words = [given.pop(0)]
        if words[0].startswith("-") and "=" not in words[0] and given and not given[0].startswith("--"):
            words.append(given.pop(0))
        option, _, value = words[0].partition("=")
        if option in ("--run-dir", "--resume") or run_dir in map(os.path.normpath, (*words, value)):
            continue
        found.append(" ".join(words))
    return found
