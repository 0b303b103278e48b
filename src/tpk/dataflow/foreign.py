"""Adapters for the data loaders of other libraries."""

from __future__ import annotations

import base64
import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np


def with_position(flow: Iterable[Any]) -> Iterable[Any]:
    """Return a flow whose ``state_dict`` is an exact position, as plain data.

    Hugging Face's ``IterableDataset`` and torchdata's ``StatefulDataLoader`` are wrapped. Other flows are returned
    unchanged.

    Args:
        flow: any iterable of datapoints.
    """
    if _is_from(flow, "datasets", "IterableDataset"):
        return _Replayed(flow) if _shuffles(flow) else _HuggingFaceStream(flow)
    if _is_from(flow, "torchdata.stateful_dataloader", "StatefulDataLoader"):
        return _TorchLoader(flow)
    return flow


def is_foreign_sequence(flow: object) -> bool:
    """Whether a flow is a Hugging Face ``Dataset``, which delivers ``flow[i]`` for each index when it is iterated."""
    return _is_from(flow, "datasets", "Dataset")


def _is_from(flow: object, module: str, name: str) -> bool:
    # If the module was not imported, no object is of its classes.
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(flow, kind)


def _shuffles(stream: Any) -> bool:
    """Whether a Hugging Face stream shuffles in a buffer, whose content is missing from its state.

    This needs a private attribute; without it, the answer is True.
    """
    layers = [getattr(stream, "_ex_iterable", None)]
    for layer in layers:
        if layer is None or "Shuffle" in type(layer).__name__:
            return True
        beneath = getattr(layer, "ex_iterable", None)
        layers.extend([*getattr(layer, "ex_iterables", ()), *([] if beneath is None else [beneath])])
    return False


class _Replayed:
    """A flow with its state hidden, so that its position is restored by replaying."""

    def __init__(self, flow: Iterable[Any]) -> None:
        self._flow = flow

    def __iter__(self) -> Iterator[Any]:
        return iter(self._flow)


class _HuggingFaceStream:
    """A Hugging Face stream, which would begin every later pass at the position that it has loaded."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._beginning = stream.state_dict()
        self._in_pass = False
        self._loaded: Mapping[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        loaded, self._loaded = self._loaded, None
        self._stream.load_state_dict(copy.deepcopy(loaded or self._beginning))
        self._in_pass = True
        yield from self._stream
        self._in_pass = False

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the stream; empty between two passes."""
        if self._loaded is not None:
            return {"stream": dict(self._loaded)}
        return {"stream": self._stream.state_dict() if self._in_pass else {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        self._loaded = state["stream"]
        self._in_pass = False


class _TorchLoader:
    """A torchdata loader, whose state contains tensors (the random state of its sampler) if it shuffles."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the loader restores its state in `__iter__`.
        return iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader as plain data."""
        return {"loader": _without_tensors(self._loader.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        self._loader.load_state_dict(_with_tensors(state["loader"]))


def _without_tensors(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_tensors(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_tensors(item) for item in value]
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        content = base64.b64encode(array.tobytes()).decode()
        return {"tensor": content, "dtype": array.dtype.str, "shape": list(array.shape)}
    return value


def _with_tensors(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"tensor", "dtype", "shape"}:
            array = np.frombuffer(base64.b64decode(value["tensor"]), value["dtype"]).reshape(value["shape"])
            return sys.modules["torch"].from_numpy(array.copy())
        return {key: _with_tensors(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_tensors(item) for item in value]
    return value
