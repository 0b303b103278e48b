"""Options of objects: with what arguments each was made, as plain data that describes a run."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

import attrs

from tpk.plugin.names.creation import Ref, Use
from tpk.plugin.written import is_secret, record_written

_RECORDED = "_recorded_options"
_MOST_ITEMS = 16
_MOST_CHARACTERS = 1000
_MOST_LEVELS = 8


class RecordsOptions:
    """Base of what a run is made of: each object remembers the arguments that it was made with.

    They are kept as `described` and `tpk.plugin.written.written` return them, so that nothing is held alive by that. A
    subclass has nothing to do for it, and its signature stays what it is.
    """

    records_options = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Have the constructor of a subclass, if it has one of its own, take note of its arguments."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]


def options_of(thing: object) -> dict[str, Any]:
    """Return the options of an object, described: the fields of an attrs or data class, else what it was made with."""
    kind: Any = type(thing)
    if attrs.has(kind):
        fields = {each.name.lstrip("_"): getattr(thing, each.name, None) for each in attrs.fields(kind) if each.init}
    elif dataclasses.is_dataclass(thing):
        fields = {each.name: getattr(thing, each.name, None) for each in dataclasses.fields(thing) if each.init}
    else:
        return dict(vars(thing).get(_RECORDED, {})) if hasattr(thing, "__dict__") else {}
    return _described_options(fields)


def described(value: Any) -> Any:
    """Return what `value` is as plain data for JSON: small, the same in each run, and without the address of anything.

    Returns:
        Numbers, texts and None as they are, and lists and mappings of such, cut off where they are long. Of a plugin
        and of what else a run is made of, the name of the class and the options. Of an array, a tensor or a
        `tf.TensorSpec`, dtype, shape and name; of a function its qualified name; of anything else its type. What
        is called like a secret, such as ``api_key``, is not told.

    Example:
        ```python
        described(tpk.ModelSaver(max_to_keep=3))  # {"name": "ModelSaver", "options": {"max_to_keep": 3, ...}}
        described(np.zeros([2, 3], np.float32))  # "float32 (2, 3)"
        ```
    """
    return _described(value, _MOST_LEVELS)


def leaves_of(description: Any, path: str = "") -> dict[str, Any]:
    """Return the plain values in what `described` returns by their paths: plugins by names, whatever their places.

    Args:
        description: such as the content of a ``config.json``.
        path: that of `description` itself.

    Example:
        ```python
        leaves_of({"callbacks": [{"name": "ModelSaver", "options": {"max_to_keep": 3}}]})
        # {"callbacks.ModelSaver": "ModelSaver", "callbacks.ModelSaver.max_to_keep": 3}
        ```
    """
    parts: dict[str, Any] = {}
    if isinstance(description, Mapping) and set(description) == {"name", "options"} and path:
        return {path: description["name"], **leaves_of(description["options"], path)}
    if isinstance(description, Mapping):
        parts = {f"{path}.{name}" if path else str(name): each for name, each in description.items()}
    elif isinstance(description, list) and any(isinstance(each, Mapping) for each in description):
        for each in description:
            name = f"{path}.{each.get('name') if isinstance(each, Mapping) else each}"
            number = sum(key.partition("#")[0] == name for key in parts) + 1
            parts[f"{name}#{number}" if number > 1 else name] = each
    else:
        return {path: description}
    return {name: leaf for part, each in parts.items() for name, leaf in leaves_of(each, part).items()}


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    signature: inspect.Signature | None = None

    @functools.wraps(init)
    def record_and_init(self: Any, *args: Any, **options: Any) -> None:
        nonlocal signature
        # That of a base class is called from within that of the class itself.
        if _RECORDED not in vars(self):
            try:
                signature = signature or inspect.signature(init)
                bound = signature.bind(self, *args, **options)
                record_written(self, bound)
                bound.apply_defaults()
                vars(self)[_RECORDED] = _described_options(_flat(bound))
            except Exception:  # The constructor itself says what is wrong with its arguments.
                vars(self)[_RECORDED] = {}
        init(self, *args, **options)

    return record_and_init


def _flat(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Return arguments by name, without the first; those of ``**options`` by their own names."""
    flat: dict[str, Any] = {}
    for name, parameter in itertools.islice(bound.signature.parameters.items(), 1, None):
        value = bound.arguments[name]
        flat.update(value if parameter.kind is parameter.VAR_KEYWORD else {name: value})
    return flat


def _described_options(options: Mapping[str, Any], levels: int = _MOST_LEVELS) -> dict[str, Any]:
    return {
        name: "(not told)" if is_secret(name, value) else _described(value, levels) for name, value in options.items()
    }


def _described(value: Any, levels: int) -> Any:
    if value is None or isinstance(value, bool) or type(value) in (int, float):
        return value if value == value and value not in (float("inf"), -float("inf")) else str(value)
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…"
    if not levels:
        return type(value).__name__
    if isinstance(value, Ref):
        return value.target
    if isinstance(value, Use):
        return {"name": value.name, "options": _described_options(value.options, levels - 1)}
    if isinstance(value, RecordsOptions) or attrs.has(type(value)) or _is_data(value):
        return {"name": type(value).__name__, "options": options_of(value)}
    if isinstance(value, dict):  # Other mappings may read files.
        shown = dict(itertools.islice(value.items(), _MOST_ITEMS))
        found = _described_options({str(key): item for key, item in shown.items()}, levels - 1)
        return {**found, "…": f"{len(value) - len(shown)} more"} if len(value) > len(shown) else found
    if isinstance(value, list | tuple):
        # Of data, the first shows what the others are like.
        items = value if len(value) <= _MOST_ITEMS else value[:1]
        listed = [_described(item, levels - 1) for item in items]
        return [*listed, f"… {len(value) - len(items)} more"] if len(value) > len(items) else listed
    if isinstance(value, set | frozenset):
        return sorted(map(str, value)) if len(value) <= _MOST_ITEMS else f"{type(value).__name__} of {len(value)}"
    return _described_object(value)


def _described_object(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, enum.Enum | date | timedelta | range | slice):
        return str(value)
    if isinstance(value, functools.partial):
        return f"functools.partial({_described_object(value.func)})"
    if inspect.isclass(value) or inspect.isroutine(value):
        module = getattr(value, "__module__", None)
        name = getattr(value, "__qualname__", type(value).__name__)
        return f"{module}.{name}" if module else name
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # a number of NumPy's
        return _described(value.item(), 1)
    for describe in (_described_array, _described_message):
        try:
            text = describe(value)
        except Exception:
            text = None
        if text is not None:
            return text
    return type(value).__name__


def _described_array(value: Any) -> str | None:
    """Return dtype, shape and name of whatever has a dtype and a shape."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        return None
    name = getattr(value, "name", None)
    parts = [name if isinstance(name, str) else "", getattr(dtype, "name", None) or str(dtype), str(shape)]
    return " ".join(filter(None, parts))


def _described_message(value: Any) -> str | None:
    """Return the name of a dtype, or the text of a protocol buffer."""
    if hasattr(value, "as_numpy_dtype") or (hasattr(value, "itemsize") and hasattr(value, "kind")):
        return str(value.name)
    if hasattr(value, "SerializeToString"):
        return " ".join(str(value).split())[:_MOST_CHARACTERS]
    return None


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
