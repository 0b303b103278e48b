"""A list of callbacks as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tpk

__all__ = ["Callbacks"]


class Callbacks(list[Any]):
    """Callbacks, in the order in which they are called: to be given where a callback or a list of them is expected.

    Args:
        cbs: the callbacks.

    Raises:
        TypeError: an item is not one.
    """

    def __init__(self, cbs: Iterable[Any]) -> None:
        super().__init__(cbs)
        for each in self:
            if not isinstance(each, tpk.Callback):
                raise TypeError(f"Callbacks: {each!r} is no callback")

    @property
    def cbs(self) -> list[Any]:
        """The callbacks."""
        return list(self)
