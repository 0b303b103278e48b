"""Bytes of objects, and back: by pickle, which runs code that is in them. Load only what you trust."""

from __future__ import annotations

import pickle
from typing import Any

__all__ = ["dumps", "loads"]


def dumps(obj: Any) -> bytes:
    """Return an object as bytes.

    Args:
        obj: anything that can be pickled.
    """
    return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)


def loads(buf: bytes) -> Any:
    """Return the object that `dumps` has made bytes of."""
    return pickle.loads(buf)
