"""Reading of run files: from TOML or JSON, with overrides, to a config and a trainer."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf
from google.protobuf import json_format

from tpk.errors import ConfigError, TpkError
from tpk.other_libraries import OPTIONS, TRAINER_OPTIONS
from tpk.plugin.catalog import get_catalog
from tpk.plugin.creation import Ref, Use, check_options
from tpk.plugin.recorded_options import REF, USE
from tpk.text import nearest
from tpk.train.launch import imported_for, strategy_of
from tpk.train.run_file.toml import TOMLDecodeError, loads
from tpk.train.run_file.write import OBJECTS, PLUGINS, not_written
from tpk.train.train_config import TrainConfig

_OVERRIDE = re.compile(r"(?P<path>[\w.:-]+?)=(?P<value>.*)", re.DOTALL)
_PYTHON_VALUES = {"True": "true", "False": "false", "None": "null"}
_TRAINER, _PYTHONPATH = "trainer", "pythonpath"
_KEYS = (_TRAINER, _PYTHONPATH, *(field.name for field in attrs.fields(TrainConfig)))
_SPELLINGS = {
    **OPTIONS,
    **dict.fromkeys(
        TRAINER_OPTIONS,
        'write trainer = "replicated", or with options trainer = {use = "replicated", devices = 2}.',
    ),
    "batch_size": "make it an option of the data, as in dataflow = {use = 'my_data:train', batch_size = 32}.",
}


def read_run_file(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> tuple[TrainConfig, Any]:
    """Return the run that a file describes: the arguments of `launch_train_with_config`.

    The file is TOML or JSON. Its keys are the options of `TrainConfig`, and

    - ``trainer``: the name of a trainer or a strategy; by default ``"SimpleTrainer"``;
    - ``pythonpath``: directories from which to import modules, after the directory of the file. Relative paths are
      relative to that directory.

    A plugin is a name, or a table with the name as ``use`` and the options. A model or data is written in the same way,
    with ``"module:attr"`` as the name: a class or a function is called with the options. The value of an option may
    also be such a table. ``{ref = "module:attr"}`` is the object itself, which is not called, for an option that takes
    a function. ``session_config`` is a table of the fields of `tf.compat.v1.ConfigProto`. Other paths are relative to
    the current directory, as in a script.

    The directories are added to the front of ``sys.path``, and the modules are imported.

    Args:
        path: the file. A run that is launched with a config writes one: ``config.toml`` in its ``run_dir``.
        overrides: changes as ``"key=value"``, such as ``"max_epoch=3"``, ``"callbacks.ModelSaver.max_to_keep=3"`` (or
            the index of the callback instead of its name), ``"trainer=replicated"``, ``"trainer.devices=2"``,
            ``"seed=null"``. A value is TOML or null; any other text is a string.

    Returns:
        The config and the trainer.

    Raises:
        ConfigError: if the file cannot be read, or a key or value in it is invalid or marked as not written. The
            message names the file and the key.

    Example:
        ```toml
        model = "my_model:Model"
        dataflow = {use = "my_data:train", batch_size = 32}
        callbacks = ["ModelSaver", {use = "EarlyStopping", monitor_stat = "cost", patience = 3}]
        max_epoch = 20
        ```

        ```python
        config, trainer = tpk.read_run_file("config.toml", ["max_epoch=30"])
        tpk.launch_train_with_config(config, trainer)
        ```
    """
    file = Path(path)
    data = _parse(file)
    for override in overrides:
        _apply_override(data, override, str(file))
    _check_keys(data, str(file))
    for key, why in not_written(data):
        option = key.partition(".")[0]
        named = f"Name a function that returns it instead: {option} = 'module:function'."
        remedy = named if option in OBJECTS else f"Give it as {key}=VALUE."
        raise ConfigError(f"{file}: {key} could not be written as data: {why}. {remedy}")
    _extend_path(file, data.pop(_PYTHONPATH, None) or [])
    token = imported_for.set(str(file))
    try:
        trainer = _named(data.pop(_TRAINER, None) or "SimpleTrainer", f"{file}: {_TRAINER}", _TRAINER)
        options = {key: _option(key, value, f"{file}: {key}") for key, value in data.items() if value is not None}
    finally:
        imported_for.reset(token)
    if "model" not in options:
        raise ConfigError(f"{file}: model is missing.")
    try:
        return TrainConfig(**options), trainer
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _parse(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(file)!r} cannot be read: {error}. Name a run file: TOML or JSON.") from None
    if file.suffix not in (".toml", ".json"):
        raise ConfigError(f"{str(file)!r}: expected a file called *.toml or *.json.")
    try:
        data = loads(text) if file.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: it is not valid {file.suffix[1:].upper()}: {error}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f'{file}: expected a mapping of keys, such as {{"model": "my_model:Model"}}.')
    if "argv" in data and "versions" in data:
        raise ConfigError(f"{file} is only a record. To repeat the run, name {file.with_suffix('.toml')} beside it.")
    return data


def _apply_override(data: dict[str, Any], override: str, file: str) -> None:
    """Change one value of a run file.

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


def _check_keys(data: dict[str, Any], file: str) -> None:
    for key in data:
        if key in _SPELLINGS and key not in _KEYS:
            raise ConfigError(f"{file}: there is no key {key!r}: {_SPELLINGS[key]}")
        if key not in _KEYS:
            raise ConfigError(f"{file}: there is no key {key!r}.{nearest(key, _KEYS)} Known: {', '.join(_KEYS)}.")


def _extend_path(file: Path, directories: Any) -> None:
    if not isinstance(directories, list) or not all(isinstance(each, str) for each in directories):
        raise ConfigError(f"{file}: pythonpath: expected a list of directories, but it is {directories!r}.")
    here = file.resolve().parent
    for directory in reversed([here, *(here / each for each in directories)]):
        if str(directory) not in sys.path:
            sys.path.insert(0, str(directory))


def _option(key: str, value: Any, where: str) -> Any:
    if key in PLUGINS:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: expected a list of plugins, but it is {value!r}.")
        return [_named(each, f"{where}.{index}", PLUGINS[key]) for index, each in enumerate(value)]
    if key in OBJECTS and not (key == "dataflow" and isinstance(value, list)):  # A list is a dataflow.
        found = _named(value, where)
        if ":" not in found.name:
            raise ConfigError(f"{where}: expected module:attr, such as my_model:Model, but it is {found.name!r}.")
        return found
    if key == "session_config" and isinstance(value, dict) and not {USE, REF} & value.keys():
        try:
            return json_format.ParseDict(value, tf.compat.v1.ConfigProto())
        except json_format.ParseError as error:
            raise ConfigError(f"{where}: {error} Expected fields of tf.compat.v1.ConfigProto.") from None
    return _value(value, where)


def _named(value: Any, where: str, kind: str = "") -> Use:
    """Return a value where a plugin of this kind, or an object, is expected."""
    if isinstance(value, str):
        value = {USE: value}
    if not isinstance(value, dict) or not isinstance(value.get(USE), str):
        raise ConfigError(f"{where}: expected a name, or a table with {USE} = <name> and options, but it is {value!r}.")
    found: Use = _value(value, where, kind)
    return found


def _value(value: Any, where: str, kind: str = "") -> Any:
    """Return a value in which tables with ``use`` and ``ref`` are replaced by `Use` and `Ref`.

    What they name is imported.

    Args:
        value: the value in the file.
        where: its place in the file, for messages.
        kind: the kind of plugin that it must be; empty for an object, or an option of a plugin.

    Raises:
        ConfigError: if it is malformed, a name cannot be imported, or an option is unknown.
    """
    if isinstance(value, list):
        return [_value(item, f"{where}.{index}") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if REF in value:
        if set(value) != {REF} or not isinstance(value[REF], str) or ":" not in value[REF].strip(":"):
            raise ConfigError(f"{where}: expected {{{REF} = 'module:attr'}} and nothing else, but it is {value!r}.")
        ref = Ref(value[REF])
        _check_use("", ref, where)
        return ref
    items = {name: _value(item, f"{where}.{name}") for name, item in value.items()}
    if USE not in items:
        return items
    name = items.pop(USE)
    if not isinstance(name, str):
        raise ConfigError(f"{where}.{USE}: expected a name, but it is {name!r}.")
    found = Use(name, items, origin=where)
    _check_use(kind, found, where)
    return found


def _check_use(kind: str, found: Use | Ref, where: str) -> None:
    """Import the named object, and check that it takes the options.

    Raises:
        ConfigError: if the name cannot be imported, or an option is unknown.
    """
    catalog = get_catalog()
    name = found.target if isinstance(found, Ref) else found.name
    if ":" not in name and not kind:
        return  # An option of a plugin; only that plugin knows its kind.
    try:
        strategy = strategy_of(found) if kind == "trainer" and isinstance(found, Use) else None
        if strategy is not None:
            kind, found = "strategy", strategy
        entry = catalog.find(kind or "object", name)
        target = catalog.load(entry)
        if isinstance(found, Use):
            check_options(target, found.options, str(entry))
    except TpkError as error:
        raise ConfigError(f"{where}: {error}") from error
