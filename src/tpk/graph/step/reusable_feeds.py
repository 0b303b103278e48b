"""Feeds of which only the values change from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class ReusableFeeds(Mapping[Any, Any]):
    """A feed dict that stays one object, in which the values of the next run are put before each.

    A hook that returns one and the same request with it in each step costs the session next to nothing: the merged
    run is found by the identity of the requests, and no tensor is hashed.

    Args:
        tensors: what is fed.

    Attributes:
        arrays: the values of the next run, in the order of the tensors; each must have the dtype of its tensor, and a
            shape that fits, which nobody checks again.
    """

    __slots__ = ("arrays", "tensors")

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tensors
        self.arrays: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tensors)

    def __getitem__(self, tensor: Any) -> Any:
        for known, array in self.items():
            if known is tensor:
                return array
        raise KeyError(tensor)

    def items(self) -> Any:
        """Return the pairs."""
        return zip(self.tensors, self.arrays, strict=True)
