"""`tf.contrib.training`: hyperparameters. The functions for training and evaluation come from the package tf_slim."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from numbers import Integral, Number
from typing import Any

from tpk.text import nearest
from tpk_tensorflow1.missing import finder_in

__all__ = ["HParams"]

_ASSIGNMENT = re.compile(
    r"""
    (?P<name>[a-zA-Z][\w.]*) \s*=\s*
    (?: (?P<value>[^,\[]*) | \[(?P<values>[^\]]*)\] )
    (?:,\s*|$)
    """,
    re.VERBOSE,
)
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


class HParams:
    """Hyperparameters, which are attributes. Each keeps the type of its first value.

    Args:
        kwargs: names and values. A list has elements of one type and cannot be empty.

    Example:
        >>> hparams = HParams(learning_rate=0.1, layers=[64, 64], name="small")
        >>> hparams.parse("learning_rate=0.01,layers=[32, 32, 32]")
        HParams([('layers', [32, 32, 32]), ('learning_rate', 0.01), ('name', 'small')])
    """

    def __init__(self, **kwargs: Any) -> None:
        self._types: dict[str, tuple[type, bool]] = {}  # The type of each, and whether it is a list.
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter.

        Raises:
            ValueError: the name is an attribute already, or the value is an empty list.
        """
        if hasattr(self, name):
            raise ValueError(f"HParams already has an attribute {name!r}; use set_hparam to change a hyperparameter")
        is_list = isinstance(value, list | tuple)
        if is_list and not value:
            raise ValueError(f"HParams: the list {name!r} is empty, so the type of its elements is unknown")
        self._types[name] = type(value[0] if is_list else value), is_list
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Change a hyperparameter.

        Raises:
            KeyError: the name is unknown.
            ValueError: the value has another type.
        """
        if name not in self._types:
            raise KeyError(f"HParams has no hyperparameter {name!r}.{nearest(name, self._types)}")
        kind, is_list = self._types[name]
        if is_list is not isinstance(value, list):
            raise ValueError(f"HParams: {name!r} is {'a list' if is_list else 'not a list'}, unlike {value!r}")
        setattr(self, name, [_cast(name, kind, each) for each in value] if is_list else _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter, if it exists."""
        if self._types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Change hyperparameters as a string such as ``"a=1,b=[2, 3]"`` says, and return self.

        Raises:
            ValueError: the string is malformed, a name is unknown, or a value has another type.
        """
        parsed: dict[str, Any] = {}
        position = 0
        while position < len(values):
            match = _ASSIGNMENT.match(values, position)
            if match is None:
                raise ValueError(f"{values!r} is malformed at {values[position:]!r}: expected name=value or name=[…]")
            position = match.end()
            name, texts = match["name"], match["values"]
            if name not in self._types:
                raise ValueError(f"{name!r} in {values!r} is not a hyperparameter.{nearest(name, self._types)}")
            if name in parsed:
                raise ValueError(f"{values!r} sets {name!r} twice")
            kind, _ = self._types[name]
            if texts is None:
                parsed[name] = _parse(name, kind, match["value"])
            else:
                parsed[name] = [_parse(name, kind, each) for each in re.split("[ ,]", texts) if each]
        return self.override_from_dict(parsed)

    def parse_json(self, values_json: str) -> HParams:
        """Change hyperparameters as a JSON object says, and return self."""
        return self.override_from_dict(json.loads(values_json))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Change hyperparameters, and return self; see `set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default` if there is no such hyperparameter."""
        return getattr(self, key) if key in self else default

    def to_json(self, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Return the values as a JSON object."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"HParams({sorted(self.values().items())})"


def _parse(name: str, kind: type, text: str) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[text] if text in _BOOLEANS else bool(int(text))
        return kind(text)
    except ValueError:
        raise ValueError(f"the hyperparameter {name!r} is of type {kind.__name__}, which {text!r} is not") from None


def _cast(name: str, kind: type, value: Any) -> Any:
    """Return a value as its type, but only if nothing is lost."""
    if kind is type(None):
        return value
    fits = issubclass(kind, bool) is isinstance(value, bool)
    for general, accepted in [(str, str | bytes), (Integral, Integral), (Number, Number)]:
        if issubclass(kind, general):
            fits = fits and isinstance(value, accepted)
    if not fits:
        raise ValueError(f"the hyperparameter {name!r} is of type {kind.__name__}, but its value is {value!r}")
    return value if isinstance(value, kind) else kind(value)


__getattr__ = finder_in("tf.contrib.training", __all__)
