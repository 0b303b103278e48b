"""Datapoints as bytes: msgpack with arrays, which is safe to read."""

from __future__ import annotations

import ast
from math import prod
from typing import Any

import msgpack
import numpy as np

from tpk.dataflow import aligned_empty
from tpk.errors import InputError

_ARRAY, _SCALAR, _OBJECTS, _TUPLE = range(1, 5)


class DatapointPacker:
    """Turns datapoints into bytes and back.

    Lists, tuples, dicts, text, bytes, numbers, None, NumPy's arrays and scalars come back as they were. Other objects
    with ``__array__``, such as tensors, come back as arrays. Arrays come back writable and aligned.

    Args:
        owner: the name of the serializer, for messages.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def pack(self, datapoint: Any, index: int) -> bytes:
        """Return the bytes.

        Raises:
            InputError: something in it cannot be stored; the error names the type.
        """
        try:
            return self._pack(datapoint)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{self._owner}: datapoint {index} of the flow cannot be stored: {error}") from error

    def unpack(self, data: Any, where: str) -> Any:
        """Undo `pack`.

        Args:
            data: a bytes-like object.
            where: which datapoint of which file it is, for messages.

        Raises:
            InputError: these are other bytes.
        """
        try:
            return self._unpack(data)
        except Exception as error:  # msgpack raises errors of many types
            raise InputError(
                f"{where} cannot be read ({type(error).__name__}: {error}); the file is damaged, or was written by "
                "another program"
            ) from error

    def _pack(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(value, default=self._pack_other, strict_types=True)
        return packed

    def _unpack(self, data: Any) -> Any:
        return msgpack.unpackb(data, ext_hook=self._unpack_other, strict_map_key=False)

    def _pack_other(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return msgpack.ExtType(_TUPLE, self._pack(list(value)))
        if isinstance(value, dict):
            return dict(value)
        if not hasattr(value, "__array__"):
            raise TypeError(
                f"a value of type {type(value).__name__} is not an array, number, text, bytes, list or dict"
            )
        array = np.asarray(value)
        if array.dtype.hasobject:
            flat = array.ravel().tolist()
            if not all(isinstance(element, (str, bytes)) for element in flat):
                raise TypeError("an array of objects can be stored if they are text or bytes, not others")
            return msgpack.ExtType(_OBJECTS, self._pack([array.shape, flat]))
        descr = np.lib.format.dtype_to_descr(array.dtype)
        if np.lib.format.descr_to_dtype(descr) != array.dtype:
            raise TypeError(f"the dtype {array.dtype} is not NumPy's own; convert the array to one that is")
        header = self._pack([repr(descr), list(array.shape)])
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else b""
        code = _SCALAR if isinstance(value, np.generic) else _ARRAY
        return msgpack.ExtType(code, b"".join([len(header).to_bytes(4, "big"), header, memoryview(content)]))

    def _unpack_other(self, code: int, data: bytes) -> Any:
        if code == _TUPLE:
            return tuple(self._unpack(data))
        if code == _OBJECTS:
            shape, flat = self._unpack(data)
            objects = np.empty(len(flat), dtype=object)
            objects[:] = flat
            return objects.reshape(shape)
        if code not in (_ARRAY, _SCALAR):
            raise ValueError(f"it has a part of the unknown type {code}")
        begin = 4 + int.from_bytes(data[:4], "big")
        descr, shape = self._unpack(data[4:begin])
        array = _array(np.lib.format.descr_to_dtype(ast.literal_eval(descr)), shape, data, begin)
        return array[()] if code == _SCALAR else array


def _array(dtype: np.dtype[Any], shape: Any, data: bytes, begin: int) -> np.ndarray[Any, Any]:
    if len(data) - begin != prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data) - begin} bytes do not fit an array of {dtype} with shape {tuple(shape)}")
    array = aligned_empty(tuple(shape), dtype)
    if array.size:
        array[...] = np.frombuffer(data, dtype, offset=begin).reshape(shape)
    return array
