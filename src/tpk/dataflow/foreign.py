"""Adapters for loaders of other libraries, and what only those who know them can tell of them."""

from __future__ import annotations

import base64
import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np


def with_position(flow: Iterable[Any]) -> Iterable[Any]:
    """Return a flow whose ``state_dict`` is a position; one that has a position, or none at all, as it is.

    Hugging Face's ``IterableDataset`` and torchdata's ``StatefulDataLoader`` are wrapped.

    Args:
        flow: any iterable of datapoints.
    """
    if _is_from(flow, "datasets", "IterableDataset"):
        return _Replayed(flow) if _shuffles(flow) else _HuggingFaceStream(flow)
    if _is_from(flow, "torchdata.stateful_dataloader", "StatefulDataLoader"):
        return _TorchLoader(flow)
    return flow


def is_foreign_sequence(flow: object) -> bool:
    """Whether it is a data set that delivers, item by item, what it delivers when it is iterated: Hugging Face's."""
    return _is_from(flow, "datasets", "Dataset")


def _is_from(flow: object, module: str, name: str) -> bool:
    # What was not imported made no object.
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(flow, kind)


def _shuffles(stream: Any) -> bool:
    """Whether a stream of Hugging Face shuffles in a buffer, whose content its state lacks, so that it would be lost.

    Nothing public says so; where the private name is gone, this is said of every stream.
    """
    layers = [getattr(stream, "_ex_iterable", None)]
    for layer in layers:
        if layer is None or "Shuffle" in type(layer).__name__:
            return True
        beneath = getattr(layer, "ex_iterable", None)
        layers.extend([*getattr(layer, "ex_iterables", ()), *([] if beneath is None else [beneath])])
    return False


class _Replayed:
    """A flow whose state is not asked for, so that a position in it is found by replaying."""

    def __init__(self, flow: Iterable[Any]) -> None:
        self._flow = flow

    def __iter__(self) -> Iterator[Any]:
        return iter(self._flow)


class _HuggingFaceStream:
    """A stream that is asked to go on somewhere does so in every later pass, too, until it is told otherwise."""

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
        """Return where the iteration under way stands; nothing between two passes."""
        if self._loaded is not None:
            return {"stream": dict(self._loaded)}
        return {"stream": self._stream.state_dict() if self._in_pass else {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue from a saved state."""
        self._loaded = state["stream"]
        self._in_pass = False


class _TorchLoader:
    """A loader whose state holds tensors, the random state of its sampler, where it shuffles."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the loader takes its state back when it is asked for an iterator.
        return iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands, as plain data."""
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
