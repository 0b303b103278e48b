"""A list of callbacks as one."""

from __future__ import annotations

from typing import Any

__all__ = ["Callbacks"]


class Callbacks(list[Any]):
    """Callbacks, in the order in which they are called: a list, which a trainer takes as one."""

    @property
    def cbs(self) -> list[Any]:
        """The callbacks."""
        return list(self)
