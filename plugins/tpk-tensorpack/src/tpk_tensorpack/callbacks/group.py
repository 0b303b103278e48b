"""A list of callbacks as one."""

from __future__ import annotations

from typing import Any

__all__ = ["Callbacks"]


class Callbacks(list[Any]):
    """Callbacks, in the order in which they are called: a list, to be given where a list of callbacks is expected."""

    @property
    def cbs(self) -> list[Any]:
        """The callbacks."""
        return list(self)
