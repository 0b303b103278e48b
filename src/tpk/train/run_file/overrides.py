"""Overrides of a run file: ``key=value`` on the command line, with dots between the keys of what is nested."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

from tpk.errors import ConfigError
from tpk.plugin.description import REF, USE
from tpk.train.run_file.toml import TOMLDecodeError, loads

_FORM = re.compile(r"(?P<path>[\w.:-]+?)=(?P<value>.*)", re.DOTALL)
_PYTHONS = {"True": "true", "False": "false", "None": "null"}


def apply_overrides(data: dict[str, Any], overrides: Sequence[str], file: str) -> None:
    """Change what a run file holds.

    Args:
        data: its content; it is changed.
        overrides: such as ``"callbacks.ModelSaver.max_to_keep=3"``, ``"callbacks.0.max_to_keep=3"``,
            ``"trainer=replicated"`` or ``"seed=null"``. A value is one of TOML, or null; what is neither is a text.
        file: the name of the file, for messages.

    Raises:
        ConfigError: if one is not of that form, or leads nowhere; it names it.
    """
    for override in overrides:
        match = _FORM.fullmatch(override)
        if match is None:
            raise ConfigError(f"{override!r}: expected key=value, such as max_epoch=3 or callbacks.ModelSaver.every=3.")
        _assign(data, match["path"].split("."), _value(match["value"], override), f"{file}: {override!r}")


def _value(text: str, override: str) -> Any:
    if text in _PYTHONS:
        raise ConfigError(f"{override!r}: values are those of TOML, not of Python. Write {_PYTHONS[text]}.")
    if text == "null":
        return None
    try:
        parsed = loads(f"value = {text}")
        if set(parsed) == {"value"}:
            return parsed["value"]
    except TOMLDecodeError as error:
        # What begins like that was meant for more than a text.
        if text[:1] in ("[", "{", '"', "'"):
            raise ConfigError(
                f"{override!r}: {text!r} is no value of TOML: {error}. Is it quoted for the shell?"
            ) from None
    return text


def _assign(data: dict[str, Any], path: list[str], value: Any, what: str) -> None:
    place: Any = data
    for depth, key in enumerate(path[:-1]):
        index = _index(place, key, what) if isinstance(place, list) else key
        if isinstance(place, dict) and key not in place:
            raise _leads_nowhere(what, key, list(place))
        if isinstance(place[index], str):
            place[index] = {USE: place[index]}  # From now on with options.
        if not isinstance(place[index], dict | list):
            shown = ".".join(path[: depth + 1])
            raise ConfigError(f"{what}: {shown} is {json.dumps(place[index], default=str)}, which has no {path[-1]}.")
        place = place[index]
    if isinstance(place, list):
        place[_index(place, path[-1], what)] = value
    else:
        place[path[-1]] = value


def _index(items: list[Any], key: str, what: str) -> int:
    """Return the position of an item of a list, by its number or its name."""
    names = [_name(item) for item in items]
    if key.isdecimal() and int(key) < len(items):
        return int(key)
    if names.count(key) == 1:
        return names.index(key)
    if key in names:
        numbers = " and ".join(str(number) for number, name in enumerate(names) if name == key)
        raise ConfigError(
            f"{what}: there are several {key}, the numbers {numbers}. Write the number in place of the name."
        )
    raise _leads_nowhere(what, key, [name for name in names if name] or [f"0 to {len(items) - 1}"])


def _name(item: Any) -> str:
    """Return what an item is called: the last part of what it uses."""
    name = item.get(USE, item.get(REF)) if isinstance(item, dict) else item
    return re.split(r"[:.]", name)[-1] if isinstance(name, str) else ""


def _leads_nowhere(what: str, key: str, known: list[str]) -> ConfigError:
    nearest = difflib.get_close_matches(key, known, n=1)
    hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
    return ConfigError(f"{what}: there is no {key!r}. {hint}There is: {', '.join(known) or 'nothing'}.")
