"""Reading of run files: from TOML or JSON, with overrides, to a config and a trainer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf
from google.protobuf import json_format

from tpk.errors import ConfigError, TpkError
from tpk.plugin.catalog import CatalogEntry, get_catalog
from tpk.plugin.creation import Ref, Use, check_options
from tpk.plugin.description import REF, USE
from tpk.text import nearest
from tpk.train.config import SPELLINGS, TRAINER_OPTIONS, TrainConfig
from tpk.train.launch import imported_for, names_strategy
from tpk.train.run_file.overrides import apply_override
from tpk.train.run_file.toml import loads
from tpk.train.run_file.write import OBJECTS, PLUGINS, not_written

_TRAINER, _PYTHONPATH = "trainer", "pythonpath"
_KEYS = (_TRAINER, _PYTHONPATH, *(field.name for field in attrs.fields(TrainConfig)))
_SPELLINGS = {
    **SPELLINGS,
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
        apply_override(data, override, str(file))
    _check_keys(data, str(file))
    for key, why in not_written(data):
        option = key.partition(".")[0]
        named = f"Name a function that returns it instead: {option} = 'module:function'."
        remedy = named if option in OBJECTS else f"Give it as {key}=VALUE."
        raise ConfigError(f"{file}: {key} could not be written as data: {why}. {remedy}")
    _extend_path(file, data.pop(_PYTHONPATH, None) or [])
    trainer = _named(data.pop(_TRAINER, None) or "SimpleTrainer", _TRAINER, str(file))
    options = {key: _option(key, value, str(file)) for key, value in data.items() if value is not None}
    token = imported_for.set(str(file))
    try:
        for key, kind, found in _uses({_TRAINER: trainer, **options}):
            _check_use(kind, found, f"{file}: {key}")
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


def _option(key: str, value: Any, file: str) -> Any:
    if key in PLUGINS:
        if not isinstance(value, list):
            raise ConfigError(f"{file}: {key}: expected a list of plugins, but it is {value!r}.")
        return [_named(each, f"{key}.{index}", file) for index, each in enumerate(value)]
    if key in OBJECTS and not (key == "dataflow" and isinstance(value, list)):  # A list is a dataflow.
        return _named(value, key, file)
    if key == "session_config" and isinstance(value, dict) and not {USE, REF} & value.keys():
        try:
            return json_format.ParseDict(value, tf.compat.v1.ConfigProto())
        except json_format.ParseError as error:
            raise ConfigError(f"{file}: {key}: {error} Expected fields of tf.compat.v1.ConfigProto.") from None
    return _value(value, key, file)


def _named(value: Any, key: str, file: str) -> Use:
    """Return a value where a plugin or an object is expected."""
    if isinstance(value, str):
        value = {USE: value}
    if not isinstance(value, dict) or not isinstance(value.get(USE), str):
        raise ConfigError(
            f"{file}: {key}: expected a name, or a table with {USE} = <name> and options, but it is {value!r}."
        )
    found: Use = _value(value, key, file)
    if key in OBJECTS and ":" not in found.name:
        raise ConfigError(f"{file}: {key}: expected module:attr, such as my_model:Model, but it is {found.name!r}.")
    return found


def _value(value: Any, key: str, file: str) -> Any:
    """Return a value in which tables with ``use`` and ``ref`` are replaced by `Use` and `Ref`."""
    if isinstance(value, list):
        return [_value(item, f"{key}.{index}", file) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if REF in value:
        if set(value) != {REF} or not isinstance(value[REF], str) or ":" not in value[REF].strip(":"):
            raise ConfigError(
                f"{file}: {key}: expected {{{REF} = 'module:attr'}} and nothing else, but it is {value!r}."
            )
        return Ref(value[REF])
    items = {name: _value(item, f"{key}.{name}", file) for name, item in value.items()}
    if USE not in items:
        return items
    name = items.pop(USE)
    if not isinstance(name, str):
        raise ConfigError(f"{file}: {key}.{USE}: expected a name, but it is {name!r}.")
    return Use(name, items, origin=f"{file}: {key}")


def _uses(value: Any, key: str = "", kind: str = "") -> Iterator[tuple[str, str, Use | Ref]]:
    """Yield each `Use` and `Ref` in a value, with its key and the expected kind of plugin, if any."""
    if isinstance(value, Ref):
        yield key, "", value
        return
    if isinstance(value, Use):
        yield key, kind, value
        yield from _uses(value.options, key)
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        own = PLUGINS.get(name, "trainer" if name == _TRAINER else "") if not key and isinstance(name, str) else kind
        yield from _uses(item, f"{key}.{name}" if key else str(name), own)


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
        if kind == "trainer" and names_strategy(name):
            kind = "strategy"
        entry = catalog.find(kind, name) if kind else CatalogEntry("object", name, target=name)
        target = catalog.load(entry)
        if isinstance(found, Use):
            check_options(target, found.options, str(entry))
    except TpkError as error:
        raise ConfigError(f"{where}: {error}") from error
