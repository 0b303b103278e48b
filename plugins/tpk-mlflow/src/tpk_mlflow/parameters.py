"""Conversion of the nested description of a run to MLflow parameters, which are pairs of strings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tpk.plugin.recorded_options import described

# These describe how and where a run is recorded, not what is trained.
_APART = ("git", "argv", "versions", "monitors", "run_dir", "resume")


def read_config(run_dir: Path | None) -> dict[str, Any]:
    """Return the contents of the ``config.json`` of a run; an empty mapping if the run has no directory."""
    if run_dir is None:
        return {}
    config = json.loads((run_dir / "config.json").read_text(encoding="utf-8"))
    return config if isinstance(config, dict) else {}


def defaults_of(things: Iterable[object]) -> dict[str, dict[str, Any]]:
    """Return the default options of the constructors of `things`, by class name."""
    defaults = {}
    for thing in things:
        parameters = inspect.signature(type(thing)).parameters.values()
        defaults[type(thing).__name__] = {
            parameter.name: described(parameter.default)
            for parameter in parameters
            if parameter.default is not parameter.empty
        }
    return defaults


def as_parameters(config: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings in ``config.json`` as pairs of strings.

    A plugin is identified by its name instead of its position in the list, so that runs with different lists can be
    compared. Options with default values are omitted, because MLflow's pages show all parameters wherever they show a
    run.

    Args:
        config: the contents of ``config.json``.
        defaults: the default options of plugins, by class name.

    Example:
        ```python
        as_parameters({"seed": 3, "callbacks": [{"name": "ModelSaver", "options": {"max_to_keep": 2}}]}, {})
        # {"seed": "3", "callbacks": "ModelSaver", "callbacks.ModelSaver.max_to_keep": "2"}
        ```
    """
    settings = {name: value for name, value in config.items() if name not in _APART}
    return dict(_leaves("", settings, defaults))


def source_tags(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags for the known origin of a run: command line, Git commit and versions."""
    git = config.get("git") or {}
    tags = {"tpk.argv": " ".join(map(str, config.get("argv", ()))), "mlflow.source.git.commit": git.get("commit", "")}
    dirty = {"mlflow.source.git.dirty": str(git["is_dirty"])} if "is_dirty" in git else {}
    versions = {f"version.{name}": version for name, version in config.get("versions", {}).items()}
    return {name: value for name, value in {**tags, **dirty, **versions}.items() if value}


def _leaves(path: str, value: Any, defaults: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    if _is_plugin(value):
        yield path, value["name"]
        yield from _leaves(path, _changed(value, defaults), defaults)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), each, defaults)
    elif isinstance(value, list) and value and all(map(_is_plugin, value)):
        yield path, ", ".join(each["name"] for each in value)
        seen: dict[str, int] = {}
        for each in value:
            name = each["name"]
            seen[name] = seen.get(name, 0) + 1
            own = name if seen[name] == 1 else f"{name}.{seen[name]}"
            yield from _leaves(f"{path}.{own}", _changed(each, defaults), defaults)
    elif value is not None:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _changed(plugin: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    known = defaults.get(plugin["name"], {})
    return {name: value for name, value in plugin["options"].items() if name not in known or known[name] != value}


def _is_plugin(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"name", "options"} and isinstance(value["options"], Mapping)
