"""Descriptions of objects by the arguments that they were made with: for ``config.json``, ``config.toml`` and `repr`.

Each value has two forms, which are made together (`_Form`): a short one for people, and one to make it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import attrs

from tpk.plugin.builtins import BUILTINS
from tpk.plugin.creation import Ref, Use

USE, REF, NOT_WRITTEN = "use", "ref", "not_written"
"""The keys of a table that describes an object, an importable name, and a value that cannot be written."""

_RECORDED = "_made_with"
_MOST_VALUES = 1000
_MOST_LEVELS = 16
_MOST_CHARACTERS = 2000
_MOST_ITEMS_DESCRIBED = 16
_MOST_CHARACTERS_OF_REPR = 60
_SECRET = re.compile(
    r"(^|_)((api|access|auth|private|secret)_?key|token|secret|password|passwd|credentials?)s?$", re.IGNORECASE
)


class RecordsOptions:
    """Base class of objects that record the arguments of their constructor.

    The arguments are recorded as a description, so they are not kept alive. A subclass has nothing to do, and its
    signature stays the same.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor of the subclass, if it has its own."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]


def described(value: Any) -> Any:
    """Describe a value as plain data for JSON that is short, and equal in every run.

    Returns:
        Numbers, text, None, and lists and mappings of them, shortened where they are long. For an object that records
        its options, and for attrs and data classes, the name of the class and the options, including defaults. For an
        array, a tensor or a `tf.TensorSpec`, its name, dtype and shape; for a function, its qualified name; for other
        objects, their type. The value of an option whose name suggests a secret, such as ``api_key``, is left out.

    Example:
        ```python
        described(tpk.ModelSaver(max_to_keep=3))  # {"name": "ModelSaver", "options": {"max_to_keep": 3, ...}}
        described(np.zeros([2, 3], np.float32))  # "float32 (2, 3)"
        ```
    """
    return _form_of(value).described


def options_of(thing: object) -> dict[str, Any]:
    """Return the described options of an object; an empty dict if it does not record them."""
    found = described(thing)
    return dict(found["options"]) if isinstance(found, dict) and _is_made(found) else {}


def written(value: Any) -> Any:
    """Return a value as plain data for a file, from which the value can be made again.

    Returns:
        Numbers, text, None, and lists and mappings of them. An object that records its options is
        ``{"use": "module:Class", option: value, …}``, with the options that were given; a function or a class is
        ``{"ref": "module:name"}``. A value that cannot be made again (a lambda, an array, an object of another class, a
        secret) is ``{"not_written": reason}``.

    Example:
        ```python
        written(tpk.ModelSaver(max_to_keep=3))  # {"use": "tpk:ModelSaver", "max_to_keep": 3}
        written(lambda epoch: epoch)  # {"not_written": "a lambda"}
        ```
    """
    return _form_of(value).written


def written_plugin(kind: str, value: Any) -> Any:
    """Return the written form of a plugin. Unlike `written`, it uses the names of built-in plugins.

    Args:
        kind: ``"trainer"``, ``"callback"`` or ``"monitor"``.
        value: an instance, a class, a name, ``"module:attr"`` or a `Use`.
    """
    form = written(Use(value) if isinstance(value, str) else value)
    if inspect.isclass(value) and REF in form:
        form = {USE: form[REF]}
    target = form.get(USE, "") if isinstance(form, dict) else ""
    module, _, name = target.partition(":")
    if module == "tpk" and BUILTINS[kind].get(name, "").endswith(f":{name}"):
        return {**form, USE: name}
    return form


def shown_arguments(thing: object) -> str:
    """Return the arguments that an object was given, for its `repr`. Long values are left out."""
    return ", ".join(f"{name}={_as_repr(value)}" for name, value in _recorded(thing).data.items())


def leaves_of(description: Any, path: str = "") -> dict[str, Any]:
    """Return the plain values of a description by path. Plugins are named instead of numbered.

    Args:
        description: the result of `described`, such as the content of a ``config.json``.
        path: the path of `description` itself.

    Example:
        ```python
        leaves_of({"callbacks": [{"name": "ModelSaver", "options": {"max_to_keep": 3}}]})
        # {"callbacks.ModelSaver": "ModelSaver", "callbacks.ModelSaver.max_to_keep": 3}
        ```
    """
    parts: dict[str, Any] = {}
    if isinstance(description, Mapping) and _is_made(description) and path:
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


def _is_made(description: Mapping[str, Any]) -> bool:
    """Return whether a description is that of an object with options."""
    return set(description) == {"name", "options"}


@attrs.frozen
class _Form:
    """A value as plain data.

    Attributes:
        described: what `described` returns.
        data: what `written` returns, if the value can be written.
        why: why it cannot be written; empty if it can.
    """

    described: Any
    data: Any
    why: str = ""

    @property
    def written(self) -> Any:
        """What `written` returns."""
        return {NOT_WRITTEN: self.why} if self.why else self.data


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def record_and_init(self: Any, *args: Any, **options: Any) -> None:
        # The constructor of a base class is called by the constructor of the class itself.
        if _RECORDED not in vars(self):
            vars(self)[_RECORDED] = _Form({}, {})
            # The constructor itself raises a better error.
            with contextlib.suppress(TypeError):
                bound = inspect.signature(init).bind(self, *args, **options)
                vars(self)[_RECORDED] = _form_of_arguments(type(self), bound)
        init(self, *args, **options)

    return record_and_init


def _recorded(thing: object) -> _Form:
    """Return the form of the arguments that an object was made with."""
    form: _Form = vars(thing).get(_RECORDED, _Form({}, {}))
    return form


def _form_of_arguments(kind: type, bound: inspect.BoundArguments) -> _Form:
    """Return the arguments of a constructor by name: described with defaults, and written as they were given."""
    given = _by_name(bound)
    by_position = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
    why = ""
    if any(bound.signature.parameters[name].kind in by_position for name in list(bound.arguments)[1:]):
        why = f"an object of {kind.__qualname__}, which was given arguments that have no names"
    bound.apply_defaults()
    every = _form_of_options(_by_name(bound), itertools.count(), 0)
    return _Form(every.described, {name: every.data[name] for name in given}, why)


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Return arguments by name, except `self`; ``**options`` are flattened."""
    flat: dict[str, Any] = {}
    for name, value in itertools.islice(bound.arguments.items(), 1, None):
        kind = bound.signature.parameters[name].kind
        flat.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return flat


def _form_of(value: Any) -> _Form:
    return _form(value, itertools.count(), 0)


def _form(value: Any, counter: Iterator[int], level: int) -> _Form:
    kind = type(value)
    if next(counter) >= _MOST_VALUES or level > _MOST_LEVELS:
        return _Form(kind.__name__, None, f"more than {_MOST_VALUES} values, or values within values")
    if value is None or kind in (bool, int, float):
        return _Form(str(value) if kind is float and not math.isfinite(value) else value, value)
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        text = str(value)
        if len(text) <= _MOST_CHARACTERS:
            return _Form(text, text)
        return _Form(f"{text[:_MOST_CHARACTERS]}…", None, f"a text of {len(text)} characters")
    if isinstance(value, os.PathLike):
        return _form(os.fspath(value), counter, level)
    if isinstance(value, Use):
        return _made(value.name, (value.name, ""), _form_of_options(value.options, counter, level))
    if isinstance(value, Ref):
        return _Form(value.target, {REF: value.target})
    if isinstance(value, list | tuple):
        return _form_of_list(value, counter, level)
    if isinstance(value, dict):  # Other mappings may read files.
        return _form_of_mapping(value, counter, level)
    if isinstance(value, enum.Enum):
        target, why = _find_target(kind)
        return _Form(str(value), {REF: f"{target}.{value.name}"}, why)
    if inspect.isclass(value) or inspect.isroutine(value):
        target, why = _find_target(value)
        return _Form(_qualified_name(value), {REF: target}, why)
    try:
        return _form_of_object(value, counter, level)
    except Exception as error:  # A property of the user's object may raise anything.
        return _Form(
            kind.__name__, None, f"an object of {kind.__qualname__}, which says {type(error).__name__}: {error}"
        )


def _form_of_list(value: list[Any] | tuple[Any, ...], counter: Iterator[int], level: int) -> _Form:
    if len(value) > _MOST_VALUES:
        shown = [described(value[0]), f"… {len(value) - 1} more"]
        return _Form(shown, None, f"a {type(value).__name__} of {len(value)} items")
    items = [_form(item, counter, level + 1) for item in value]
    why = next((item.why for item in items if item.why), "")
    return _Form(_few([item.described for item in items]), [item.written for item in items], why)


def _form_of_mapping(value: dict[Any, Any], counter: Iterator[int], level: int) -> _Form:
    items = {str(key): item for key, item in itertools.islice(value.items(), _MOST_VALUES)}
    form = _form_of_options(items, counter, level)
    if len(value) > _MOST_VALUES:
        why = f"a mapping of {len(value)} keys"
    elif any(type(key) is not str for key in value):
        why = "a mapping with keys that are not text"
    else:
        why = _reserved_keys("a mapping", items)
    return attrs.evolve(form, why=why)


def _form_of_options(options: Mapping[str, Any], counter: Iterator[int], level: int) -> _Form:
    secret = _Form("(not told)", None, "a secret")
    forms = {
        name: secret if isinstance(value, str | bytes) and _SECRET.search(name) else _form(value, counter, level + 1)
        for name, value in options.items()
    }
    few = dict(itertools.islice(forms.items(), _MOST_ITEMS_DESCRIBED))
    shown = {name: form.described for name, form in few.items()}
    more = {"…": f"{len(forms) - len(few)} more"} if len(forms) > len(few) else {}
    return _Form({**shown, **more}, {name: form.written for name, form in forms.items()})


def _form_of_object(value: Any, counter: Iterator[int], level: int) -> _Form:
    kind = type(value)
    if isinstance(value, RecordsOptions) and (_RECORDED in vars(value) or not attrs.has(kind)):
        return _made(kind.__name__, _find_target(kind), _recorded(value))
    fields: dict[str, Any] | None = None
    if attrs.has(kind):
        fields = {each.alias: getattr(value, each.name, None) for each in attrs.fields(kind) if each.init}
    elif dataclasses.is_dataclass(value):
        fields = {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value) if each.init}
    if fields is not None:
        return _made(kind.__name__, _find_target(kind), _form_of_options(fields, counter, level))
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and kind.__module__ == "numpy":
        return _form(value.item(), counter, level)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape is not None:
        name = getattr(value, "name", None)
        text = f"{getattr(dtype, 'name', None) or dtype} {shape}"
        shown = f"{name} {text}" if isinstance(name, str) and name else text
        return _Form(shown, None, f"an array or a tensor of {text}")
    why = f"an object of {kind.__module__}.{kind.__qualname__}, made in the script"
    return _Form(_shown_object(value), None, why)


def _made(name: str, found: tuple[str, str], options: _Form) -> _Form:
    """Return the form of an object that a class makes from options.

    Args:
        name: the name of the class.
        found: what `_find_target` returned for it.
        options: the form of the options.
    """
    target, why = found
    why = why or options.why or _reserved_keys(target, options.data)
    return _Form({"name": name, "options": options.described}, {USE: target, **options.data}, why)


def _few(items: list[Any]) -> list[Any]:
    # The first item of data shows what the others are like.
    return items if len(items) <= _MOST_ITEMS_DESCRIBED else [items[0], f"… {len(items) - 1} more"]


def _reserved_keys(what: str, names: Iterable[str]) -> str:
    """Return that some of the keys have a meaning in the file; empty if none has."""
    reserved = f"{what} with a key {USE!r}, {REF!r} or {NOT_WRITTEN!r}, which have a meaning in the file"
    return reserved if {USE, REF, NOT_WRITTEN} & set(names) else ""


def _shown_object(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return _few(sorted(map(str, value)))
    if isinstance(value, functools.partial):
        return f"functools.partial({_qualified_name(value.func)})"
    if hasattr(value, "as_numpy_dtype") or (hasattr(value, "itemsize") and hasattr(value, "kind")):
        return str(value.name)  # A dtype.
    if isinstance(value, date | timedelta | range | slice) or hasattr(value, "SerializeToString"):  # A protocol buffer.
        return " ".join(str(value).split())
    return type(value).__name__


def _qualified_name(thing: Any) -> str:
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", type(thing).__name__)
    return f"{module}.{name}" if module else name


def _as_repr(written: Any) -> str:
    if isinstance(written, dict):
        return str(written.get(USE) or written.get(REF) or "").rpartition(":")[2] or "…"
    text = f"[{', '.join(map(_as_repr, written))}]" if isinstance(written, list) else repr(written)
    return text if len(text) <= _MOST_CHARACTERS_OF_REPR else "…"


def _find_target(thing: Any) -> tuple[str, str]:
    """Return ``"module:name"`` of a class or a function, preferably in the public API; or an empty text and why not."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if name.endswith("<lambda>"):
        return "", "a lambda"
    if not module or not name or "<" in name:
        return "", f"{name or repr(thing)}, which is defined inside of a function"
    if module == "__main__":
        module, why = _module_of_script()
        return ("", f"{name}, which is {why}") if why else (f"{module}:{name}", "")
    if module.partition(".")[0] == "tpk" and _leads_to(f"tpk:{name}", thing):
        return f"tpk:{name}", ""
    if not _leads_to(f"{module}:{name}", thing):
        return "", f"{module}.{name}, a name that means something else"
    return f"{module}:{name}", ""


def _module_of_script() -> tuple[str, str]:
    """Return the name under which the running script can be imported; or an empty text and why not."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name), ""
    if file is None:
        return "", "defined in a notebook, or at a prompt"
    path = Path(file)
    why = "" if path.stem.isidentifier() else f"defined in {path.name}, which cannot be imported by that name"
    return path.stem, why


def _leads_to(name: str, thing: Any) -> bool:
    try:
        return pkgutil.resolve_name(name) is thing
    except (ImportError, AttributeError, ValueError):
        return False
