"""Parameters of a run in MLflow: the description of a run, which is nested, as names and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_APART = ("git", "argv")


def read_config(run_dir: Path | None) -> dict[str, Any]:
    """Return what ``config.json`` of a run holds; nothing if the run has no directory."""
    if run_dir is None:
        return {}
    config = json.loads((run_dir / "config.json").read_text(encoding="utf-8"))
    return config if isinstance(config, dict) else {}


def as_parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what is in ``config.json`` as names and texts, but for what is no setting, or was left open (null).

    A plugin is called by its name, not by its place in the list, so that runs with different lists can be compared.

    Example:
        ```python
        as_parameters({"seed": 3, "callbacks": [{"name": "ModelSaver", "options": {"max_to_keep": 2}}]})
        # {"seed": "3", "callbacks": "ModelSaver", "callbacks.ModelSaver.max_to_keep": "2"}
        ```
    """
    settings = {name: value for name, value in config.items() if name not in _APART}
    return dict(_leaves("", settings))


def source_tags(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags by which MLflow tells where a run comes from, as far as they are known."""
    git = config.get("git") or {}
    tags = {"tpk.argv": " ".join(map(str, config.get("argv", ()))), "mlflow.source.git.commit": git.get("commit", "")}
    dirty = {"mlflow.source.git.dirty": str(git["is_dirty"])} if "is_dirty" in git else {}
    return {name: value for name, value in {**tags, **dirty}.items() if value}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if _is_plugin(value):
        yield path, value["name"]
        yield from _leaves(path, value["options"])
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), each)
    elif isinstance(value, list) and value and all(map(_is_plugin, value)):
        yield path, ", ".join(each["name"] for each in value)
        seen: dict[str, int] = {}
        for each in value:
            name = each["name"]
            seen[name] = seen.get(name, 0) + 1
            own = name if seen[name] == 1 else f"{name}.{seen[name]}"
            yield from _leaves(f"{path}.{own}", each["options"])
    elif value is not None:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_plugin(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"name", "options"} and isinstance(value["options"], Mapping)
