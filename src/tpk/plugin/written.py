"""Written forms: what stands for an object in a file that describes a run, so that it can be made from it again."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import itertools
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from tpk.plugin.names.builtins import BUILTINS
from tpk.plugin.names.creation import Ref, Use

USE, REF, NOT_WRITTEN = "use", "ref", "not_written"
"""The keys of a table that stands for an object, for what a name leads to, and for what could not be written."""

_MOST_SHOWN = 4
_MOST_CHARACTERS_SHOWN = 60
_RECORDED = "_recorded_written"
_MOST_VALUES = 1000
_MOST_CHARACTERS = 2000
_MOST_LEVELS = 16
_SECRET = re.compile(
    r"(^|_)((api|access|auth|private|secret)_?key|token|secret|password|passwd|credentials?)s?$", re.IGNORECASE
)


def written(value: Any) -> Any:
    """Return the form of a value in a file: plain data, from which the value can be made again.

    Args:
        value: anything.

    Returns:
        Numbers, texts and None as they are, and lists and mappings of such. An object that remembers how it was made
        is ``{"use": "module:Class", option: value, …}``, with the options that were given; a function or a class
        ``{"ref": "module:name"}``. What no file can hold is ``{"not_written": why}``: a lambda, an array, something of
        which nobody knows how it was made, a secret.

    Example:
        ```python
        written(tpk.ModelSaver(max_to_keep=3))  # {"use": "tpk:ModelSaver", "max_to_keep": 3}
        written(lambda epoch: epoch)  # {"not_written": "a lambda"}
        ```
    """
    return _written_or_why(value, itertools.count(), 0)


def written_plugin(kind: str, value: Any) -> Any:
    """Return the form of what stands where a plugin is expected: a name is a text there, and a class is made.

    Args:
        kind: ``"trainer"``, ``"callback"`` or ``"monitor"``.
        value: an instance, a class, a name, ``"module:attr"`` or a `Use`.
    """
    if isinstance(value, str):
        return {USE: value}
    if inspect.isclass(value):
        form = written(value)
        form = {USE: form[REF]} if REF in form else form
    else:
        form = written(value)
    names = {
        f"tpk:{target.partition(':')[2]}": name
        for name, target in BUILTINS[kind].items()
        if name == target.partition(":")[2]
    }
    if isinstance(form, dict) and form.get(USE) in names:
        form = {**form, USE: names[form[USE]]}
    return form


def record_written(thing: object, bound: inspect.BoundArguments) -> None:
    """Have an object remember the arguments that it was made with, by their written forms.

    Args:
        thing: the object.
        bound: the arguments, without defaults; the first one is the object itself.
    """
    vars(thing)[_RECORDED] = _written_arguments(bound)


def shown_arguments(thing: object) -> str:
    """Return the arguments that an object was made with, as a message may show them: what is long is left out."""
    recorded = getattr(thing, "__dict__", {}).get(_RECORDED)
    given = recorded if isinstance(recorded, dict) else {}
    return ", ".join(f"{name}={_shown(value)}" for name, value in given.items())


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        name = value.get(USE, value.get(REF))
        return name.rpartition(":")[2] if isinstance(name, str) else "…"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return f"[{', '.join(map(_shown, value))}]" if len(value) <= _MOST_SHOWN else "…"
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS_SHOWN else "…"


def is_secret(name: str, value: Any) -> bool:
    """Whether an option is called like something that must not stand in a file."""
    return isinstance(value, str | bytes) and _SECRET.search(name) is not None


def module_of_script() -> str:
    """Return the name by which the script that runs can be imported.

    Raises:
        LookupError: if it cannot; the message says what it is.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        raise LookupError("defined in a notebook, or at a prompt")
    stem = Path(file).stem
    if not stem.isidentifier():
        raise LookupError(f"defined in {Path(file).name}, which cannot be imported by that name")
    return stem


class _NotWrittenError(Exception):
    """A value has no written form; the message says what it is."""


def _written_or_why(value: Any, counter: Iterable[int], level: int) -> Any:
    try:
        return _written(value, counter, level)
    except _NotWrittenError as error:
        return {NOT_WRITTEN: str(error)}
    except Exception as error:  # Whatever an attribute of somebody's object does, no training fails for it.
        return {NOT_WRITTEN: f"an object of {type(value).__qualname__}, which says {type(error).__name__}: {error}"}


def _written(value: Any, counter: Any, level: int) -> Any:
    if next(counter) >= _MOST_VALUES or level > _MOST_LEVELS:
        raise _NotWrittenError(f"more than {_MOST_VALUES} values, or values within values")
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        if len(value) > _MOST_CHARACTERS:
            raise _NotWrittenError(f"a text of {len(value)} characters")
        return str(value)
    if isinstance(value, os.PathLike):
        return _written(os.fspath(value), counter, level)
    if isinstance(value, Ref):
        return {REF: value.target}
    if isinstance(value, Use):
        return _table(value.name, _written_options(value.options, counter, level))
    if isinstance(value, list | tuple):
        if len(value) > _MOST_VALUES:
            raise _NotWrittenError(f"a {type(value).__name__} of {len(value)} items")
        return [_written(item, counter, level + 1) for item in value]
    if isinstance(value, dict):
        return _written_mapping(value, counter, level)
    if isinstance(value, enum.Enum):
        return {REF: f"{name_of(type(value))}.{value.name}"}
    if inspect.isclass(value) or inspect.isroutine(value):
        return {REF: name_of(value)}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and type(value).__module__ == "numpy":
        return value.item()
    return _written_object(value, counter, level)


def _written_mapping(value: Mapping[Any, Any], counter: Any, level: int) -> dict[str, Any]:
    if len(value) > _MOST_VALUES:
        raise _NotWrittenError(f"a mapping of {len(value)} keys")
    if any(type(key) is not str for key in value):
        raise _NotWrittenError("a mapping whose keys are no texts")
    if {USE, REF, NOT_WRITTEN} & value.keys():
        raise _NotWrittenError(f"a mapping with a key {USE!r}, {REF!r} or {NOT_WRITTEN!r}, which mean something there")
    return _written_options(value, counter, level)


def _written_object(value: Any, counter: Any, level: int) -> dict[str, Any]:
    kind = type(value)
    if attrs.has(kind):
        fields = {each.alias: getattr(value, each.name) for each in attrs.fields(kind) if each.init}
        return _table(name_of(kind), _written_options(fields, counter, level))
    if dataclasses.is_dataclass(value):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        return _table(name_of(kind), _written_options(fields, counter, level))
    recorded = getattr(value, "__dict__", {}).get(_RECORDED)
    if recorded is None:
        if getattr(value, "shape", None) is not None and hasattr(value, "dtype"):
            raise _NotWrittenError(f"an array or a tensor of {value.dtype} {value.shape}")
        if not getattr(kind, "records_options", False):
            raise _NotWrittenError(f"an object of {kind.__module__}.{kind.__qualname__}, made in the script")
        recorded = {}  # Nobody has given it an argument.
    if isinstance(recorded, str):
        raise _NotWrittenError(recorded)
    return _table(name_of(kind), recorded)


def _table(name: str, options: dict[str, Any]) -> dict[str, Any]:
    if {USE, REF, NOT_WRITTEN} & options.keys():
        raise _NotWrittenError(f"{name} with an option {USE!r}, {REF!r} or {NOT_WRITTEN!r}, which mean something there")
    return {USE: name, **options}


def _written_arguments(bound: inspect.BoundArguments) -> dict[str, Any] | str:
    """Return the arguments, without the first, by name; or why they have no names."""
    given: dict[str, Any] = {}
    for name, value in itertools.islice(bound.arguments.items(), 1, None):
        kind = bound.signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            return f"an object of {type(bound.args[0]).__qualname__}, which was given arguments that have no names"
        given.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return _written_options(given, itertools.count(), 0)


def _written_options(options: Mapping[str, Any], counter: Any, level: int) -> dict[str, Any]:
    return {
        name: {NOT_WRITTEN: "a secret"} if is_secret(name, value) else _written_or_why(value, counter, level + 1)
        for name, value in options.items()
    }


def name_of(thing: Any) -> str:
    """Return ``"module:name"`` of a class or a function; if it is in the public API, that of the API."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if name.endswith("<lambda>"):
        raise _NotWrittenError("a lambda")
    if not module or not name or "<" in name:
        raise _NotWrittenError(f"{name or thing!r}, which is defined inside of a function")
    if module == "__main__":
        try:
            return f"{module_of_script()}:{name}"
        except LookupError as error:
            raise _NotWrittenError(f"{name}, which is {error}") from None
    if module.partition(".")[0] == "tpk" and _leads_to(f"tpk:{name}", thing):
        return f"tpk:{name}"
    if not _leads_to(f"{module}:{name}", thing):
        raise _NotWrittenError(f"{module}.{name}, under which name there is something else")
    return f"{module}:{name}"


def _leads_to(name: str, thing: Any) -> bool:
    try:
        return pkgutil.resolve_name(name) is thing
    except (ImportError, AttributeError, ValueError):
        return False
