"""Writing of run files: from a config and a trainer to the text of ``config.toml``."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf
import tomli_w
from google.protobuf import json_format

from tpk.plugin.recorded_options import NOT_WRITTEN, REF, USE, written, written_plugin
from tpk.train.train_config import TrainConfig
from tpk.train.trainer import Trainer

_HEADER = """\
# `tpk train` with this file repeats the training; with --resume, it resumes it.
# Arguments after the name of the file change options, as in max_epoch=3.
"""
_HEADER_IF_INCOMPLETE = """\
# Not everything could be written as data: {missing}.
# Name a function that returns it instead, as in dataflow = 'module:function', or give it as key=value.
"""
PLUGINS = {
    "callbacks": "callback",
    "extra_callbacks": "callback",
    "monitors": "monitor",
    "extra_monitors": "monitor",
}
"""The keys whose values are lists of plugins, and the kind of the plugins."""
OBJECTS = ("model", "dataflow", "data", "session_creator")
"""The keys whose values may be named by ``module:attr``."""
_LOCATION = ("run_dir", "resume")
"""Where a run is: not written, because a repetition is another run."""


def run_data(config: TrainConfig, trainer: Any) -> dict[str, Any]:
    """Return the options of a run that are not the defaults, as plain data; those that cannot be written are marked.

    Args:
        config: the run.
        trainer: the trainer, as `launch_train_with_config` takes it.
    """
    data: dict[str, Any] = {"trainer": _written_trainer(trainer)}
    for field in attrs.fields(TrainConfig):
        value = getattr(config, field.name)
        is_default = type(value) is type(field.default) and value == field.default
        if field.name in _LOCATION or value is None or is_default:
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
    """Return the text of a run file in TOML.

    Args:
        data: what `run_data` returned.
    """
    missing = ", ".join(path for path, _ in not_written(data))
    header = _HEADER + (_HEADER_IF_INCOMPLETE.format(missing=missing) if missing else "")
    content = {name: _shortened(value) for name, value in data.items()}
    return f"{header}\n{tomli_w.dumps({**content, 'pythonpath': _module_directories()})}"


def not_written(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each value that could not be written, and the reason."""
    if isinstance(value, dict) and NOT_WRITTEN in value:
        yield path, str(value[NOT_WRITTEN])
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from not_written(item, f"{path}.{key}" if path else str(key))


def _written_trainer(trainer: Any) -> Any:
    if isinstance(trainer, Trainer) and trainer.registered_callbacks:
        return {NOT_WRITTEN: "a trainer with registered callbacks; give them to the config"}
    return written_plugin("trainer", trainer)


def _shortened(value: Any) -> Any:
    """Return a value as people write it: a name without options is a string."""
    if isinstance(value, dict) and set(value) == {USE}:
        return value[USE]
    if isinstance(value, list) and value and all(isinstance(each, dict) and set(each) == {USE} for each in value):
        return [each[USE] for each in value]
    return _without_none(value)


def _without_none(value: Any) -> Any:
    """Return a value without None, which TOML does not have."""
    if value is None:
        return {REF: "builtins:None"}
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items()}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _module_directories() -> list[str]:
    """Return the directories from which this process imports modules, except the directories of the installation."""
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    found = [Path(path).resolve() for path in sys.path]
    return [
        str(path)
        for path in dict.fromkeys(found)
        if path.is_dir()
        and path not in installed
        and not path.is_relative_to(stdlib)
        and path.name not in ("site-packages", "dist-packages")
    ]
