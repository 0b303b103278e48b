"""Arguments of a script for all of its modules."""

from __future__ import annotations

from argparse import Namespace

__all__ = ["globalns", "use_global_argument"]

globalns = Namespace()
"""The arguments."""


def use_global_argument(args: Namespace) -> None:
    """Add all arguments to `globalns`."""
    vars(globalns).update(vars(args))
