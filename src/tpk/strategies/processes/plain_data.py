"""Plain data as bytes: what processes can tell each other. To read it runs no code, whoever has sent it."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

_ARRAY, _SCALAR, _OBJECTS, _TUPLE, _DICT, _BYTES = "array", "scalar", "objects", "tuple", "dict", "bytes"

PLAIN = "None, bools, numbers, text, bytes, lists, tuples, dicts, and NumPy arrays and scalars"
"""What can be packed, in words."""


def pack(**values: Any) -> bytes:
    """Return values as bytes: a line of JSON, and after it the memory of what is large.

    Args:
        values: what to pack, by name; of the types that `PLAIN` names. Members of enumerations come back as the numbers
            or texts that they are. Containers of derived classes, such as named tuples, are refused.

    Raises:
        TypeError: something in them is of another type; it says where.
    """
    memory: list[bytes] = []
    head = json.dumps({name: _to_json(value, name, memory) for name, value in values.items()}, separators=(",", ":"))
    return b"".join([head.encode(), b"\n", *memory])


def unpack(data: bytes) -> dict[str, Any]:
    """Return the values that were packed, by name; arrays can be written to.

    Raises:
        ValueError: these are other bytes.
    """
    try:
        end_of_head = data.index(b"\n")
        reader = _Reader(memoryview(data)[end_of_head + 1 :])
        values = {name: reader.value(value) for name, value in json.loads(data[:end_of_head]).items()}
        if reader.rest:
            raise ValueError(f"{reader.rest} bytes are left over")
    except Exception as error:  # NumPy raises errors of many types.
        raise ValueError(f"{len(data)} bytes are no plain data: {type(error).__name__}: {error}") from error
    return values


def _to_json(value: Any, where: str, memory: list[bytes]) -> Any:
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return _array_to_json(value, where, memory)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) is list:
        return [_to_json(item, f"{where}[{index}]", memory) for index, item in enumerate(value)]
    if type(value) is tuple:
        return {_TUPLE: [_to_json(item, f"{where}[{index}]", memory) for index, item in enumerate(value)]}
    if type(value) is dict:
        keys = _to_json(list(value), f"{where}.keys()", memory)
        return {_DICT: [keys, [_to_json(item, f"{where}[{key!r}]", memory) for key, item in value.items()]]}
    if type(value) is bytes:
        memory.append(value)
        return {_BYTES: len(value)}
    raise TypeError(f"{where} is a {type(value).__module__}.{type(value).__qualname__}; expected {PLAIN}")


def _array_to_json(value: Any, where: str, memory: list[bytes]) -> Any:
    dtype = value.dtype
    if dtype.kind == "O":
        return {_OBJECTS: [list(value.shape), _to_json(value.ravel().tolist(), where, memory)]}
    # NumPy writes types that others have added, such as bfloat16, as bytes without a meaning.
    name = dtype.name if dtype.isbuiltin == 2 else dtype.str
    if np.dtype(name) != dtype:
        raise TypeError(f"{where} is of dtype {dtype}; expected one of a single number, time or text")
    memory.append(value.tobytes() if dtype.itemsize else b"")
    return {_SCALAR: name} if isinstance(value, np.generic) else {_ARRAY: [name, list(value.shape)]}


class _Reader:
    """Reads values from JSON, and takes the memory of those that have some, in the order in which it was written."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._begin = 0
        self._readers: dict[str, Callable[[Any], Any]] = {
            _ARRAY: lambda value: self._array(*value),
            _SCALAR: lambda name: self._array(name, [])[()],
            _OBJECTS: lambda value: self._objects(*value),
            _TUPLE: lambda items: tuple(map(self.value, items)),
            _DICT: lambda content: dict(zip(*map(self.value, content), strict=True)),
            _BYTES: lambda count: bytes(self._take(count)),
        }

    @property
    def rest(self) -> int:
        """How many bytes nobody has taken."""
        return len(self._memory) - self._begin

    def value(self, encoded: Any) -> Any:
        """Return what was written as `encoded`."""
        if isinstance(encoded, list):
            return [self.value(item) for item in encoded]
        if not isinstance(encoded, dict):
            return encoded
        ((kind, content),) = encoded.items()
        return self._readers[kind](content)

    def _take(self, count: int) -> memoryview:
        if not 0 <= count <= self.rest:
            raise ValueError(f"{count} bytes of memory are expected where {self.rest} are left")
        self._begin += count
        return self._memory[self._begin - count : self._begin]

    def _array(self, name: str, shape: list[int]) -> np.ndarray[Any, Any]:
        dtype = np.dtype(name)
        if dtype.hasobject:
            raise ValueError(f"an array of {name} has no memory")
        if not dtype.itemsize:  # Texts without a letter have no memory, which NumPy does not take for an array.
            return np.zeros(shape, dtype)
        return np.frombuffer(self._take(prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()

    def _objects(self, shape: list[int], items: list[Any]) -> np.ndarray[Any, Any]:
        array = np.empty(len(items), object)
        for index, item in enumerate(items):
            array[index] = self.value(item)
        return array.reshape(shape)
