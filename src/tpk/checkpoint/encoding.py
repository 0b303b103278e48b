"""Training state as JSON, and back: plain data, a tagged form of what JSON does not have, and keys for its parts.

Tuples, bytes, NumPy scalars and arrays, NaN and the infinities, and dicts whose keys are no strings come back as what
they were, bit by bit. Anything else is an error that names where it stands.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tpk.errors import CheckpointError

TAG = "__tpk__"
"""The key by which an object of JSON stands for something else than a dict."""

_DEEPEST = 100

_KINDS_OF_DTYPES = frozenset("biufcSUmM")


def encode(value: Any, where: str = "state") -> Any:
    """Return `value` as what JSON can hold.

    Args:
        value: None, bools, numbers, strings, bytes, lists, tuples, dicts, NumPy scalars and arrays.
        where: what to call `value` in messages.

    Raises:
        CheckpointError: if something in it is none of these, or it is nested too deeply to be read again.

    Example:
        ```python
        json.dumps(encode({"window": (1.5, float("nan")), "key": np.arange(3)}))
        ```
    """
    return _encode(value, where, 0)


def decode(value: Any) -> Any:
    """Return what `encode` was given.

    Raises:
        CheckpointError: if `value` is nothing that `encode` returns.
    """
    try:
        return _decode(value, 0)
    except Exception as error:
        raise CheckpointError(f"it holds what tpk does not write: {error!r}") from error


def state_keys(owners: Iterable[Any]) -> list[str]:
    """Return a unique key for each of `owners`.

    It is the name of the class and the attribute `state_key`, if it is not empty: what tells it from others of its
    class, such as the name of the hyperparameter that it sets. Those that are equal in that are numbered.

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


def _encode(value: Any, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise CheckpointError(
            f"{where[:200]}… is nested deeper than {_DEEPEST} levels, which a checkpoint cannot hold. Let state_dict "
            "return flat data."
        )
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.generic):
        return {TAG: "scalar", **_array(np.asarray(value), where)}
    if isinstance(value, np.ndarray):
        return {TAG: "ndarray", **_array(value, where)}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {TAG: "float", "value": repr(float(value))}
    if isinstance(value, bytes | bytearray):
        return {TAG: "bytes", "base64": _to_text(bytes(value))}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {TAG: "tuple", "items": items}
    if isinstance(value, Mapping):
        return _mapping(value, where, depth + 1)
    raise CheckpointError(
        f"{where} is {value!r}, a {type(value).__name__}, which a checkpoint cannot hold. Let state_dict return plain "
        "data only: None, bools, numbers, strings, bytes, lists, tuples, dicts, and NumPy scalars and arrays."
    )


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> Any:
    if all(type(key) is str for key in value) and TAG not in value:
        return {key: _encode(item, f"{where}[{key!r}]", depth) for key, item in value.items()}
    pairs = [
        [_encode(key, f"a key of {where}", depth), _encode(item, f"{where}[{key!r}]", depth)]
        for key, item in value.items()
    ]
    return {TAG: "dict", "items": pairs}


def _decode(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"nested deeper than {_DEEPEST} levels")
    if isinstance(value, list):
        return [_decode(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TAG)
    if kind is None:
        return {key: _decode(item, depth + 1) for key, item in value.items()}
    return _DECODERS[kind](value, depth + 1)


def _array(array: np.ndarray, where: str) -> dict[str, Any]:
    if array.dtype.kind not in _KINDS_OF_DTYPES:
        raise CheckpointError(
            f"{where} is an array of dtype {array.dtype}, which a checkpoint cannot hold. Let state_dict return arrays "
            "of numbers, bools, strings or times only."
        )
    # `ascontiguousarray` would give an array without dimensions one.
    return {"dtype": array.dtype.str, "shape": list(array.shape), "base64": _to_text(array.tobytes())}


def _from_array(value: Mapping[str, Any], depth: int) -> np.ndarray:
    dtype, shape = value["dtype"], value["shape"]
    # NumPy would make something of other values, too.
    if not isinstance(dtype, str) or not isinstance(shape, list):
        raise TypeError(f"an array of dtype {dtype!r} and shape {shape!r}")
    return np.frombuffer(_to_bytes(value["base64"]), np.dtype(dtype)).reshape(shape).copy()


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _to_bytes(text: str) -> bytes:
    return base64.b64decode(text)


_DECODERS: dict[str, Callable[[Mapping[str, Any], int], Any]] = {
    "tuple": lambda value, depth: tuple(_decode(item, depth) for item in value["items"]),
    "dict": lambda value, depth: {_decode(key, depth): _decode(item, depth) for key, item in value["items"]},
    "bytes": lambda value, depth: _to_bytes(value["base64"]),
    "float": lambda value, depth: float(value["value"]),
    "ndarray": _from_array,
    "scalar": lambda value, depth: _from_array(value, depth)[()],
}
