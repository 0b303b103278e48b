"""Writing of run files: from a config and a trainer to the text of ``config.toml``."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf
import tomli_w
from google.protobuf import json_format

from tpk.plugin.creation import Use
from tpk.plugin.description import NOT_WRITTEN, REF, USE, module_of_script, written, written_plugin
from tpk.train.config import TrainConfig
from tpk.train.run.description import script_directory
from tpk.train.trainer import Trainer

_HEADER = """\
# `tpk train` with this file repeats the training; with --resume, it goes on with it.
# What comes after the name of the file changes an option, as in max_epoch=3.
"""
_HEADER_IF_INCOMPLETE = """\
# What could not be written as data says so: {missing}.
# Give it by key=value, or name in the script what makes it, as in dataflow="my_data:train".
"""
PLUGINS = {
    "callbacks": "callback",
    "extra_callbacks": "callback",
    "monitors": "monitor",
    "extra_monitors": "monitor",
}
"""The keys of lists of plugins, and the kind of those."""
OBJECTS = ("model", "dataflow", "data", "session_creator")
"""The keys of what is made of ``module:attr``."""
_OF_A_PLACE = ("run_dir", "resume")
"""What says where a run is, and not what it does: a repetition is another one."""


def run_data(config: TrainConfig, trainer: Any) -> dict[str, Any]:
    """Return a run as plain data: what is not as by default, with what could not be written marked.

    Args:
        config: the run.
        trainer: who trains, as `launch_train_with_config` takes it.
    """
    data: dict[str, Any] = {"trainer": _written_trainer(trainer)}
    for field in attrs.fields(TrainConfig):
        value = getattr(config, field.name)
        if (
            field.name in _OF_A_PLACE
            or value is None
            or (type(value) is type(field.default) and value == field.default)
        ):
            continue
        if field.name in PLUGINS:
            data[field.name] = [written_plugin(PLUGINS[field.name], each) for each in value]
        elif field.name in OBJECTS:
            data[field.name] = {USE: value} if isinstance(value, str) else written(value)
        elif isinstance(value, tf.compat.v1.ConfigProto):
            data[field.name] = json_format.MessageToDict(value, preserving_proto_field_name=True)
        else:
            data[field.name] = written(value)
    return data


def run_file_text(data: dict[str, Any]) -> str:
    """Return the text of a run file, in TOML.

    Args:
        data: what `run_data` returns; the modules that it names can be imported.
    """
    whole = {**data, "pythonpath": _directories_of(data)}
    missing = ", ".join(path for path, _ in not_written(whole))
    header = _HEADER + (_HEADER_IF_INCOMPLETE.format(missing=missing) if missing else "")
    short = {name: _shortened(value) for name, value in whole.items() if name != "pythonpath" or value}
    return f"{header}\n{tomli_w.dumps(short)}"


def not_written(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths of what could not be written, and why."""
    if isinstance(value, dict) and NOT_WRITTEN in value:
        yield path, str(value[NOT_WRITTEN])
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from not_written(item, f"{path}.{key}" if path else str(key))


def _written_trainer(trainer: Any) -> Any:
    if isinstance(trainer, Use) or not isinstance(trainer, Trainer):
        return written_plugin("trainer", trainer)
    if trainer.registered_callbacks:
        return {NOT_WRITTEN: "a trainer with callbacks that were registered; give them to the config"}
    return written_plugin("trainer", trainer)


def _shortened(value: Any) -> Any:
    """Return a value as one would write it: a name without options is a text where one stands for an object."""
    if isinstance(value, dict) and set(value) == {USE}:
        return value[USE]
    if isinstance(value, list) and value and all(isinstance(each, dict) and set(each) == {USE} for each in value):
        return [each[USE] for each in value]
    return _without_none(value)


def _without_none(value: Any) -> Any:
    """Return a value without None, for which TOML has no word."""
    if value is None:
        return {REF: "builtins:None"}
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items()}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _directories_of(data: Any) -> list[str]:
    """Return where the modules are that are named, but for what is installed."""
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    found: list[str] = []
    for module in _modules(data):
        directory = _directory_of(module)
        if directory is not None and directory not in installed and str(directory) not in found:
            found.append(str(directory))
    return found


def _modules(value: Any) -> Iterator[str]:
    """Yield the top-level modules that are named."""
    if isinstance(value, dict):
        name = value.get(USE, value.get(REF))
        if isinstance(name, str) and ":" in name:
            yield name.partition(":")[0].partition(".")[0]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield from _modules(item)


def _directory_of(module: str) -> Path | None:
    """Return the directory from which a top-level module is imported; None if there is none, or it is that of tpk."""
    if module == "tpk":
        return None
    if module == _module_of_script_or_none():
        return script_directory()
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # One that was made at run time has none.
        return None
    if spec is None or not (spec.has_location or spec.submodule_search_locations):
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(str(spec.origin)).resolve().parent


def _module_of_script_or_none() -> str | None:
    try:
        return module_of_script()
    except LookupError:
        return None
