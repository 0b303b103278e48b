"""Overrides of a run file: ``key=value`` on the command line, with dots between nested keys."""

from __future__ import annotations

import json
import re
from typing import Any

from tpk.errors import ConfigError
from tpk.plugin.recorded_options import REF, USE
from tpk.text import nearest
from tpk.train.run_file.toml import TOMLDecodeError, loads

_OVERRIDE = re.compile(r"(?P<path>[\w.:-]+?)=(?P<value>.*)", re.DOTALL)
_PYTHON_VALUES = {"True": "true", "False": "false", "None": "null"}


def apply_override(data: dict[str, Any], override: str, file: str) -> None:
    """Change one value of a run file.

    Args:
        data: the content of the file; it is changed.
        override: ``"key=value"``, with dots between nested keys; see `tpk.read_run_file`.
        file: the name of the file, for messages.

    Raises:
        ConfigError: if it does not have this form, or there is no such key.
    """
    match = _OVERRIDE.fullmatch(override)
    if match is None:
        raise ConfigError(f"{override!r}: expected key=value, such as max_epoch=3 or callbacks.ModelSaver.every=3.")
    _assign(data, match["path"].split("."), _override_value(match["value"], override), f"{file}: {override!r}")


def _override_value(text: str, override: str) -> Any:
    if text in _PYTHON_VALUES:
        raise ConfigError(f"{override!r}: values are written in TOML, not Python. Write {_PYTHON_VALUES[text]}.")
    if text == "null":
        return None
    try:
        parsed = loads(f"value = {text}")
        if set(parsed) == {"value"}:
            return parsed["value"]
    except TOMLDecodeError as error:
        if text.startswith(("[", "{", '"', "'")):
            raise ConfigError(
                f"{override!r}: {text!r} is not valid TOML: {error}. Is it quoted for the shell?"
            ) from None
    return text


def _assign(data: dict[str, Any], path: list[str], value: Any, what: str) -> None:
    place: Any = data
    for depth, key in enumerate(path[:-1]):
        index = _index(place, key, what) if isinstance(place, list) else key
        if isinstance(place, dict) and key not in place:
            raise _no_such_key(what, key, list(place))
        if isinstance(place[index], str):
            place[index] = {USE: place[index]}  # So that it can have options.
        if not isinstance(place[index], dict | list):
            shown = ".".join(path[: depth + 1])
            raise ConfigError(f"{what}: {shown} is {json.dumps(place[index], default=str)}, which has no {path[-1]}.")
        place = place[index]
    if isinstance(place, list):
        place[_index(place, path[-1], what)] = value
    else:
        place[path[-1]] = value


def _index(items: list[Any], key: str, what: str) -> int:
    """Return the position of the item of a list with this number or name."""
    names = [_name(item) for item in items]
    if key.isdecimal() and int(key) < len(items):
        return int(key)
    if names.count(key) == 1:
        return names.index(key)
    if key in names:
        numbers = " and ".join(str(number) for number, name in enumerate(names) if name == key)
        raise ConfigError(
            f"{what}: there are several {key}, the numbers {numbers}. Write the number instead of the name."
        )
    raise _no_such_key(what, key, [name for name in names if name] or [f"0 to {len(items) - 1}"])


def _name(item: Any) -> str:
    name = item.get(USE, item.get(REF)) if isinstance(item, dict) else item
    return re.split(r"[:.]", name)[-1] if isinstance(name, str) else ""


def _no_such_key(what: str, key: str, known: list[str]) -> ConfigError:
    return ConfigError(f"{what}: there is no {key!r}.{nearest(key, known)} Known: {', '.join(known) or 'nothing'}.")
