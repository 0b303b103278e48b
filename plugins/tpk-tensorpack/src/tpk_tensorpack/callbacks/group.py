"""A list of callbacks as a single callback."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tpk
from tpk_tensorpack.errors import CheckError

__all__ = ["Callbacks"]


class Callbacks(list[Any]):
    """Several callbacks in order, usable wherever a callback is expected.

    Args:
        cbs: the callbacks.

    Raises:
        TypeError: an item is not a callback.
    """

    def __init__(self, cbs: Iterable[Any]) -> None:
        super().__init__(cbs)
        for each in self:
            if not isinstance(each, tpk.Callback):
                raise CheckError(f"Callbacks: {each!r} is not a callback")

    @property
    def cbs(self) -> list[Any]:
        """The callbacks."""
        return list(self)
