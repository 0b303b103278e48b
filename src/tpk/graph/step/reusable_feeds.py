"""Feeds of which only the values change from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs


@attrs.frozen(eq=False)
class ReusableFeeds:
    """Feeds that stay one object, and whose values are taken just before each run that depends on a fed tensor.

    A hook that returns the same request with them in each step costs the session next to nothing: the merged run is
    found by the identity of the requests, and no tensor is hashed.

    Attributes:
        tensors: what is fed.
        take: returns the values for one run, in the order of the tensors; each must have the dtype of its tensor and
            a shape that fits, which is not checked again.
    """

    tensors: Sequence[Any]
    take: Callable[[], Sequence[Any]]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Take the values for one run, and return the pairs of tensors and values."""
        return zip(self.tensors, self.take(), strict=True)
