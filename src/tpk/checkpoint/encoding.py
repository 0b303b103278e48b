"""Plain data as JSON and back, and the keys of its parts. Nothing is unpickled, so reading it runs no code.

Tuples, sets, deques, bytes, NumPy scalars and arrays, NaN and the infinities, and dicts with other keys than strings
come back bit by bit as what they were. A subclass of a container or number comes back as the plain type.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tpk.errors import CheckpointError
from tpk.text import describe_value

TAG = "__tpk__"
"""The key that marks a JSON object as the encoding of something other than a dict."""

PLAIN = "None, bools, numbers, strings, bytes, lists, tuples, sets, deques, dicts, and NumPy scalars and arrays"

_CONTAINERS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}

_MAX_DEPTH = 100


def encode(value: Any, where: str = "state", buffers: list[bytes] | None = None) -> Any:
    """Return `value` as JSON data.

    Args:
        value: None, bools, numbers, strings, bytes, lists, tuples, sets, deques, dicts, NumPy scalars and arrays.
        where: what error messages call `value`.
        buffers: the content of bytes and arrays is appended here; None to keep it in the JSON data as base64.

    Raises:
        CheckpointError: if `value` contains anything else, or is nested too deeply.

    Example:
        ```python
        json.dumps(encode({"window": (1.5, float("nan")), "key": np.arange(3)}))
        ```
    """
    return _encode(value, where, buffers, 0)


def decode(value: Any, buffers: Sequence[Any] = ()) -> Any:
    """Return what `encode` was given.

    Args:
        value: what `encode` returned.
        buffers: what `encode` appended to its `buffers`.

    Raises:
        CheckpointError: if `value` is not something that `encode` returns.
    """
    try:
        return _decode(value, buffers)
    except Exception as error:
        raise CheckpointError(f"it holds data that tpk does not write: {error!r}") from error


def state_keys(owners: Iterable[Any]) -> list[str]:
    """Return a unique key for each of `owners`.

    The key is the name of the class, and the attribute `state_key` unless it is empty. `state_key` distinguishes
    objects of one class, for example by the hyperparameter that they set. Keys that are still equal are numbered.

    Example:
        ```python
        state_keys([saver, lr_setter, other_saver])
        # ["ModelSaver", "ScheduledHyperParamSetter(learning_rate)", "ModelSaver#2"]
        ```
    """
    seen: Counter[str] = Counter()
    keys = []
    for owner in owners:
        detail = owner.state_key
        key = f"{type(owner).__name__}({detail})" if detail else type(owner).__name__
        seen[key] += 1
        keys.append(key if seen[key] == 1 else f"{key}#{seen[key]}")
    return keys


def _encode(value: Any, where: str, buffers: list[bytes] | None, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise CheckpointError(f"{where[:200]}… is nested deeper than {_MAX_DEPTH} levels. Use flatter data.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.generic):
        return {TAG: "scalar", **_encode_array(np.asarray(value), where, buffers)}
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        if value.dtype == object:
            items = _encode(value.ravel().tolist(), where, buffers, depth + 1)
            return {TAG: "objects", "shape": list(value.shape), "items": items}
        return {TAG: "ndarray", **_encode_array(value, where, buffers)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {TAG: "float", "value": repr(float(value))}
    if isinstance(value, bytes | bytearray):
        return {TAG: "bytes", **_encode_bytes(bytes(value), buffers)}
    if isinstance(value, list | tuple | set | frozenset | deque):
        items = [_encode(item, f"{where}[{index}]", buffers, depth + 1) for index, item in enumerate(value)]
        if isinstance(value, list):
            return items
        kind = next(kind for kind, container in _CONTAINERS.items() if isinstance(value, container))
        return {TAG: kind, "items": items, **({"maxlen": value.maxlen} if isinstance(value, deque) else {})}
    if isinstance(value, Mapping):
        return _encode_mapping(value, where, buffers, depth + 1)
    raise CheckpointError(f"{where} is not plain data: {describe_value(value)}. Use {PLAIN} only.")


def _encode_mapping(value: Mapping[Any, Any], where: str, buffers: list[bytes] | None, depth: int) -> Any:
    if all(type(key) is str for key in value) and TAG not in value:
        return {key: _encode(item, f"{where}[{key!r}]", buffers, depth) for key, item in value.items()}
    pairs = [
        [_encode(key, f"a key of {where}", buffers, depth), _encode(item, f"{where}[{key!r}]", buffers, depth)]
        for key, item in value.items()
    ]
    return {TAG: "dict", "items": pairs}


def _encode_array(array: np.ndarray, where: str, buffers: list[bytes] | None) -> dict[str, Any]:
    # The `str` of a dtype that another package has registered, such as bfloat16, says only how many bytes it has.
    dtype = array.dtype.name if array.dtype.isbuiltin == 2 else array.dtype.str
    if np.dtype(dtype) != array.dtype:
        raise CheckpointError(
            f"{where} is an array of dtype {array.dtype}. Use arrays of numbers, bools, strings or times only."
        )
    data = array.tobytes() if array.dtype.itemsize else b""
    return {"dtype": dtype, "shape": list(array.shape), **_encode_bytes(data, buffers)}


def _encode_bytes(data: bytes, buffers: list[bytes] | None) -> dict[str, Any]:
    if buffers is None:
        return {"base64": base64.b64encode(data).decode("ascii")}
    buffers.append(data)
    return {"buffer": len(buffers) - 1}


def _decode(value: Any, buffers: Sequence[Any]) -> Any:
    if isinstance(value, list):
        return [_decode(item, buffers) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TAG)
    if kind is None:
        return {key: _decode(item, buffers) for key, item in value.items()}
    if kind in _CONTAINERS:
        options = [value["maxlen"]] if kind == "deque" else []
        return _CONTAINERS[kind](_decode(value["items"], buffers), *options)
    if kind == "dict":
        return {_decode(key, buffers): _decode(item, buffers) for key, item in value["items"]}
    if kind == "bytes":
        return _decode_bytes(value, buffers)
    if kind == "float":
        return float(value["value"])
    if kind == "objects":
        return _decode_objects(value["shape"], _decode(value["items"], buffers))
    if kind == "ndarray":
        return _decode_array(value, buffers)
    if kind == "scalar":
        return _decode_array(value, buffers)[()]
    raise ValueError(f"unknown kind {kind!r}")


def _decode_array(value: Mapping[str, Any], buffers: Sequence[Any]) -> np.ndarray:
    dtype, shape = value["dtype"], value["shape"]
    # NumPy accepts other types, too.
    if not isinstance(dtype, str) or not isinstance(shape, list):
        raise TypeError(f"an array of dtype {dtype!r} and shape {shape!r}")
    if not np.dtype(dtype).itemsize:  # `frombuffer` refuses empty strings.
        return np.zeros(shape, dtype)
    return np.frombuffer(_decode_bytes(value, buffers), dtype).reshape(shape).copy()


def _decode_objects(shape: list[int], items: list[Any]) -> np.ndarray:
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array.reshape(shape)


def _decode_bytes(value: Mapping[str, Any], buffers: Sequence[Any]) -> bytes:
    return base64.b64decode(value["base64"]) if "base64" in value else bytes(buffers[value["buffer"]])
